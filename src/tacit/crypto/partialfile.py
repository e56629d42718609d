"""Partial decryptions at rest, on their way from a share's holder to whoever combines."""

from __future__ import annotations

from pathlib import Path

from tacit.crypto import container
from tacit.crypto.cipherfile import key_header, key_of
from tacit.crypto.threshold import PartialDecryption, ThresholdPublic
from tacit.errors import CipherError

HOLDS = "partial decryption"


def pack(public: ThresholdPublic, partial: PartialDecryption) -> bytes:
    """Return the bytes of a file."""
    return container.pack(key_header(public, HOLDS), partial.to_bytes())


def read(path: Path, public: ThresholdPublic, *, insecure_key_size: bool = False) -> PartialDecryption:
    """Read a partial decryption under a key and check it; whether it is right shows when it is combined."""
    contents = container.read(path, holds=HOLDS)
    key_of(path, contents, expected=public, insecure_key_size=insecure_key_size)
    try:
        return PartialDecryption.from_bytes(contents.body, public)
    except CipherError as error:
        raise CipherError(f"{path}: {error}") from error
