"""Signatures of what clients and key holders say: Ed25519 (RFC 8032), by keys that can't sign just anything.

A client's lasting identity is such a key in a file of OpenSSH's (``tacit keys identity``, ``ssh-keygen -t ed25519``); a
list of clients is a file with their public halves, one per line, as ``ssh-keygen`` writes them.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit.errors import KeysError

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


def new_identity(name: str) -> tuple[bytes, bytes]:
    """Return a new identity as two files: the private half, and the line that others list it by."""
    made = Ed25519PrivateKey.generate()
    secret = made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    line = made.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return secret, line + b" " + name.encode() + b"\n"


def read_identity(data: bytes, *, where: str) -> Ed25519PrivateKey:
    """Return the lasting identity in a file; ``where`` begins the error."""
    try:
        found = serialization.load_ssh_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeysError(
            f"{where}: expected an Ed25519 key without a passphrase, as `tacit keys identity` makes it, or "
            "`ssh-keygen -t ed25519 -N ''`"
        ) from error
    if not isinstance(found, Ed25519PrivateKey):
        raise KeysError(f"{where}: expected an Ed25519 key, as `tacit keys identity` or `ssh-keygen -t ed25519` make")
    return found


def read_identities(text: str, *, where: str) -> frozenset[bytes]:
    """Return the identities that a list names, one per line; ``where`` begins the error."""
    lines = [line.strip() for line in text.splitlines()]
    return frozenset(_listed(line, where) for line in lines if line and not line.startswith("#"))


def _listed(line: str, where: str) -> bytes:
    try:
        found = serialization.load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise KeysError(f"{where}: expected a public key on every line, got {line[:40]!r}") from error
    if not isinstance(found, Ed25519PublicKey):
        raise KeysError(f"{where}: expected Ed25519 keys, got {line[:40]!r}")
    return found.public_bytes_raw()
