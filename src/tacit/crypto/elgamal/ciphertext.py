"""Encrypted numbers, the arithmetic with them that needs no private key, and ciphertexts as bytes.

As bytes, ciphertexts are one header, then all first halves, then all second halves, each number of fixed width:

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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from tacit.crypto.elgamal.encoding import strangers
from tacit.crypto.ring import Rows, width_of
from tacit.errors import CipherError, ConfigError

if TYPE_CHECKING:
    from tacit.crypto.elgamal.keys import PublicKey

_HEADER = struct.Struct(">4sBBH16s32sQ")
_MAGIC, _VERSION = b"TcEG", 1


class Form(enum.IntEnum):
    """What the ciphertexts hold."""

    NUMBERS = 1
    COUNTS = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    r"""A vector of pairs :math:`(g^r, x y^r)`: what ciphertexts of numbers and of counts have in common."""

    key: PublicKey
    first: Rows  # g^r, one per row
    second: Rows  # x y^r

    form: ClassVar[Form]

    def __post_init__(self) -> None:
        width = self.key.ring.width
        if self.first.shape != self.second.shape or self.first.ndim != 2 or self.first.shape[1] != width:
            raise CipherError(
                f"The halves of the ciphertexts have shapes {self.first.shape} and {self.second.shape}, expected twice "
                f"(count, {width})."
            )

    def __len__(self) -> int:
        return len(self.first)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} under key {self.key.fingerprint[:23]}…)"

    def to_bytes(self) -> bytes:
        """Return the ciphertexts as contiguous bytes that name their key, group and count."""
        return pack(self.key, self.form, self.first, self.second)

    def rerandomised(self, *, workers: int | None = None) -> Self:
        """Return ciphertexts of the same messages that can't be linked with these: for what is released."""
        first, mask = self.key.noise(len(self), workers=workers)
        ring = self.key.ring
        return self._with(ring.multiply(self.first, first), ring.multiply(self.second, mask))

    def combined(self, others: Sequence[Self], *, workers: int | None = None) -> Self:
        """Return the products of the pairs of many vectors."""
        for other in others:
            if type(other) is not type(self):
                raise CipherError(f"Expected {type(self).__name__} on both sides, got {type(other).__name__}.")
            if other.key != self.key:
                raise CipherError(
                    f"The ciphertexts are of keys {self.key.fingerprint[:23]}… and {other.key.fingerprint[:23]}…: "
                    "combined they would mean nothing. Encrypt under one key."
                )
            if len(other) != len(self):
                raise CipherError(f"The vectors have {len(self)} and {len(other)} ciphertexts, expected equally many.")
        ring, every = self.key.ring, (self, *others)
        return self._with(
            ring.product([one.first for one in every], workers=workers),
            ring.product([one.second for one in every], workers=workers),
        )

    def raised(self, exponent: int, *, workers: int | None = None) -> Self:
        """Return the pairs to a power, in time that tells nothing of it but its length."""
        if not 0 <= abs(exponent) < self.key.group.q:
            raise ConfigError(f"Expected a factor or exponent below q, got one of {exponent.bit_length()} bits.")
        ring = self.key.ring
        halves = (ring.power(half, abs(exponent), secret=True, workers=workers) for half in (self.first, self.second))
        first, second = (ring.inverse(half) if exponent < 0 else half for half in halves)
        return self._with(first, second)

    def _with(self, first: Rows, second: Rows) -> Self:
        return type(self)(key=self.key, first=first, second=second)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Ciphertext(Pairs):
    """Encrypted integers from 1 to q, one or many. ``c * c`` multiplies them, ``c ** k`` raises them to a known power.

    The product is exact where it is at most q. Beyond, it wraps around modulo p and up to the sign, which nobody can
    see. A product can be recognised by whoever knows its factors' ciphertexts: call :meth:`rerandomised` first.
    """

    form: ClassVar[Form] = Form.NUMBERS

    def __mul__(self, other: Ciphertext) -> Ciphertext:
        return self.combined([other]) if isinstance(other, Ciphertext) else NotImplemented

    def __pow__(self, exponent: int) -> Ciphertext:
        return self.raised(exponent)


def product(ciphertexts: Sequence[Ciphertext], *, workers: int | None = None) -> Ciphertext:
    """Return the product of many vectors of ciphertexts, number by number."""
    if not ciphertexts:
        raise ConfigError("Expected at least one ciphertext to multiply, got none.")
    return ciphertexts[0].combined(ciphertexts[1:], workers=workers)


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
