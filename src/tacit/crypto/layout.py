"""The layout of an encrypted vector: which numbers it holds, how they are written, and how many may be added."""

from __future__ import annotations

import math
import struct
import sys
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.crypto import packing
from tacit.crypto.rows import Rows
from tacit.errors import CipherError, ConfigError

Beyond = Literal["clip", "refuse"]

_FIELDS = struct.Struct(">QQQIdB")
_SLOT_BITS = 63  # sums are taken out as signed 64-bit integers


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
                f"most {widest}. Use fewer bits a number, or allow fewer summands."
            )
        if not math.isfinite(self.summands * self.clip):
            raise ConfigError(f"Sums of {self.summands} numbers of up to {self.clip} are beyond the largest float.")

    @classmethod
    def floats(cls, *, length: int, clip: float, key_bits: int, bits: int = 24, summands: int = 128) -> Layout:
        """Return the layout of floats in [-clip, clip], written with ``bits`` bits each.

        >>> Layout.floats(length=21840, clip=1.0, key_bits=2048).rows
        331
        """
        if not 2 <= bits <= 52:
            raise ConfigError(f"Expected bits={bits} between 2 and 52.")
        if not (math.isfinite(clip) and clip > 0):
            raise ConfigError(f"Expected clip={clip} to be a finite number above 0.")
        bound = (1 << (bits - 1)) - 1
        step = clip / bound
        if step * bound < clip:  # by rounding: the clip itself must not be beyond the clip
            step = math.nextafter(step, math.inf)
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
        integers, outside = self._integers(np.asarray(values))
        if outside and beyond == "refuse":
            raise ConfigError(
                f"{outside} of {self.length} numbers are beyond the clip of {self.clip:g}. Raise the clip, or let "
                "them be clipped."
            )
        slots = np.zeros(self.rows * self.slots, np.uint64)
        slots[: self.length] = integers + self.bound
        width = (self.key_bits + 7) // 8
        return packing.pack(slots.reshape(self.rows, self.slots), self.slot_bits, width), outside

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
        numbers = packing.unpack(rows, self.slot_bits, self.slots).reshape(-1)
        used, unused = numbers[: self.length], numbers[self.length :]
        largest = 2 * self.bound * summands
        over = np.nonzero(used > np.uint64(largest))[0]
        if len(over) or unused.any() or len(packing.spill(rows, self.slot_bits, self.slots)):
            where = f"number {over[0]} is {used[over[0]]}" if len(over) else "a bit is set outside the slots"
            raise CipherError(
                f"The decrypted sum of {summands} vectors can't be one: {where}, expected slots of at most {largest}. "
                "A summand was forged, damaged, or made with another layout; nothing of the sum is used."
            )
        return used.astype(np.int64) - summands * self.bound

    def to_bytes(self) -> bytes:
        """Return the layout as it travels."""
        return _FIELDS.pack(
            self.length, self.bound, self.summands, self.key_bits, self.step or 0.0, self.step is not None
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Layout:
        """Read a layout that travelled."""
        if len(data) != _FIELDS.size:
            raise CipherError(f"Expected a layout of {_FIELDS.size} bytes, got {len(data)}.")
        length, bound, summands, key_bits, step, floats = _FIELDS.unpack(data)
        if floats > 1 or (not floats and data[-9:-1] != bytes(8)):
            raise CipherError(f"Expected 0 (and no step) or 1 for whether a layout is of floats, got {floats}.")
        try:
            return cls(length=length, bound=bound, summands=summands, key_bits=key_bits, step=step if floats else None)
        except ConfigError as error:
            raise CipherError(f"A layout that arrived makes no sense: {error}") from error

    def _integers(self, values: NDArray[np.generic]) -> tuple[NDArray[np.int64], int]:
        if values.shape != (self.length,):
            raise ConfigError(f"Expected a vector of {self.length} numbers, got an array of shape {values.shape}.")
        if self.step is None:
            if not np.issubdtype(values.dtype, np.integer):
                raise ConfigError(f"Expected whole numbers, got {values.dtype}. Use Layout.floats for other numbers.")
            over, under = values > self.bound, values < -self.bound  # type: ignore[operator]
            integers = values.astype(np.int64)
            integers[over], integers[under] = self.bound, -self.bound
            return integers, int(np.count_nonzero(over | under))
        if not np.issubdtype(values.dtype, np.floating) and not np.issubdtype(values.dtype, np.integer):
            raise ConfigError(f"Expected numbers, got {values.dtype}.")
        floats = values.astype(np.float64)
        if not np.isfinite(floats).all():
            where = int(np.nonzero(~np.isfinite(floats))[0][0])
            raise ConfigError(
                f"Number {where} of the vector is {floats[where]}, expected a finite number: nothing was encrypted. "
                "Look for a diverged training or a division by zero."
            )
        outside = int(np.count_nonzero(np.abs(floats) > self.clip))
        scaled = np.rint(np.clip(floats, -self.clip, self.clip) / self.step)  # a quotient of the rest may overflow
        return np.clip(scaled, -self.bound, self.bound).astype(np.int64), outside
