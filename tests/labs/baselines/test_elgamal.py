from __future__ import annotations

from collections.abc import Callable

import pytest

from tacit.crypto.primes import is_prime, safe_prime
from tacit_labs.baselines.elgamal import (
    Modulus,
    TextbookElGamal,
    a_key_each,
    by_factoring,
    by_safe_prime,
    expected_candidates,
    one_key,
    passes_miller_rabin,
    power,
    safe_prime_seconds,
)


@pytest.mark.parametrize("bits", [1, 16, 64, 300])
def test_a_power_bit_by_bit_is_pythons(bits: int) -> None:
    modulus = (1 << bits) + 7
    for base, exponent in ((2, 0), (3, 1), (5, modulus - 1), (modulus - 1, modulus // 3)):
        assert power(base, exponent, modulus) == pow(base, exponent, modulus)


@pytest.mark.parametrize("made", [by_factoring, by_safe_prime])
@pytest.mark.parametrize("bits", [8, 16, 40])
def test_both_key_generations_find_a_prime_of_the_length_and_a_primitive_root(
    made: Callable[[int], Modulus], bits: int
) -> None:
    import sympy

    found = made(bits)
    assert found.p.bit_length() == bits
    assert is_prime(found.p)
    assert sympy.n_order(found.g, found.p) == found.p - 1
    if made is by_safe_prime:
        assert is_prime(found.p // 2)


@pytest.mark.parametrize("made", [by_factoring, by_safe_prime])
def test_elgamal_decrypts_and_multiplies(made: Callable[[int], Modulus]) -> None:
    key = TextbookElGamal.generate(made(64))
    left, right = key.encrypt(5), key.encrypt(24)
    assert left != key.encrypt(5)
    assert key.decrypt(left) == 5
    assert key.decrypt(key.multiply(left, right)) == key.decrypt(left) * key.decrypt(right) == 120


def test_a_batch_comes_back_with_a_key_each_and_with_one_key() -> None:
    messages = [1, 123456, 7]
    assert a_key_each(messages, 32) == one_key(messages, 32) == messages
    assert a_key_each(messages, 32, by_factoring) == messages


def test_the_private_exponent_is_not_shown() -> None:
    key = TextbookElGamal.generate(Modulus(p=safe_prime(64), g=4))
    assert str(key.x) not in repr(key)


def test_the_search_for_a_safe_prime_needs_as_many_candidates_as_there_are_odd_numbers_to_one() -> None:
    odd = range((1 << 14) + 1, 1 << 15, 2)
    good = sum(is_prime(q, rounds=1) and is_prime(2 * q + 1, rounds=1) for q in odd)
    assert expected_candidates(16) == pytest.approx(len(odd) / good, rel=0.15)


def test_miller_rabin_passes_primes_and_few_others() -> None:
    assert all(passes_miller_rabin(prime) for prime in (5, 97, 2**61 - 1))
    assert sum(passes_miller_rabin(561) for _ in range(40)) < 20  # a Carmichael number fools at most a quarter


def test_a_search_takes_time() -> None:
    assert safe_prime_seconds(64, sample=5) > 0
