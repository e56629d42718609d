from __future__ import annotations

import pytest

from tacit.crypto.primes import is_prime, safe_prime
from tacit_labs.harness.textbook import (
    TextbookElGamal,
    TextbookPaillier,
    expected_candidates,
    passes_miller_rabin,
    safe_prime_seconds,
)


@pytest.fixture(scope="module")
def paillier() -> TextbookPaillier:
    return TextbookPaillier.generate(128)


@pytest.mark.parametrize(("a", "b"), [(0, 1), (7, 5), (-3, 4), (2**60, 2**59 - 1), (-(2**60), 3)])
def test_paillier_adds_subtracts_and_multiplies(paillier: TextbookPaillier, a: int, b: int) -> None:
    left, right = paillier.encrypt(a), paillier.encrypt(b)
    assert paillier.decrypt(left) == a
    assert paillier.decrypt(paillier.add(left, right)) == a + b
    assert paillier.decrypt(paillier.add_constant(left, b)) == a + b
    assert paillier.decrypt(paillier.multiply_constant(left, b)) == a * b
    assert paillier.decrypt(paillier.subtract(left, right)) == a - b


def test_paillier_rerandomises_without_changing_the_number(paillier: TextbookPaillier) -> None:
    made = paillier.encrypt(12)
    other = paillier.rerandomise(made)
    assert other != made
    assert paillier.decrypt(other) == 12


def test_elgamal_decrypts_and_multiplies() -> None:
    key = TextbookElGamal.generate(safe_prime(64), 4)
    left, right = key.encrypt(6), key.encrypt(7)
    assert left != key.encrypt(6)
    assert key.decrypt(left) == 6
    assert key.decrypt(key.multiply(left, right)) == 42


def test_the_search_for_a_safe_prime_needs_as_many_candidates_as_there_are_odd_numbers_to_one() -> None:
    odd = range((1 << 14) + 1, 1 << 15, 2)
    good = sum(is_prime(q, rounds=1) and is_prime(2 * q + 1, rounds=1) for q in odd)
    assert expected_candidates(16) == pytest.approx(len(odd) / good, rel=0.15)


def test_miller_rabin_passes_primes_and_few_others() -> None:
    assert all(passes_miller_rabin(prime) for prime in (5, 97, 2**61 - 1))
    assert sum(passes_miller_rabin(561) for _ in range(40)) < 20  # a Carmichael number fools at most a quarter


def test_a_search_takes_time() -> None:
    assert safe_prime_seconds(64, sample=5) > 0
