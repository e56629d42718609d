"""One encrypted integer, and the arithmetic with it that needs no private key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.crypto.rows import Rows, from_integers
from tacit.errors import CipherError

if TYPE_CHECKING:
    from tacit.crypto.paillier.public import PublicKey


@dataclass(frozen=True, kw_only=True, eq=False)
class Ciphertext:
    """An encrypted signed integer. Results beyond n/2 in magnitude wrap around, as nobody can see that they do.

    ``c + c`` and ``c + k`` add, ``c * k`` multiplies with a known integer.
    """

    __array_ufunc__ = None  # NumPy's integers leave the arithmetic to this class

    key: PublicKey
    row: Rows  # one row

    def __add__(self, other: Ciphertext | int | np.integer[Any]) -> Ciphertext:
        ring = self.key.ring
        if isinstance(other, (int, np.integer)):  # (1 + kn) c
            factor = from_integers([1 + self.key.residue(int(other)) * self.key.n], ring.width)
            return Ciphertext(key=self.key, row=ring.multiply(self.row, factor))
        if not isinstance(other, Ciphertext):
            return NotImplemented
        if self.key != other.key:
            raise CipherError("The two ciphertexts are of different keys: their sum would mean nothing.")
        return Ciphertext(key=self.key, row=ring.multiply(self.row, other.row))

    __radd__ = __add__

    def __mul__(self, factor: int | np.integer[Any]) -> Ciphertext:
        if not isinstance(factor, (int, np.integer)):
            return NotImplemented
        ring, factor = self.key.ring, int(factor)
        self.key.residue(factor)
        row = ring.power(self.row, abs(factor), secret=False, workers=1)
        return Ciphertext(key=self.key, row=ring.inverse(row) if factor < 0 else row)

    __rmul__ = __mul__

    def __neg__(self) -> Ciphertext:
        return self * -1

    def __sub__(self, other: Ciphertext | int | np.integer[Any]) -> Ciphertext:
        return self + -(int(other) if isinstance(other, np.integer) else other)

    def rerandomised(self) -> Ciphertext:
        """Return a ciphertext of the same integer that can't be linked with this one."""
        return Ciphertext(key=self.key, row=self.key.ring.multiply(self.row, self.key.take(1)))
