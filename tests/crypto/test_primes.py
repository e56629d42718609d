"""Random primes: they are prime, of the class that was asked for, and equally likely."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.crypto import primes
from tacit.crypto.primes import is_prime, may_be_prime, product_of_primes, random_prime, small_primes
from tacit.errors import ConfigError

CARMICHAEL = [561, 1105, 41041, 825265, 321197185, 9746347772161, 1590231231043178376951698401]
STRONG_PSEUDOPRIMES = [2047, 1373653, 25326001, 3215031751, 3474749660383, 341550071728321, 318665857834031151167461]


def _by_division(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def test_is_prime_agrees_with_division() -> None:
    assert [n for n in range(-5, 3000) if is_prime(n)] == [n for n in range(-5, 3000) if _by_division(n)]


@pytest.mark.parametrize("number", CARMICHAEL + STRONG_PSEUDOPRIMES)
def test_composites_that_fool_weak_tests_are_found(number: int) -> None:
    assert not is_prime(number)


def test_known_primes_and_their_products() -> None:
    known = [2**127 - 1, 2**521 - 1, 2**255 - 19, 2**1279 - 1]
    assert all(is_prime(prime) for prime in known)
    assert not is_prime(known[0] * known[1])
    assert not is_prime(known[2] ** 2)


def test_bases_come_from_the_operating_system_and_every_round_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds: list[int] = []

    def fake(bound: int) -> int:
        bounds.append(bound)
        return 5

    monkeypatch.setattr(primes, "system_below", fake)
    assert is_prime(2**127 - 1)
    assert bounds == [2**127 - 4] * 40
    monkeypatch.setattr("gmpy2.is_prime", lambda *_: True)  # as if somebody had fooled the first test
    assert not is_prime(2**128 - 1)


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 4, 9, 10, 25, 26, 49, 50, 121, 122, 1000])
def test_small_primes(limit: int) -> None:
    assert small_primes(limit).tolist() == [n for n in range(limit) if _by_division(n)]


def test_product_of_primes_is_that_of_small_primes() -> None:
    assert product_of_primes(1 << 10) == math.prod(small_primes(1 << 10).tolist())


def test_may_be_prime_rejects_by_division_and_by_fermat() -> None:
    divisors = product_of_primes(100)
    assert may_be_prime(2**127 - 1, divisors)
    assert not may_be_prime(97 * (2**61 - 1), divisors)
    assert not may_be_prime((2**61 - 1) * (2**89 - 1) * 1009, divisors)
    assert not may_be_prime(101 * 103, divisors)  # beyond the divisors
    assert not may_be_prime(561, divisors)  # passes Fermat's test


def test_classes_are_narrowed_to_odd_numbers() -> None:
    assert primes._odd_class((2, 5)) == (7, 10)
    assert primes._odd_class((3, 5)) == (3, 10)
    assert primes._odd_class((-1, 4)) == (3, 4)
    assert primes._odd_class((0, 1)) == (1, 2)


@settings(max_examples=60, deadline=None)
@given(st.integers(8, 160))
def test_length_and_top_bits(bits: int) -> None:
    prime = random_prime(bits)
    assert is_prime(prime)
    assert prime >> (bits - 2) == 3
    assert (prime * random_prime(bits)).bit_length() == 2 * bits


@settings(max_examples=60, deadline=None)
@given(st.integers(40, 128), st.integers(1, 5000), st.integers(-5000, 5000))
def test_residue_class(bits: int, modulus: int, residue: int) -> None:
    if math.gcd(residue, modulus) != 1:
        with pytest.raises(ConfigError, match="at most one prime"):
            random_prime(bits, congruent=(residue, modulus))
        return
    prime = random_prime(bits, congruent=(residue, modulus))
    assert is_prime(prime)
    assert (prime - residue) % modulus == 0
    assert prime >> (bits - 2) == 3


def test_a_large_prime_can_be_made_to_divide_p_minus_one() -> None:
    alpha = random_prime(100)
    prime = random_prime(256, congruent=(1 + 2 * alpha, 4 * alpha))
    assert (prime - 1) % alpha == 0
    assert prime % 4 == 3
    assert prime >> 254 == 3


def test_every_prime_is_equally_likely_and_a_search_upwards_would_not_be() -> None:
    wanted = [n for n in range(3 << 10, 1 << 12) if _by_division(n)]
    draws = 60 * len(wanted)
    drawn = Counter(random_prime(12) for _ in range(draws))
    assert set(drawn) <= set(wanted)
    assert stats.chisquare([drawn[prime] for prime in wanted]).pvalue > 1e-9
    gaps = [
        b - a for a, b in zip([wanted[-1] - (1 << 10), *wanted], wanted, strict=False)
    ]  # what a search would weigh by
    biased = [draws * gap / sum(gaps) for gap in gaps]
    assert stats.chisquare(biased).pvalue < 1e-6


def test_bad_requests() -> None:
    with pytest.raises(ConfigError, match="bits=7 >= 8"):
        random_prime(7)
    with pytest.raises(ConfigError, match="smaller modulus"):
        random_prime(32, congruent=(1, 1 << 30))
    with pytest.raises(ConfigError, match="m >= 1"):
        random_prime(32, congruent=(1, 0))
