r"""Exponential ElGamal: counts in the exponent, so that multiplying ciphertexts adds.

A count m is encrypted as :math:`(g^r, g^m y^r)` (Cramer, Gennaro, Schoenmakers 1997). Decryption yields :math:`g^m`,
and m by a search over the range it can lie in. For votes and counts; a model's update belongs in Paillier, which packs.

**The search** finds small discrete logarithms by baby steps and giant steps. To find v in [0, bound] with
:math:`g^v = h`, keep :math:`g^i` for all i < m and look :math:`h g^{-mj}` up among them for j = 0, 1, …: then
v = jm + i (Shanks 1971). About :math:`\sqrt{bound}` multiplications each; the table is kept.

The table is keyed by 64 bits of each number. Its low bits won't do, nor its residue modulo :math:`2^{61}-1` (Python's
``hash``): with g = 2 the first steps are powers of two, which are alike under both. A sum of the 32-bit words with
secret random 64-bit weights keeps them apart, is a matrix product for a whole block, and can't be provoked to collide.
Every hit is verified by a power all the same.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.crypto.backend import backend
from tacit.crypto.elgamal.ciphertext import Form, Pairs
from tacit.crypto.groups import Group, fixed_base
from tacit.crypto.ring import Ring, Rows, from_integers
from tacit.errors import CipherError, ConfigError
from tacit.randomness import system_bytes

if TYPE_CHECKING:
    from tacit.crypto.elgamal.keys import PublicKey

LARGEST_COUNT = 1 << 40
LARGEST_BOUND = 1 << 44
EXPONENT_BITS = LARGEST_BOUND.bit_length()
_BLOCK = 4096  # multiplications between two looks at the table


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
    """Return the sum of many vectors of counts, such as one from every client."""
    if not ciphertexts:
        raise ConfigError("Expected at least one vector of counts to add, got none.")
    return ciphertexts[0].combined(ciphertexts[1:], workers=workers)


def encrypted(key: PublicKey, counts: ArrayLike, *, workers: int | None = None) -> EncryptedCounts:
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


@dataclass(frozen=True, kw_only=True)
class DiscreteLog:
    """The table of baby steps of one group and bound."""

    group: Group
    bound: int
    baby_steps: int = field(init=False)  # m
    _weights: NDArray[np.uint64] = field(init=False, repr=False)
    _keys: NDArray[np.uint64] = field(init=False, repr=False)  # sorted
    _exponents: NDArray[np.int64] = field(init=False, repr=False)  # in the keys' order
    _giants: Rows = field(init=False, repr=False)  # g^(-mj)

    def __post_init__(self) -> None:
        if not 1 <= self.bound <= LARGEST_BOUND:
            raise ConfigError(
                f"Expected a bound from 1 to 2^44, got {self.bound}: the time grows with its square root. Count in "
                "larger units."
            )
        if 2 * self.bound >= self.group.q:
            raise ConfigError(f"Expected a bound={self.bound} below half the order of the group {self.group.name}.")
        steps = min(self.bound + 1, 2 << (self.bound.bit_length() // 2))
        object.__setattr__(self, "baby_steps", steps)
        while not self._tabulate(steps):
            pass  # two steps shared a key: other weights
        ring, p = self._ring, self.group.p
        giants = min(_BLOCK, self._rounds + 1)
        object.__setattr__(self, "_giants", _powers(ring, pow(self.group.g, -steps, p), giants))

    def find(self, rows: Rows) -> NDArray[np.int64]:
        """Return the discrete logarithm of every row.

        Raises:
            CipherError: where one is not in [0, bound].
        """
        ring, found = self._ring, np.full(len(rows), -1, np.int64)
        places, shifted, done, span = np.arange(len(rows)), rows, 0, 1
        while len(places) and done <= self._rounds:
            span = max(1, min(span, _BLOCK // len(places), len(self._giants), self._rounds - done + 1))
            tried = shifted
            if span > 1:
                giants = self._giants[:span]
                tried = np.concatenate([ring.multiply(giants, shifted[row : row + 1]) for row in range(len(shifted))])
            which, exponents = self._look_up(tried)
            values = (done + which % span) * self.baby_steps + exponents
            self._accept(found, places[which // span], values, rows)
            open_ = found[places] < 0
            places, shifted, done = places[open_], shifted[open_], done + span
            if len(places):
                shifted = ring.multiply(shifted, self._giant(span))
            span *= 16  # small numbers are the likely ones: begin with few steps
        if len(places):
            raise CipherError(
                f"The count of ciphertext {places[0]} of {len(rows)} is not within the bound of {self.bound}. Decrypt "
                "with a larger bound, or ask who encrypted more than was agreed."
            )
        return found

    @functools.cached_property
    def _ring(self) -> Ring:
        return backend().ring(self.group.p)

    @property
    def _rounds(self) -> int:
        """The largest j that is needed."""
        return self.bound // self.baby_steps

    def _tabulate(self, steps: int) -> bool:
        ring, g, p = self._ring, self.group.g, self.group.p
        words = -(-ring.width // 4)
        weights = np.frombuffer(system_bytes(8 * words), np.uint64) | np.uint64(1)
        object.__setattr__(self, "_weights", weights)
        block = _powers(ring, g, min(_BLOCK, steps))
        stride = from_integers([pow(g, len(block), p)], ring.width)
        keys = np.empty(-(-steps // len(block)) * len(block), np.uint64)
        for start in range(0, steps, len(block)):
            keys[start : start + len(block)] = self._key(block)
            block = ring.multiply(block, stride)
        keys = keys[:steps]
        order = np.argsort(keys)
        object.__setattr__(self, "_keys", keys[order])
        object.__setattr__(self, "_exponents", order.astype(np.int64))
        return not bool((self._keys[1:] == self._keys[:-1]).any())

    def _key(self, rows: Rows) -> NDArray[np.uint64]:
        padded = np.zeros((len(rows), 4 * len(self._weights)), np.uint8)
        padded[:, padded.shape[1] - rows.shape[1] :] = rows
        keys: NDArray[np.uint64] = padded.view(">u4").astype(np.uint64) @ self._weights
        return keys

    def _look_up(self, rows: Rows) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Return which rows seem to be baby steps, and which step each is."""
        keys = self._key(rows)
        near = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        hits = np.flatnonzero(self._keys[near] == keys)
        return hits, self._exponents[near[hits]]

    def _accept(
        self, found: NDArray[np.int64], places: NDArray[np.intp], values: NDArray[np.int64], rows: Rows
    ) -> None:
        """Enter the values whose power is the row that was asked for."""
        inside = values <= self.bound
        places, values = places[inside], values[inside]
        if not len(places):
            return
        exponents = np.ascontiguousarray(values.astype(">u8")).view(np.uint8).reshape(-1, 8)
        powers = fixed_base(self.group.p, self.group.g, EXPONENT_BITS).powers(exponents, workers=1)
        right = (powers == rows[places]).all(axis=1)
        found[places[right]] = values[right]

    def _giant(self, span: int) -> Rows:
        """Return g^(-m span) as one row."""
        if span < len(self._giants):
            return self._giants[span : span + 1]
        power = pow(self.group.g, -self.baby_steps * span, self.group.p)
        return from_integers([power], self._ring.width)


def _powers(ring: Ring, base: int, count: int) -> Rows:
    """Return base^0 to base^(count - 1), doubling their number at each step."""
    rows = from_integers([1], ring.width)
    while len(rows) < count:
        factor = from_integers([pow(base, len(rows), ring.modulus)], ring.width)
        rows = np.concatenate([rows, ring.multiply(rows, factor)])
    return rows[:count]


@functools.lru_cache(maxsize=4)
def discrete_log(group: Group, bound: int) -> DiscreteLog:
    """Return the table of a group and bound; the last four stay (25 MB for a bound of 2^40, less for smaller ones)."""
    return DiscreteLog(group=group, bound=bound)
