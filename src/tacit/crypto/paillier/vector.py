r"""Encrypted vectors: how numbers are written in ciphertexts, and the ciphertexts that add.

* A :class:`Layout` says which numbers a vector holds, how they are written, and how many vectors may be added.
* Numbers are packed side by side in the bits of large ones, by NumPy alone: a large number holds ``slots`` small ones
  of ``bits`` bits each, :math:`\sum_j u_j 2^{bits \cdot j}`. Adding large numbers adds their slots, as long as no
  slot's sum needs more than ``bits`` bits, which the layout sees to.
* A :class:`CiphertextVector` is packed ciphertexts as one contiguous array, with the key and layout they belong to.
"""

from __future__ import annotations

import hashlib
import math
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import gmpy2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.crypto.ring import Rows, in_blocks, not_below, row_blocks, zeros
from tacit.errors import CipherError, ConfigError
from tacit.grid import fixed_point

if TYPE_CHECKING:
    from tacit.crypto.paillier.public import Noise, PublicKey

Beyond = Literal["clip", "refuse"]

_FIELDS = struct.Struct(">QQQIdB")  # of a layout
LAYOUT_BYTES = _FIELDS.size
_SLOT_BITS = 63  # sums are taken out as signed 64-bit integers
_WORD = 64
_MAGIC = b"TCTC"
_VERSION = 1
_FACTS = struct.Struct(">4sB32sQ37s")  # magic, version, key, summands, layout
_DIGEST_BYTES = 16
HEADER_BYTES = _FACTS.size + _DIGEST_BYTES


