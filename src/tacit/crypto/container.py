r"""Files of ciphertexts: what is inside, which public key it belongs to, and a checksum around both.

::

    magic "TACITCT\n" | version u8 | header length u32 | body length u64 | header | body | SHA-256    (big-endian)

The header is a JSON object. The checksum finds accidents; it is no signature, and whoever carries the file can replace
it. The key inside is therefore a convenience for adding, never a reason to trust: readers pin its fingerprint.
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
from tacit.errors import CipherError, StorageError, WireError

MAGIC = b"TACITCT\n"
VERSION = 1

_FIXED = struct.Struct(">8sBIQ")
_DIGEST_BYTES = 32
_LONGEST_HEADER = 1 << 20
_LONGEST_BODY = 1 << 36


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


def pack(header: dict[str, Any], body: bytes) -> bytes:
    """Return the bytes of a file."""
    text = json.dumps(header, separators=(",", ":")).encode()
    packed = b"".join((_FIXED.pack(MAGIC, VERSION, len(text), len(body)), text, body))
    return packed + hashlib.sha256(packed).digest()


def read(path: Path, *, holds: str) -> Contents:
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
