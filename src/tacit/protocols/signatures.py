"""Signatures of what clients and key holders say: Ed25519 (RFC 8032), by keys that can't sign just anything."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

PUBLIC_BYTES, SIGNATURE_BYTES = 32, 64

_PRIME = 2**255 - 19
_HEIGHT = 2**255 - 1  # without the sign of the other coordinate
_EIGHTH = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826  # of a point of order 8
_SMALL_ORDER = {0, 1, _EIGHTH, _PRIME - _EIGHTH, _PRIME - 1, _PRIME, _PRIME + 1}


def verified(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether a signature is right, by a key of the group's full order: others sign anything."""
    if int.from_bytes(public, "little") & _HEIGHT in _SMALL_ORDER:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
