from __future__ import annotations

import pytest

from tacit.crypto.primes import is_prime, safe_prime
from tacit_labs.baselines.elgamal import (
    TextbookElGamal,
    expected_candidates,
    passes_miller_rabin,
    safe_prime_seconds,
)


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