@dataclass(frozen=True, kw_only=True)
class Layout:
    r"""Signed integers in offset binary: :math:`x \in [-B, B]` is written as :math:`u = x + B`, in a slot of its own.

    A sum of at most :math:`N` vectors has slots of at most :math:`2BN`, and a slot is as wide as that number, so no
    slot can reach its neighbour: overflow is impossible for vectors that were made by :meth:`encode`. Floats are
    fixed-point numbers, multiples of ``step``. The layout travels with every ciphertext, and arithmetic between
    different layouts is refused.

    A sum can't show how a dishonest client filled its slots: only a range proof would. :meth:`decode` refuses what no
    honest sum can be.

    Attributes:
        length: how many numbers a vector has.
        bound: the largest magnitude B of an integer.
        summands: how many vectors may be added, N.
        key_bits: the length of the key's modulus; a row of slots stays below it.
        step: what one unit is worth where the numbers are floats; None for integers.
    """

    length: int
    bound: int
    summands: int
    key_bits: int
    step: float | None = None

    def __post_init__(self) -> None:
        for name in ("length", "bound", "summands"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"Expected a layout's {name}={value} to be a whole number of at least 1.")
        if self.step is not None and not sys.float_info.min <= self.step < math.inf:  # below that, digits are lost
            raise ConfigError(f"Expected a layout's step={self.step} to be finite and at least {sys.float_info.min}.")
        widest = min(_SLOT_BITS, self.key_bits - 1)
        if self.slot_bits > widest:
            raise ConfigError(
                f"{self.summands} summands of up to {2 * self.bound} need slots of {self.slot_bits} bits, expected at "
                f"most {widest}. Use fewer bits per number, or allow fewer summands."
            )
        if not math.isfinite(self.summands * self.clip):
            raise ConfigError(f"Sums of {self.summands} numbers of up to {self.clip} are beyond the largest float.")

    @classmethod
    def floats(cls, *, length: int, clip: float, key_bits: int, bits: int = 24, summands: int = 128) -> Layout:
        """Return the layout of floats in [-clip, clip], written with ``bits`` bits each.

        >>> Layout.floats(length=21840, clip=1.0, key_bits=2048).rows
        331
        """
        bound, step = fixed_point(clip=clip, bits=bits)
        return cls(length=length, bound=bound, summands=summands, key_bits=key_bits, step=step)

    @property
    def clip(self) -> float:
        """The largest magnitude of a number."""
        return self.bound * (1.0 if self.step is None else self.step)

    @property
    def slot_bits(self) -> int:
        """The bits of one slot."""
        return (2 * self.bound * self.summands).bit_length()

    @property
    def slots(self) -> int:
        """How many numbers one ciphertext holds."""
        return (self.key_bits - 1) // self.slot_bits

    @property
    def rows(self) -> int:
        """How many ciphertexts a vector has."""
        return -(-self.length // self.slots)

    def error(self, summands: int) -> float:
        """Return how far a number of a decrypted sum may be from the exact sum of the clipped numbers.

        Half a step for every summand, and what the division by the step and the product with it are rounded by.
        """
        return 0.0 if self.step is None else (0.5 + self.bound * 2.0**-51) * self.step * summands

    def encode(self, values: ArrayLike, *, beyond: Beyond = "clip") -> tuple[Rows, int]:
        """Return a vector as packed rows, and how many of its numbers were beyond the clip.

        Args:
            values: ``length`` finite numbers; whole numbers where the layout has no step.
            beyond: clip numbers beyond the largest magnitude, or refuse the vector.
        """
        array = np.asarray(values)
        self._check(array)
        outside = 0

        def packed(part: slice) -> Rows:
            nonlocal outside
            integers, beyond_here = self._integers(array, self.numbers(part))
            outside += beyond_here
            return self._packed(integers, 1)

        rows = in_blocks(self.rows, packed)
        if outside and beyond == "refuse":
            raise ConfigError(
                f"{outside} of {self.length} numbers are beyond the clip of {self.clip:g}. Raise the clip, or let "
                "them be clipped."
            )
        return rows, outside

    def packed(self, sums: NDArray[np.int64], summands: int) -> Rows:
        """Return the packed rows whose :meth:`sums` these are."""
        return in_blocks(self.rows, lambda part: self._packed(sums[self.numbers(part)], summands))

    def numbers(self, rows: slice) -> slice:
        """Return which numbers of a vector some of its rows hold.

        >>> Layout.floats(length=200, clip=1.0, key_bits=2048).numbers(slice(1, 4))
        slice(66, 200, None)
        """
        return slice(rows.start * self.slots, min(rows.stop * self.slots, self.length))

    def _packed(self, sums: NDArray[np.int64], summands: int) -> Rows:
        rows = -(-len(sums) // self.slots)
        slots = np.zeros(rows * self.slots, np.uint64)
        slots[: len(sums)] = sums + summands * self.bound
        return pack_slots(slots.reshape(rows, self.slots), self.slot_bits, (self.key_bits + 7) // 8)

    def decode(self, rows: Rows, summands: int) -> NDArray[np.int64] | NDArray[np.float64]:
        """Return the sum of ``summands`` vectors that packed rows hold: integers, or floats where there is a step."""
        return self.worth(self.sums(rows, summands))

    def worth(self, sums: NDArray[np.int64]) -> NDArray[np.int64] | NDArray[np.float64]:
        """Return what sums of units are worth: themselves, or floats where there is a step."""
        return sums if self.step is None else sums.astype(np.float64) * np.float64(self.step)

    def sums(self, rows: Rows, summands: int) -> NDArray[np.int64]:
        """Return the sums of ``summands`` vectors in units, and refuse what no honest sum can be."""
        if not 1 <= summands <= self.summands:
            raise CipherError(f"The sum claims {summands} summands, expected 1 to {self.summands} in this layout.")
        sums = np.empty(self.length, np.int64)
        largest = 2 * self.bound * summands
        for some in row_blocks(len(rows)):
            place = self.numbers(some)
            numbers = unpack_slots(rows[some], self.slot_bits, self.slots).reshape(-1)
            used, unused = numbers[: place.stop - place.start], numbers[place.stop - place.start :]
            over = np.nonzero(used > np.uint64(largest))[0]
            if len(over) or unused.any() or len(spilled(rows[some], self.slot_bits, self.slots)):
                first = f"number {place.start + over[0]} is {used[over[0]]}" if len(over) else ""
                raise CipherError(
                    f"The decrypted sum of {summands} vectors can't be one: {first or 'a bit is set outside the slots'}"
                    f", expected slots of at most {largest}. A summand was forged, damaged, or made with another "
                    "layout; nothing of the sum is used."
                )
            sums[place] = used
            sums[place] -= summands * self.bound
        return sums

    def to_bytes(self) -> bytes:
        """Return the layout as it travels."""
        return _FIELDS.pack(
            self.length, self.bound, self.summands, self.key_bits, self.step or 0.0, self.step is not None
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Layout:
        """Read a layout that travelled."""
        if len(data) != LAYOUT_BYTES:
            raise CipherError(f"Expected a layout of {LAYOUT_BYTES} bytes, got {len(data)}.")
        length, bound, summands, key_bits, step, floats = _FIELDS.unpack(data)
        if floats > 1 or (not floats and data[-9:-1] != bytes(8)):
            raise CipherError(f"Expected 0 (and no step) or 1 for whether a layout is of floats, got {floats}.")
        try:
            return cls(length=length, bound=bound, summands=summands, key_bits=key_bits, step=step if floats else None)
        except ConfigError as error:
            raise CipherError(f"A layout that arrived makes no sense: {error}") from error

    def _check(self, values: NDArray[np.generic]) -> None:
        if values.shape != (self.length,):
            raise ConfigError(f"Expected a vector of {self.length} numbers, got an array of shape {values.shape}.")
        whole = np.issubdtype(values.dtype, np.integer)
        if self.step is None and not whole:
            raise ConfigError(f"Expected whole numbers, got {values.dtype}. Use Layout.floats for other numbers.")
        if not whole and not np.issubdtype(values.dtype, np.floating):
            raise ConfigError(f"Expected numbers, got {values.dtype}.")

    def _integers(self, vector: NDArray[np.generic], place: slice) -> tuple[NDArray[np.int64], int]:
        """Return a part of a vector in units, and how many of its numbers were beyond the clip."""
        values = vector[place]
        if self.step is None:
            over, under = values > self.bound, values < -self.bound  # type: ignore[operator]  # NumPy's comparison with a Python integer
            integers = values.astype(np.int64)
            integers[over], integers[under] = self.bound, -self.bound
            return integers, int(np.count_nonzero(over | under))
        floats = values.astype(np.float64)
        if not np.isfinite(floats).all():
            where = int(np.nonzero(~np.isfinite(floats))[0][0])
            raise ConfigError(
                f"Number {place.start + where} of the vector is {floats[where]}, expected a finite number: nothing was "
                "encrypted. Look for a diverged training or a division by zero."
            )
        outside = int(np.count_nonzero(np.abs(floats) > self.clip))
        scaled = np.rint(np.clip(floats, -self.clip, self.clip) / self.step)  # a quotient of the rest may overflow
        return np.clip(scaled, -self.bound, self.bound).astype(np.int64), outside


def pack_slots(numbers: NDArray[np.uint64], bits: int, width: int) -> Rows:
    """Return one row of ``width`` bytes for every row of ``numbers``, each below 2**bits with bits <= 64.

    >>> pack_slots(np.array([[1, 2]], np.uint64), 8, 3).tolist()
    [[0, 2, 1]]
    """
    count, slots = numbers.shape
    words = -(-slots * bits // _WORD)
    columns = np.ascontiguousarray(numbers.T)
    packed = np.zeros((words + 1, count), np.uint64)
    for slot in range(slots):  # a slot of all rows at once
        word, shift = divmod(slot * bits, _WORD)
        packed[word] |= columns[slot] << np.uint64(shift)
        if shift + bits > _WORD:
            packed[word + 1] |= columns[slot] >> np.uint64(_WORD - shift)
    little = np.ascontiguousarray(packed[:words].T).astype("<u8").view(np.uint8)
    rows = np.zeros((count, width), np.uint8)
    used = min(width, little.shape[1])  # what is cut off is zero: the caller's slots fit the width
    rows[:, width - used :] = little[:, :used][:, ::-1]
    return rows


def unpack_slots(rows: Rows, bits: int, slots: int) -> NDArray[np.uint64]:
    """Return the ``slots`` numbers of every row.

    >>> unpack_slots(np.array([[0, 2, 1]], np.uint8), 8, 2).tolist()
    [[1, 2]]
    """
    count, width = rows.shape
    words = -(-slots * bits // _WORD) + 1
    little = np.zeros((count, 8 * words), np.uint8)
    used = min(width, 8 * words)
    little[:, :used] = rows[:, width - used :][:, ::-1]
    columns = np.ascontiguousarray(little.view("<u8").T)
    mask = np.uint64((1 << bits) - 1)
    numbers = np.empty((slots, count), np.uint64)
    for slot in range(slots):
        word, shift = divmod(slot * bits, _WORD)
        value = columns[word] >> np.uint64(shift)
        if shift + bits > _WORD:
            value |= columns[word + 1] << np.uint64(_WORD - shift)
        numbers[slot] = value & mask
    return np.ascontiguousarray(numbers.T)


def spilled(rows: Rows, bits: int, slots: int) -> NDArray[np.intp]:
    """Return the places of the rows that have a bit set above their slots."""
    free = 8 * rows.shape[1] - slots * bits
    whole, part = divmod(max(free, 0), 8)
    above = rows[:, :whole].any(axis=1)
    if part:
        above |= rows[:, whole] >> (8 - part) > 0
    return np.nonzero(above)[0]


@dataclass(frozen=True, kw_only=True, eq=False)
class CiphertextVector:
    """The sum of ``summands`` encrypted vectors of one layout under one key.

    ``a + b`` adds, and ``a * k`` with a positive integer is the sum of k times the same vector. :func:`total` adds many
    at once. Sums are malleable and deterministic: call :meth:`rerandomised` before a sum is shown to anyone who knows
    its parts.

    Attributes:
        clipped: how many numbers of an own vector were clipped when it was encrypted. It does not travel.
    """

    key: PublicKey
    layout: Layout
    summands: int
    rows: Rows
    clipped: int = 0

    def __add__(self, other: CiphertextVector) -> CiphertextVector:
        return total([self, other])

    def __mul__(self, times: int) -> CiphertextVector:
        if not isinstance(times, int):
            return NotImplemented
        if times < 1:
            raise CipherError(
                f"An encrypted vector can be multiplied with a whole number of at least 1, not with {times}. Scale or "
                "negate before encryption."
            )
        summands = self._checked(self.summands * times)
        return replace(self, rows=self.key.ring.power(self.rows, times, secret=False), summands=summands)

    __rmul__ = __mul__

    @property
    def nbytes(self) -> int:
        """The length of :meth:`to_bytes`."""
        return HEADER_BYTES + self.rows.nbytes

    def rerandomised(self, *, noise: Noise | None = None, workers: int | None = None) -> CiphertextVector:
        """Return the same sum in ciphertexts that can't be linked with these."""
        source, ring = self.key if noise is None else noise, self.key.ring

        def linked_no_more(part: slice) -> Rows:
            some = self.rows[part]
            return ring.multiply(some, source.take(len(some), workers=workers), workers=workers)

        return replace(self, rows=in_blocks(len(self.rows), linked_no_more, "blinding the sum"))

    def to_bytes(self) -> bytes:
        """Return the vector as it travels: key, count of summands, layout, a digest, equally long ciphertexts.

        The digest finds damage, in the header and in the ciphertexts. It stops no forger: only an authenticated
        connection does.
        """
        return b"".join(self.pieces())

    def pieces(self) -> tuple[bytes, memoryview]:
        """Return what :meth:`to_bytes` joins, without a copy of the ciphertexts."""
        facts = _FACTS.pack(_MAGIC, _VERSION, self.key.identity, self.summands, self.layout.to_bytes())
        body = np.ascontiguousarray(self.rows).data.cast("B")
        return facts + _digest(facts, body), body

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, key: PublicKey, *, units: bool = True) -> CiphertextVector:
        """Read and validate a vector: its key, its exact length, 0 < c < n^2 and gcd(c, n) = 1 for every ciphertext.

        Args:
            data: what :meth:`to_bytes` returned.
            key: the key it has to be of.
            units: whether to look for common divisors with n now; :func:`total` looks at the sum of all at once.
        """
        if len(data) < HEADER_BYTES:
            raise CipherError(f"Expected at least {HEADER_BYTES} bytes of an encrypted vector, got {len(data)}.")
        magic, version, identity, summands, layout_bytes = _FACTS.unpack_from(data)
        if magic != _MAGIC:
            raise CipherError(f"Expected an encrypted vector, which starts with {_MAGIC!r}, got {magic!r}.")
        if version != _VERSION:
            raise CipherError(f"Expected version {_VERSION} of encrypted vectors, got {version}.")
        if identity != key.identity:
            raise CipherError(
                f"The vector is encrypted with key {identity.hex(':')[:23]}…, expected {key.fingerprint[:23]}… . Use "
                "the key it was made with."
            )
        layout = Layout.from_bytes(layout_bytes)
        if layout.key_bits != key.bits:
            raise CipherError(f"The layout is for keys of {layout.key_bits} bits, and this one has {key.bits}.")
        if not 1 <= summands <= layout.summands:
            raise CipherError(f"The vector claims {summands} summands, expected 1 to {layout.summands}.")
        width = key.ring.width
        expected = HEADER_BYTES + layout.rows * width
        if len(data) != expected:
            raise CipherError(
                f"Expected {expected} bytes ({layout.rows} ciphertexts of {width} bytes), got {len(data)}: the vector "
                "is cut off or damaged."
            )
        view = memoryview(data)
        if view[_FACTS.size : HEADER_BYTES] != _digest(view[: _FACTS.size], view[HEADER_BYTES:]):
            raise CipherError(
                "The vector's bytes do not have the digest they came with: it is damaged. Ask for it again."
            )
        vector = cls.of(view[HEADER_BYTES:], key, layout, summands)
        if units:
            vector.check_units()
        return vector

    @classmethod
    def of(cls, data: memoryview, key: PublicKey, layout: Layout, summands: int = 1) -> CiphertextVector:
        """Return a vector of bare ciphertexts, of which each is checked to be one: 0 < c < n^2.

        Whether one has a divisor in common with n is left to :meth:`check_units`, or to :func:`total`, which looks at
        the sum of all at once.
        """
        width = key.ring.width
        if len(data) != layout.rows * width:
            raise CipherError(f"Expected {layout.rows} ciphertexts of {width} bytes, got {len(data)} bytes.")
        rows = np.frombuffer(data, np.uint8).reshape(-1, width)
        for wrong, what in ((zeros(rows), "0"), (not_below(rows, key.square), "not below n^2")):
            if len(wrong):
                raise CipherError(f"Ciphertext {wrong[0]} of {len(rows)} is {what}, which no encryption gives.")
        return cls(key=key, layout=layout, summands=summands, rows=rows)

    def check_units(self) -> None:
        """Raise CipherError where a ciphertext has a divisor in common with n; one gcd for all."""
        if gmpy2.gcd(self.key.ring.fold(self.rows), self.key.n) != 1:
            raise CipherError("A ciphertext has a divisor in common with n, which no encryption gives: it is forged.")

    def _checked(self, summands: int) -> int:
        if summands > self.layout.summands:
            raise CipherError(
                f"The sum would have {summands} summands, and the layout has room for {self.layout.summands}. Make the "
                "layout for more summands before encrypting."
            )
        return summands


def _digest(facts: bytes | memoryview, body: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(facts)
    digest.update(body)
    return digest.digest()[:_DIGEST_BYTES]


def total(
    vectors: Sequence[CiphertextVector], *, check_units: bool = False, workers: int | None = None
) -> CiphertextVector:
    """Return the sum of many vectors of one key and one layout.

    Args:
        vectors: at least one.
        check_units: look for common divisors with n in the sum, which has one as soon as any summand has.
        workers: how many cores to use; by default all.
    """
    if not vectors:
        raise CipherError("Expected at least one encrypted vector to add, got none.")
    first = vectors[0]
    for place, vector in enumerate(vectors[1:], 1):
        if vector.key != first.key:
            raise CipherError(f"Vector {place} is of another key than the first: their sum would mean nothing.")
        if vector.layout != first.layout:
            raise CipherError(f"Vector {place} has {vector.layout}, expected {first.layout} as the first has.")
    summands = first._checked(sum(vector.summands for vector in vectors))
    ring = first.key.ring
    rows = in_blocks(
        len(first.rows), lambda part: ring.product([vector.rows[part] for vector in vectors], workers=workers)
    )
    added = CiphertextVector(key=first.key, layout=first.layout, summands=summands, rows=rows)
    if check_units:
        added.check_units()
    return added
