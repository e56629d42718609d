"""Signatures, and keys that sign anything."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.protocols import signatures


def test_a_signature_is_of_one_message_and_one_key() -> None:
    key, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    public, signature = key.public_key().public_bytes_raw(), key.sign(b"yes")
    assert signatures.verified(public, signature, b"yes")
    assert not signatures.verified(public, signature, b"no")
    assert not signatures.verified(other.public_key().public_bytes_raw(), signature, b"yes")
    assert not signatures.verified(public[:-1], signature, b"yes")
    assert not signatures.verified(public, signature[:-1], b"yes")


@pytest.mark.parametrize("height", sorted(signatures._SMALL_ORDER))
@pytest.mark.parametrize("sign", [0, 1])
def test_a_key_that_signs_anything_signs_nothing(height: int, sign: int) -> None:
    """Points of small order: with an all-zero signature they verify for a part of all messages."""
    public = (height | sign << 255).to_bytes(32, "little")
    tried = [bytes(64), (1).to_bytes(64, "little")]
    assert not any(signatures.verified(public, s, bytes([m])) for s in tried for m in range(64))
