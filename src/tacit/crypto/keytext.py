"""The text of a key file: one JSON object with a checksum, read without trust."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit import foreign
from tacit.errors import KeysError, WireError

FORMAT = "tacit key"
VERSION = 1

_LARGEST = 1 << 20  # bytes of a file; a key of 16384 bits takes a few percent of this


def to_bytes(plain: Mapping[str, Any]) -> bytes:
    """Return the text of a file, with its checksum."""
    return (json.dumps({**plain, "checksum": checksum(plain)}, indent=2) + "\n").encode()


def load_bytes(path: Path) -> tuple[bytes, int | None]:
    """Return a file's bytes, and its mode where that means something."""
    try:
        with foreign.open_plain(path) as stream:
            status = os.fstat(stream.fileno())
            raw = stream.read(_LARGEST + 1)
    except FileNotFoundError:
        raise KeysError(f"There is no key file {path}. Make one with `tacit keys new`, or mend the path.") from None
    except OSError as error:
        raise KeysError(f"Can't read the key file {path}: {error.strerror or error}.") from error
    if len(raw) > _LARGEST:
        raise KeysError(f"{path} is longer than {_LARGEST} bytes, which no key file is.")
    return raw, status.st_mode if os.name == "posix" else None


def parse(path: Path, raw: bytes) -> dict[str, Any]:
    """Return what a file says, where it is a key file, of this version, and whole."""
    try:
        plain = foreign.json_object(raw, largest=_LARGEST)
    except WireError:
        plain = {}
    if plain.get("format") != FORMAT:
        if f'"{FORMAT}"'.encode() in raw[:200]:
            raise KeysError(f"{path} is damaged: it starts as a key file and is cut off or changed. Use a copy of it.")
        raise KeysError(f"{path} is no key file of Tacit. Give a file that `tacit keys new` wrote.")
    if plain.get("version") != VERSION:
        raise KeysError(
            f"{path} has version {plain.get('version')!r} of key files, expected {VERSION}. Install the version of "
            "Tacit that wrote it."
        )
    if plain.get("checksum") != checksum(plain):
        raise KeysError(f"{path} is damaged: its checksum does not fit its contents. Use a copy of it.")
    return plain


def checksum(plain: Mapping[str, Any]) -> str:
    """Return the digest of everything but the checksum."""
    return hashlib.sha256(_canonical({name: plain[name] for name in plain if name != "checksum"})).hexdigest()


def context(plain: Mapping[str, Any]) -> bytes:
    """Return what a passphrase authenticates beside the secret: everything in front of it."""
    names = ("format", "version", "kind", "fingerprint", "share", "public")
    return _canonical({name: plain[name] for name in names if name in plain})


def _canonical(plain: Mapping[str, Any]) -> bytes:
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()
