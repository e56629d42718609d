"""Ciphertexts as bytes: one header, then all first halves, then all second halves, each number of fixed width.

======  =====================================================
bytes   content
======  =====================================================
4       ``TcEG``
1       version, 1
1       form: 1 numbers, 2 counts
2       width of a number in bytes
16      name of the group, padded with zeros
32      identity of the public key
8       count
======  =====================================================
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING

import numpy as np

from tacit.crypto.elgamal.encoding import strangers
from tacit.crypto.rows import Rows, width_of
from tacit.errors import CipherError

if TYPE_CHECKING:
    from tacit.crypto.elgamal.public import PublicKey

_HEADER = struct.Struct(">4sBBH16s32sQ")
_MAGIC, _VERSION = b"TcEG", 1


class Form(enum.IntEnum):
    """What the ciphertexts hold."""

    NUMBERS = 1
    COUNTS = 2


def pack(key: PublicKey, form: Form, first: Rows, second: Rows) -> bytes:
    """Return ciphertexts as bytes."""
    name = key.group.name.encode()
    header = _HEADER.pack(_MAGIC, _VERSION, form, first.shape[1], name, key.identity, len(first))
    return header + first.tobytes() + second.tobytes()


def parse(frame: bytes, key: PublicKey, form: Form) -> tuple[Rows, Rows]:
    """Return the two halves of ciphertexts from a peer, after checking every byte.

    The numbers must be in the group. One that is not would make the decryption tell a bit of the private exponent
    (Lim and Lee 1997), and a ciphertext with it could be told from others.

    Raises:
        CipherError: where the bytes are damaged, forged, or of another key.
    """
    if len(frame) < _HEADER.size:
        raise CipherError(f"Got {len(frame)} bytes of ElGamal ciphertexts, expected at least {_HEADER.size}.")
    magic, version, its_form, width, name, identity, count = _HEADER.unpack_from(frame)
    if magic != _MAGIC or version != _VERSION:
        raise CipherError(
            f"The bytes begin with {magic.hex()} version {version}, expected {_MAGIC.hex()} version {_VERSION}: they "
            "are no ElGamal ciphertexts of this version."
        )
    if its_form != form:
        raise CipherError(
            f"The ciphertexts are of form {its_form}, expected {form.value} ({form.name.lower()}). Numbers multiply "
            "and counts add: parse each as what it is."
        )
    if name != key.group.name.encode().ljust(16, b"\0") or width != width_of(key.group.p):
        raise CipherError(f"The ciphertexts are of group {name!r} and width {width}, expected {key.group.name}.")
    if identity != key.identity:
        raise CipherError(
            f"The ciphertexts are of key {identity.hex(':')[:23]}…, expected {key.fingerprint[:23]}… . Use the key "
            "they were made with."
        )
    if len(frame) != _HEADER.size + 2 * count * width:
        raise CipherError(
            f"Got {len(frame)} bytes for {count} ciphertexts, expected {_HEADER.size + 2 * count * width}: they are "
            "truncated, or something was appended."
        )
    rows = np.frombuffer(frame, np.uint8, offset=_HEADER.size).reshape(2 * count, width)
    wrong = strangers(rows, key.group)
    if len(wrong):
        raise CipherError(
            f"Ciphertext {wrong[0] % count} of {count} holds a number that is 0, not below p or not in the group "
            f"{key.group.name}: it is damaged or forged. Refuse whatever else its sender sent."
        )
    return rows[:count], rows[count:]
