"""Encrypted numbers, and the arithmetic with them that needs no private key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from tacit.crypto.elgamal.frame import Form, pack
from tacit.crypto.rows import Rows
from tacit.errors import CipherError, ConfigError

if TYPE_CHECKING:
    from tacit.crypto.elgamal.public import PublicKey


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    r"""A vector of pairs :math:`(g^r, x y^r)`: what ciphertexts of numbers and of counts have in common."""

    key: PublicKey
    first: Rows  # g^r, one a row
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
