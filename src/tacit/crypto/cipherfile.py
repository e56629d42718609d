"""Encrypted vectors at rest: a file carries the vector and the public key it was made with.

With the key inside, whoever adds vectors needs no key file. It proves nothing about whose key it is: hand ``expected``
to :func:`read` wherever that matters. (For adding it does not: a sum under a substituted key is of no use to its
readers, who find the key's fingerprint to be another.)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.crypto import container
from tacit.crypto.keykinds import KINDS, Public, kind_of, length_of, paillier_key
from tacit.crypto.paillier import CiphertextVector
from tacit.errors import CipherError, KeysError

HOLDS = "encrypted vector"


@dataclass(frozen=True, kw_only=True)
class EncryptedFile:
    """An encrypted vector that was read from a file and checked.

    Attributes:
        path: where it lies.
        public: the key that travelled with it, a threshold key with all that combining takes.
        vector: the vector, under that key.
        digest: equal for equal files.
    """

    path: Path
    public: Public
    vector: CiphertextVector
    digest: bytes


def pack(public: Public, vector: CiphertextVector) -> bytes:
    """Return the bytes of a file."""
    return container.pack(key_header(public, HOLDS), vector.to_bytes())


def read(
    path: Path, *, expected: Public | None = None, insecure_key_size: bool = False, units: bool = True
) -> EncryptedFile:
    """Read an encrypted vector and check all of it.

    Args:
        path: the file.
        expected: the key it has to be of; without one, the key inside is taken.
        insecure_key_size: accept keys of less than 2048 bits, for experiments.
        units: whether to look for forged ciphertexts now, or in the sum of many.
    """
    contents = container.read(path, holds=HOLDS)
    public = key_of(path, contents, expected=expected, insecure_key_size=insecure_key_size)
    try:
        vector = CiphertextVector.from_bytes(contents.body, paillier_key(public), units=units)
    except CipherError as error:
        raise CipherError(f"{path}: {error}") from error
    return EncryptedFile(path=path, public=public, vector=vector, digest=contents.digest)


def key_header(public: Public, holds: str) -> dict[str, Any]:
    """Return the header of a file that belongs to a public key."""
    return {"holds": holds, "key": {"kind": kind_of(public).name, "public": public.to_dict()}}


def key_of(path: Path, contents: container.Contents, *, expected: Public | None, insecure_key_size: bool) -> Public:
    """Return the public key that travelled with a file, after checking it as a key file's."""
    named = contents.header.get("key")
    kind = KINDS.get(str(named.get("kind"))) if isinstance(named, dict) else None
    if not isinstance(named, dict) or kind is None or kind.role != "public":
        raise CipherError(f"{path} carries no public key. It was not made by Tacit.")
    try:
        public = kind.public_from_dict(named.get("public", {}))
    except KeysError as error:
        raise CipherError(f"The key in {path} can't be used: {error}") from error
    if expected is not None and public != expected:
        raise CipherError(
            f"{path} is of key {public.fingerprint[:23]}…, expected {expected.fingerprint[:23]}… . Use the key it was "
            "made with, or ask its sender to encrypt with yours."
        )
    if public.insecure and not insecure_key_size:
        raise CipherError(
            f"{path} is of a key of {length_of(public)} bits, expected at least 2048. For an experiment say "
            "--insecure-key-size (insecure_key_size=True)."
        )
    return public
