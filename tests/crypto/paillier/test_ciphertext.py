from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tacit.crypto.paillier import Ciphertext
from tacit.errors import CipherError, ConfigError
from tests.crypto.paillier.common import (
    OTHER_PRIVATE,
    OTHER_PUBLIC,
    PRIVATE,
    PUBLIC,
    P,
    Q,
    ciphertext,
    number,
    subgroup_pair,
    textbook_decrypt,
    textbook_encrypt,
)

HALF = PUBLIC.n // 2
INTEGERS = st.integers(-HALF, HALF)
SMALL = st.integers(-(2**64), 2**64)


@given(INTEGERS)
def test_the_textbook_decrypts_what_both_keys_encrypt(message: int) -> None:
    assert textbook_decrypt(number(PUBLIC.encrypt(message))) == message
    assert textbook_decrypt(number(PRIVATE.encrypt(message))) == message


@given(INTEGERS, st.integers(1, PUBLIC.n - 1).filter(lambda r: math.gcd(r, PUBLIC.n) == 1))
def test_what_the_textbook_encrypts_is_decrypted(message: int, r: int) -> None:
    assert PRIVATE.decrypt(ciphertext(textbook_encrypt(message, r))) == message


@given(SMALL, SMALL, SMALL)
def test_sums_are_those_of_the_integers_in_any_order(a: int, b: int, c: int) -> None:
    x, y, z = (PUBLIC.encrypt(message) for message in (a, b, c))
    assert number((x + y) + z) == number(x + (y + z)) == number(z + y + x)
    assert PRIVATE.decrypt(x + y + z) == a + b + c
    assert number(x + y) == number(x) * number(y) % PUBLIC.square
    assert PRIVATE.decrypt(x - y) == a - b


@given(SMALL, SMALL)
def test_known_integers_add_and_multiply(message: int, k: int) -> None:
    encrypted = PUBLIC.encrypt(message)
    assert PRIVATE.decrypt(encrypted + k) == PRIVATE.decrypt(k + encrypted) == message + k
    assert PRIVATE.decrypt(encrypted - k) == message - k
    assert PRIVATE.decrypt(encrypted * k) == PRIVATE.decrypt(k * encrypted) == message * k
    assert PRIVATE.decrypt(-encrypted) == -message


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-50, 50))
def test_multiplication_distributes(a: int, b: int, k: int) -> None:
    x, y = PUBLIC.encrypt(a), PUBLIC.encrypt(b)
    assert PRIVATE.decrypt((x + y) * k) == PRIVATE.decrypt(x * k + y * k) == (a + b) * k


def test_numpy_integers_count_as_integers() -> None:
    encrypted = PUBLIC.encrypt(np.int64(-7))
    for k in (np.int8(3), np.uint64(3), np.int64(3)):
        assert PRIVATE.decrypt(encrypted + k) == PRIVATE.decrypt(k + encrypted) == -4
        assert PRIVATE.decrypt(encrypted * k) == PRIVATE.decrypt(k * encrypted) == -21
        assert PRIVATE.decrypt(encrypted - k) == -10


@pytest.mark.parametrize("other", [1.5, "3", None, np.float64(2.0)])
def test_arithmetic_with_anything_else_is_a_type_error(other: object) -> None:
    encrypted = PUBLIC.encrypt(1)
    with pytest.raises(TypeError):
        encrypted + other  # type: ignore[operator]
    with pytest.raises(TypeError):
        encrypted * other  # type: ignore[operator]


def test_the_largest_integers_fit_and_the_next_do_not() -> None:
    for largest in (HALF, -HALF):
        assert PRIVATE.decrypt(PUBLIC.encrypt(largest)) == largest
    for beyond in (HALF + 1, -HALF - 1, PUBLIC.n):
        with pytest.raises(ConfigError, match="does not fit a key of 256 bits"):
            PUBLIC.encrypt(beyond)
        with pytest.raises(ConfigError, match="does not fit"):
            PUBLIC.encrypt(1) + beyond
        with pytest.raises(ConfigError, match="does not fit"):
            PUBLIC.encrypt(1) * beyond


def test_sums_beyond_half_of_n_wrap_around() -> None:
    assert PRIVATE.decrypt(PUBLIC.encrypt(HALF) + 1) == -HALF


def test_ciphertexts_of_different_keys_do_not_add() -> None:
    with pytest.raises(CipherError, match="different keys"):
        PUBLIC.encrypt(1) + OTHER_PUBLIC.encrypt(1)


def test_another_private_key_refuses() -> None:
    with pytest.raises(CipherError, match="Use the key it was made with"):
        OTHER_PRIVATE.decrypt(PUBLIC.encrypt(1))


def test_one_message_never_has_the_same_ciphertext_twice() -> None:
    both = [number(key.encrypt(7)) for key in (PUBLIC, PRIVATE) for _ in range(200)]
    assert len(set(both)) == 400


def test_a_rerandomised_ciphertext_differs_and_decrypts_alike() -> None:
    encrypted = PUBLIC.encrypt(-5)
    again = [encrypted.rerandomised() for _ in range(20)]
    assert len({number(c) for c in [encrypted, *again]}) == 21
    assert {PRIVATE.decrypt(c) for c in again} == {-5}


@pytest.mark.parametrize("message", [0, 1, HALF])
def test_ciphertexts_of_one_message_look_uniform(message: int) -> None:
    rows = np.concatenate([PUBLIC.encrypt(message).row for _ in range(1500)])
    low = np.bincount(rows[:, -8:].reshape(-1), minlength=256)  # the highest bytes follow n squared
    assert stats.chisquare(low).pvalue > 1e-9
    for prime in (3, 5, 7, 11, 13):
        residues = np.bincount([int.from_bytes(row.tobytes(), "big") % prime for row in rows], minlength=prime)
        assert stats.chisquare(residues).pvalue > 1e-9
    highest = np.bincount([int.from_bytes(row.tobytes(), "big") * 20 // PUBLIC.square for row in rows], minlength=20)
    assert stats.chisquare(highest).pvalue > 1e-9


@pytest.mark.parametrize("value", [0, P, Q, 3 * P, P * Q, P * P, 5 * P * Q])
def test_what_no_encryption_gives_is_not_decrypted(value: int) -> None:
    with pytest.raises(CipherError, match="not made by this public key"):
        PRIVATE.decrypt(ciphertext(value))


def test_noise_of_another_group_than_a_subgroup_keys_is_detected() -> None:
    public, private = subgroup_pair()
    own = public.encrypt(11)
    assert private.decrypt(own) == 11
    foreign = pow(3, public.n, public.square)  # an n-th residue, and so good noise for a standard key
    forged = ciphertext(number(own) * foreign % public.square, key=public)
    with pytest.raises(CipherError, match="not made by this public key"):
        private.decrypt(forged)


def test_the_labs_five_operations_on_long_integers() -> None:
    public, private = subgroup_pair()
    for bits in (10, 100, 1000):
        a, b = (1 << bits) - 1, -(1 << (bits - 1))
        x, y = public.encrypt(a), private.encrypt(b)
        assert (private.decrypt(x), private.decrypt(x + y), private.decrypt(x + 5)) == (a, a + b, a + 5)
        assert private.decrypt(y * 3) == 3 * b


def test_ciphertexts_are_compared_by_what_they_are_and_not_by_chance() -> None:
    encrypted = PUBLIC.encrypt(1)
    assert encrypted != Ciphertext(key=PUBLIC, row=encrypted.row)  # equal bytes say nothing that == should promise
