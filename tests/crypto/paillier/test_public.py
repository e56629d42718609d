from __future__ import annotations

import hashlib
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.crypto.paillier import Layout, PublicKey
from tacit.crypto.paillier.public import ASSUMPTIONS, exponent_bits
from tacit.crypto.ring import to_integers
from tacit.errors import ConfigError, KeysError
from tests.crypto.paillier.common import OTHER_PUBLIC, PRIVATE, PUBLIC, P, Q, subgroup_pair, textbook_decrypt

N, SQUARE = PUBLIC.n, PUBLIC.square


@pytest.mark.parametrize(
    "h", [1, SQUARE - 1, 0, -1, N, N - 1, N + 1, 2 * N - 1, 1 + 7 * N, P, 5 * Q, SQUARE, SQUARE + 5]
)
def test_a_trivial_h_or_one_that_is_no_unit_is_refused(h: int) -> None:
    with pytest.raises(KeysError, match="trivial or no unit"):
        PublicKey(n=N, h=h)


def test_an_h_of_the_wrong_character_is_refused() -> None:
    wrong = next(x for x in range(2, 100) if pow(x, (P - 1) // 2, P) != 1 and pow(x, (Q - 1) // 2, Q) == 1)
    with pytest.raises(KeysError, match="no n-th residue"):
        PublicKey(n=N, h=wrong)


@pytest.mark.parametrize("n", [P * P, P, 2 * P, 4 * P * Q, 0, 1, -P * Q, 101 * 103, (1 << 62) + 1])
def test_a_modulus_that_is_a_square_a_prime_even_or_tiny_is_refused(n: int) -> None:
    with pytest.raises(KeysError, match="no product of two different odd primes"):
        PublicKey(n=n, h=5)


@pytest.mark.parametrize("setting", [{"kind": "fast"}, {"exponents": "tiny"}])
def test_unknown_kinds_are_refused(setting: dict[str, str]) -> None:
    with pytest.raises(KeysError, match="Unknown kind"):
        replace(PUBLIC, **setting)  # type: ignore[arg-type]


def test_noise_is_an_encryption_of_zero_and_a_power_of_h() -> None:
    for value in to_integers(PUBLIC.take(20)):
        assert textbook_decrypt(value) == 0
        assert pow(value, math.lcm(P - 1, Q - 1), SQUARE) == 1


def test_the_exponent_is_half_as_long_as_the_key_and_short_only_on_request() -> None:
    assert PUBLIC.table.bits == 128
    assert exponent_bits(2048, "standard", "half") == 1024
    assert exponent_bits(3072, "standard", "half") == 1536
    assert exponent_bits(2048, "subgroup", "half") == 448
    assert exponent_bits(3072, "subgroup", "half") == 512
    assert exponent_bits(2048, "standard", "short") == 256
    public, _ = subgroup_pair()
    assert public.table.bits == 320


@pytest.mark.parametrize(
    ("bits", "kind", "exponents"),
    [(2048, "subgroup", "short"), (1536, "subgroup", "half"), (1536, "standard", "short"), (2048, "other", "half")],
)
def test_a_kind_of_exponent_that_does_not_exist_is_refused(bits: int, kind: str, exponents: str) -> None:
    with pytest.raises(ConfigError):
        exponent_bits(bits, kind, exponents)  # type: ignore[arg-type]


def test_every_kind_of_key_states_its_assumption() -> None:
    assert PUBLIC.assumption == ASSUMPTIONS["standard", "half"]
    assert "not a standard assumption" in subgroup_pair()[0].assumption


def test_the_fingerprint_is_a_digest_of_everything_in_the_key() -> None:
    text = f"tacit paillier public key 1\nn {N:x}\nh {PUBLIC.h:x}\nkind standard\nexponents half\n"
    assert PUBLIC.fingerprint.replace(":", "") == hashlib.sha256(text.encode()).hexdigest()
    subgroup, _ = subgroup_pair()
    others = [
        replace(PUBLIC, h=PUBLIC.h * PUBLIC.h % SQUARE),
        OTHER_PUBLIC,
        subgroup,
        replace(subgroup, kind="standard"),
        replace(subgroup, kind="standard", exponents="short"),
    ]
    assert len({key.fingerprint for key in [PUBLIC, *others]}) == 6


@pytest.mark.parametrize(
    ("kind", "exponents", "words"),
    [
        ("subgroup", "half", "Subgroup keys are defined for 1024, 2048"),
        ("standard", "short", "Short exponents are defined for 1024, 2048"),
        ("subgroup", "short", "'subgroup' with 'short' exponents do not exist"),
    ],
)
def test_a_key_that_nothing_can_be_encrypted_with_is_refused_when_it_comes(
    kind: str, exponents: str, words: str
) -> None:
    """Such a key, of 256 bits, was taken from anyone, and failed when the first vector was encrypted."""
    with pytest.raises(KeysError, match=words):
        replace(PUBLIC, kind=kind, exponents=exponents)  # type: ignore[arg-type]
    with pytest.raises(KeysError, match=words):
        PublicKey.from_dict(PUBLIC.to_dict() | {"kind": kind, "exponents": exponents})


def test_short_keys_are_marked() -> None:
    assert PUBLIC.insecure


@given(st.integers(-(N // 2), N // 2))
def test_residues_stand_for_signed_integers(message: int) -> None:
    residue = PUBLIC.residue(message)
    assert 0 <= residue < N
    assert PUBLIC.signed(residue) == message


def test_a_vector_chooses_its_layout() -> None:
    assert PUBLIC.layout(np.zeros(5, np.float32)) == Layout.floats(length=5, clip=1.0, key_bits=256)
    integers = PUBLIC.layout([1, 2, 3])
    assert (integers.step, integers.bound) == (None, 1 << 31)


@pytest.mark.parametrize("values", [[], 2.5, [[1.0]], np.array(3), None])
def test_what_is_no_vector_is_refused(values: object) -> None:
    with pytest.raises(ConfigError):
        PUBLIC.encrypt(values)  # type: ignore[call-overload]


def test_a_layout_for_keys_of_another_length_is_refused() -> None:
    layout = Layout.floats(length=2, clip=1.0, key_bits=512)
    with pytest.raises(ConfigError, match="for keys of 512 bits"):
        PUBLIC.encrypt([0.5, 0.5], layout)


def test_workers_change_nothing_of_what_is_encrypted() -> None:
    values = np.linspace(-1, 1, 50)
    for workers in (1, 2, None):
        for key in (PUBLIC, PRIVATE):
            decrypted = PRIVATE.decrypt(key.encrypt(values, workers=workers), workers=workers)
            assert np.abs(decrypted - values).max() < 1e-7
