r"""Ciphertexts at rest: encrypted vectors, and partial decryptions on their way to whoever combines them.

A file says what is inside and which public key it belongs to, with a checksum around both::

    magic "TACITCT\n" | version u8 | header length u32 | body length u64 | header | body | SHA-256    (big-endian)

The header is a JSON object. The checksum finds accidents; it is no signature, and whoever carries the file can replace
it. With the key inside, whoever adds vectors needs no key file; it proves nothing about whose key it is, so hand
``expected`` to :func:`read` wherever that matters. (For adding it does not: a sum under a substituted key is of no use
to its readers, who find the key's fingerprint to be another.)
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit import foreign
from tacit.crypto.keyfile import KINDS, Public, kind_of, length_of, paillier_key
from tacit.crypto.paillier import CiphertextVector
from tacit.crypto.threshold import PartialDecryption, ThresholdPublic
from tacit.errors import CipherError, KeysError, StorageError, WireError

MAGIC = b"TACITCT\n"
VERSION = 1
VECTOR = "encrypted vector"  # what a file holds
PARTIAL = "partial decryption"

_FIXED = struct.Struct(">8sBIQ")
_DIGEST_BYTES = 32
_LONGEST_HEADER = 1 << 20
_LONGEST_BODY = 1 << 36


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
    """Return the bytes of the file of an encrypted vector, with the public key it was made with."""
    return wrapped(key_header(public, VECTOR), vector.to_bytes())


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
    contents = unwrapped(path, holds=VECTOR)
    public = key_of(path, contents, expected=expected, insecure_key_size=insecure_key_size)
    try:
        vector = CiphertextVector.from_bytes(contents.body, paillier_key(public), units=units)
    except CipherError as error:
        raise CipherError(f"{path}: {error}") from error
    return EncryptedFile(path=path, public=public, vector=vector, digest=contents.digest)


def key_header(public: Public, holds: str) -> dict[str, Any]:
    """Return the header of a file that belongs to a public key."""
    return {"holds": holds, "key": {"kind": kind_of(public).name, "public": public.to_dict()}}


def key_of(path: Path, contents: Contents, *, expected: Public | None, insecure_key_size: bool) -> Public:
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


def pack_partial(public: ThresholdPublic, partial: PartialDecryption) -> bytes:
    """Return the bytes of the file of a partial decryption."""
    return wrapped(key_header(public, PARTIAL), partial.to_bytes())


def read_partial(path: Path, public: ThresholdPublic, *, insecure_key_size: bool = False) -> PartialDecryption:
    """Read a partial decryption under a key and check it; whether it is right shows when it is combined."""
    contents = unwrapped(path, holds=PARTIAL)
    key_of(path, contents, expected=public, insecure_key_size=insecure_key_size)
    try:
        return PartialDecryption.from_bytes(contents.body, public)
    except CipherError as error:
        raise CipherError(f"{path}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a file holds.

    Attributes:
        header: named plain values.
        body: bytes whose meaning the header's ``holds`` says.
        digest: the checksum, which is equal for equal files.
    """

    header: dict[str, Any]
    body: memoryview
    digest: bytes


def wrapped(header: dict[str, Any], body: bytes) -> bytes:
    """Return the bytes of a file: a header and what it is about."""
    text = json.dumps(header, separators=(",", ":")).encode()
    packed = b"".join((_FIXED.pack(MAGIC, VERSION, len(text), len(body)), text, body))
    return packed + hashlib.sha256(packed).digest()


def unwrapped(path: Path, *, holds: str) -> Contents:
    """Read a file and check that it is whole and holds what is expected.

    Raises:
        StorageError: where it can't be read.
        CipherError: where it is no such file, cut off, too long or damaged.
    """
    try:
        with foreign.open_plain(path) as stream:
            start = stream.read(_FIXED.size)
            header_length, rest = _lengths(path, start)
            size = os.fstat(stream.fileno()).st_size
            if size != len(start) + rest:
                raise _wrong_length(path, len(start) + rest, size)
            raw = stream.read(rest + 1)
    except OSError as error:
        raise StorageError(
            f"Can't read {path}: {error.strerror or error}. Mend the path or its permissions."
        ) from error
    except MemoryError:
        raise StorageError(f"{path} has {size} bytes, more than this machine has memory for.") from None
    if len(raw) != rest:
        raise _wrong_length(path, len(start) + rest, len(start) + len(raw))
    view = memoryview(raw)
    digest = bytes(view[-_DIGEST_BYTES:])
    running = hashlib.sha256(start)
    running.update(view[:-_DIGEST_BYTES])
    if running.digest() != digest:
        raise CipherError(f"{path} is damaged: its checksum does not fit its contents. Get it anew from its sender.")
    try:
        header = foreign.json_object(view[:header_length])
    except WireError as error:
        raise CipherError(f"The header of {path} was not made by Tacit. {error}") from None
    if header.get("holds") != holds:
        raise CipherError(f"{path} holds {str(header.get('holds'))[:60]!r}, expected {holds!r}.")
    return Contents(header=header, body=view[header_length:-_DIGEST_BYTES], digest=digest)


def _lengths(path: Path, start: bytes) -> tuple[int, int]:
    """Return the header's length, and the bytes that have to follow the fixed part."""
    if start[: len(MAGIC)] != MAGIC:
        raise CipherError(f"{path} is no file of ciphertexts. Give one that `tacit encrypt` or `tacit sum` wrote.")
    if len(start) < _FIXED.size:
        raise CipherError(f"{path} is cut off after {len(start)} bytes. Get it anew from its sender.")
    _, version, header_length, body_length = _FIXED.unpack(start)
    if version != VERSION:
        raise CipherError(
            f"{path} has version {version} of ciphertext files, expected {VERSION}. Install the same version of Tacit "
            "on all sides."
        )
    if header_length > _LONGEST_HEADER or body_length > _LONGEST_BODY:
        raise CipherError(f"{path} claims a header of {header_length} and a body of {body_length} bytes: damaged.")
    return header_length, header_length + body_length + _DIGEST_BYTES


def _wrong_length(path: Path, expected: int, got: int) -> CipherError:
    what = "cut off" if got < expected else "too long"
    return CipherError(f"{path} is {what}: expected {expected} bytes, got {got}. Get it anew from its sender.")
