r"""Exponential ElGamal: counts in the exponent, so that multiplying ciphertexts adds.

A count m is encrypted as :math:`(g^r, g^m y^r)` (Cramer, Gennaro, Schoenmakers 1997). Decryption yields :math:`g^m`,
and m by a search over the range it can lie in (:mod:`tacit.crypto.elgamal.discrete_log`). For votes and counts; a
model's update belongs in Paillier, which packs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.crypto.backend import backend
from tacit.crypto.elgamal.ciphertext import Pairs
from tacit.crypto.elgamal.discrete_log import EXPONENT_BITS, discrete_log
from tacit.crypto.elgamal.fixed_base import fixed_base
from tacit.crypto.elgamal.frame import Form
from tacit.crypto.groups import Group
from tacit.crypto.rows import Rows, from_integers
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.crypto.elgamal.public import PublicKey

LARGEST_COUNT = 1 << 40


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EncryptedCounts(Pairs):
    """Encrypted counts, one or many. ``c + c`` and ``c - c`` add, ``c + k`` adds a known count, ``c * k`` multiplies.

    Sums are not re-randomised: call :meth:`rerandomised` before one is released.
    """

    form: ClassVar[Form] = Form.COUNTS
    __array_ufunc__: ClassVar[None] = None  # array + ciphertext is one vector, not an array of ciphertexts

    def __add__(self, other: EncryptedCounts | ArrayLike) -> EncryptedCounts:
        if isinstance(other, Pairs):
            return self.combined([other])
        shift = powers(other, self.key.group)
        if len(shift) not in (1, len(self)):
            raise ConfigError(f"Expected one count to add or {len(self)}, got {len(shift)}.")
        return self._with(self.first, self.key.ring.multiply(self.second, shift))

    __radd__ = __add__

    def __sub__(self, other: EncryptedCounts | ArrayLike) -> EncryptedCounts:
        return self + (other.raised(-1) if isinstance(other, EncryptedCounts) else -whole(other))

    def __mul__(self, factor: int) -> EncryptedCounts:
        return self.raised(int(factor)) if isinstance(factor, (int, np.integer)) else NotImplemented

    __rmul__ = __mul__


def total(ciphertexts: Sequence[EncryptedCounts], *, workers: int | None = None) -> EncryptedCounts:
    """Return the sum of many vectors of counts, such as one of every client."""
    if not ciphertexts:
        raise ConfigError("Expected at least one vector of counts to add, got none.")
    return ciphertexts[0].combined(ciphertexts[1:], workers=workers)


def encrypt(key: PublicKey, counts: ArrayLike, *, workers: int | None = None) -> EncryptedCounts:
    """Return encrypted counts from -2^40 to 2^40."""
    messages = powers(counts, key.group)
    first, mask = key.noise(len(messages), workers=workers)
    return EncryptedCounts(key=key, first=first, second=key.ring.multiply(messages, mask))


def search(rows: Rows, group: Group, *, bound: int, signed: bool) -> NDArray[np.int64]:
    """Return the counts in [0, bound], or in [-bound, bound], of which rows are the powers of g."""
    if not signed:
        return discrete_log(group, bound).find(rows)
    ring = backend().ring(group.p)
    shift = from_integers([pow(group.g, bound, group.p)], ring.width)
    return discrete_log(group, 2 * bound).find(ring.multiply(rows, shift)) - bound


def powers(counts: ArrayLike, group: Group) -> Rows:
    """Return g to each count; negative ones take the same time, as all are shifted by the same power of two."""
    table = fixed_base(group.p, group.g, EXPONENT_BITS)
    exponents = (whole(counts) + LARGEST_COUNT).astype(">u8").view(np.uint8).reshape(-1, 8)
    back = from_integers([pow(group.g, -LARGEST_COUNT, group.p)], table.ring.width)
    return table.ring.multiply(table.powers(exponents, workers=1), back)


def whole(counts: ArrayLike) -> NDArray[np.int64]:
    """Return counts as a vector of integers; ConfigError where they are none, or beyond 2^40."""
    array = np.atleast_1d(np.asarray(counts))
    if array.ndim != 1 or not (np.issubdtype(array.dtype, np.integer) or array.size == 0):
        raise ConfigError(f"Expected a vector of integers as counts, got {array.dtype} of shape {array.shape}.")
    if len(array) and (int(array.min()) < -LARGEST_COUNT or int(array.max()) > LARGEST_COUNT):
        raise ConfigError(
            f"Counts range from {array.min()} to {array.max()}, expected at most 2^40 in magnitude. Count in larger "
            "units."
        )
    return array.astype(np.int64)
