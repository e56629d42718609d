"""Shares, seals and agreement, beside what others say they are."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import CipherError, KeysError
from tacit.protocols.masks import secrets
from tacit.protocols.masks.secrets import Identity

_LOW_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    (2**255 - 19 - 1).to_bytes(32, "little"),
    (2**255 - 19).to_bytes(32, "little"),
    (2**255 - 18).to_bytes(32, "little"),
]


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_any_threshold_of_shares_gives_the_secrets(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 60))
    threshold = data.draw(st.integers(1, count))
    points = data.draw(st.permutations(range(1, count + 1)))[:threshold]
    coefficients = secrets.polynomials(hashlib.sha256(bytes([count, threshold])).digest(), threshold, 2)
    shares = secrets.shares_of(coefficients, count)
    own, others = secrets.constants(coefficients)
    assert secrets.recovered(points, [shares[p - 1][:32] for p in points]) == own
    assert secrets.recovered(points, [shares[p - 1][32:] for p in points]) == others
    if threshold > 1:
        assert secrets.recovered(points[1:], [shares[p - 1][:32] for p in points[1:]]) != own


def test_shares_are_values_of_the_polynomial_modulo_a_prime() -> None:
    coefficients = secrets.polynomials(bytes(32), 4, 1)
    assert (coefficients < 2**31 - 1).all()
    for point, share in enumerate(secrets.shares_of(coefficients, 9), start=1):
        exact = [
            sum(int(c) * point**power for power, c in enumerate(column)) % (2**31 - 1) for column in coefficients.T
        ]
        assert np.frombuffer(share, "<u4").tolist() == exact


def test_two_clients_agree_by_hkdf_and_a_run_has_its_own_key() -> None:
    one, other = Identity(secret=bytes(32)), Identity(secret=b"\x01" * 32)
    public = other.agreeing.public_key().public_bytes_raw()
    run = b"\x07" * 32
    agreed = one.agreed(public, run)
    assert agreed == other.agreed(one.agreeing.public_key().public_bytes_raw(), run) != one.agreed(public, bytes(32))
    shared = one.agreeing.exchange(X25519PublicKey.from_public_bytes(public))
    info = b"tacit masks 1\nuse\nfact"
    hkdf = HKDF(algorithm=hashes.SHA256(), length=32, salt=run, info=info).derive(shared)
    assert secrets.expanded(agreed, b"use", b"fact") == hkdf


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), *_LOW_ORDER])
def test_keys_that_are_short_or_share_nothing_are_refused(key: bytes) -> None:
    with pytest.raises(KeysError, match="no key that can be agreed with"):
        Identity(secret=b"\x02" * 32).agreed(key, bytes(32))


def test_a_clients_own_key_is_refused() -> None:
    own = Identity(secret=bytes(32))
    with pytest.raises(KeysError, match="own key"):
        own.agreed(own.agreeing.public_key().public_bytes_raw(), bytes(32))


def test_keys_are_signed_for_what_the_client_states() -> None:
    entry = Identity(secret=bytes(32)).entry(b"this run")
    assert secrets.checked_entry(entry, b"this run") == (entry[:32], entry[32:64])
    for wrong, stated in ((entry, b"another"), (entry[:-1], b"this run"), (bytes(32) + entry[32:], b"this run")):
        with pytest.raises(KeysError, match="not signed"):
            secrets.checked_entry(wrong, stated)


def test_a_seal_opens_under_its_key_alone() -> None:
    message = secrets.sealed(bytes(32), b"x" * 64)
    assert len(message) == secrets.SEALED_BYTES
    assert secrets.unsealed(bytes(32), message) == b"x" * 64
    for key, wrong in ((b"\x01" * 32, message), (bytes(32), message[:-1] + b"?")):
        with pytest.raises(CipherError):
            secrets.unsealed(key, wrong)
