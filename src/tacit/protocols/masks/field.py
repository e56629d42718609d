"""Integers modulo a power of two: how numbers become such, how masks are made and added, and how a sum is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from tacit.errors import ConfigError, WireError
from tacit.grid import fixed_point
from tacit.protocols.protocol import Contribution
from tacit.vectors import blocks

Words = NDArray[np.unsignedinteger[Any]]

SEED_BYTES = 32
_BLOCK = 16  # of AES
_CHUNK = 1 << 19  # bytes of a mask that are made at a time, so that what they are added to stays in the cache
_ZEROS = bytes(_CHUNK)
_TOGETHER = 128  # generators that are open at a time
_WIDEST = 63


@dataclass(frozen=True, kw_only=True)
class Field:
    r"""Signed integers of magnitude at most B, of which N may be added: modulo :math:`2^b`, b the least that holds it.

    A sum of N is in :math:`[-NB, NB]`, and :math:`2^b > 2NB`, so it is read back from its residue exactly: overflow is
    impossible for vectors that :meth:`encode` made. Floats are fixed-point numbers, multiples of ``step``. On the wire
    a number takes :math:`\lceil b/8 \rceil` bytes.

    >>> Field.floats(clip=1.0, bits=24, summands=100).bits
    31

    Attributes:
        bound: the largest magnitude B of an integer.
        summands: how many vectors may be added, N.
        step: what one unit is worth where the numbers are floats; None for integers.
    """

    bound: int
    summands: int
    step: float | None = None

    def __post_init__(self) -> None:
        for name in ("bound", "summands"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"Expected a field's {name}={value} to be a whole number of at least 1.")
        if self.bits > _WIDEST:
            raise ConfigError(
                f"{self.summands} summands of up to {self.bound} need {self.bits} bits, expected at most {_WIDEST}. "
                "Use fewer bits per number, or fewer clients."
            )

    @classmethod
    def floats(cls, *, clip: float, bits: int, summands: int) -> Field:
        """Return the field of floats in [-clip, clip], written with ``bits`` bits each."""
        bound, step = fixed_point(clip=clip, bits=bits)
        return cls(bound=bound, summands=summands, step=step)

    @property
    def bits(self) -> int:
        """The bits b of the modulus."""
        return (2 * self.bound * self.summands).bit_length()

    @property
    def wire_bytes(self) -> int:
        """The bytes of a number on the wire."""
        return (self.bits + 7) // 8

    @property
    def word(self) -> np.dtype[Any]:
        """The machine's integer that holds a residue, little-endian."""
        return np.dtype("<u4" if self.bits <= 32 else "<u8")

    @property
    def error(self) -> float:
        """How far a number that was encoded may be from what it was, once clipped."""
        return 0.0 if self.step is None else (0.5 + self.bound * 2.0**-51) * self.step

    def encode(self, values: Contribution) -> Words:
        """Return a vector's residues; whole numbers beyond the bound are refused, floats are clipped to it."""
        if self.step is None:
            if not np.issubdtype(values.dtype, np.integer):
                raise ConfigError(f"Expected whole numbers, got {values.dtype}.")
            if len(values) and (values.max() > self.bound or values.min() < -self.bound):
                raise ConfigError(f"Expected whole numbers of a magnitude of at most {self.bound}.")
        residues: Words = np.empty(len(values), self.word)
        for part in blocks(len(values)):
            residues[part] = self._units(values[part])  # modulo 2^32 or 2^64, as unsigned integers wrap around
        return residues

    def _units(self, values: Contribution) -> NDArray[np.int64]:
        if self.step is None:
            return values.astype(np.int64, copy=False)
        scaled = np.asarray(values, np.float64) / self.step
        np.rint(scaled, out=scaled)
        np.clip(scaled, -self.bound, self.bound, out=scaled)
        return scaled.astype(np.int64)

    def decode(self, residues: Words, summands: int) -> NDArray[np.float64]:
        """Return what the sum of so many vectors is worth, or refuse what no honest sum can be."""
        found = np.empty(len(residues))
        for part in blocks(len(residues)):
            integers = self.integers(residues[part])
            if np.abs(integers).max(initial=0) > summands * self.bound:
                raise WireError(f"a number is beyond what {summands} clients can add up to")
            found[part] = integers
            found[part] *= 1.0 if self.step is None else self.step
        return found

    def integers(self, residues: Words) -> NDArray[np.int64]:
        """Return the integers nearest to zero that have these residues; what is above the modulus does not count."""
        width = 8 * self.word.itemsize
        return (residues << (width - self.bits)).view(f"<i{self.word.itemsize}").astype(np.int64) >> (width - self.bits)

    def pack(self, residues: Words) -> memoryview:
        """Return residues as they travel; what is above the modulus is cut off."""
        packed = np.empty((len(residues), self.wire_bytes), np.uint8)
        for part in blocks(len(residues)):
            reduced: Words = residues[part] & self.word.type((1 << self.bits) - 1)
            packed[part] = reduced.view(np.uint8).reshape(-1, self.word.itemsize)[:, : self.wire_bytes]
        return packed.reshape(-1).data

    def unpack(self, data: bytes | memoryview, length: int) -> Words:
        """Read what :meth:`pack` wrote."""
        if len(data) != length * self.wire_bytes:
            raise WireError(
                f"Expected {length * self.wire_bytes} bytes ({length} numbers), got {len(data)}. Check that its model "
                "is the one of this run."
            )
        if self.wire_bytes == self.word.itemsize:
            return np.frombuffer(data, self.word)
        full = np.zeros((length, self.word.itemsize), np.uint8)
        full[:, : self.wire_bytes] = np.frombuffer(data, np.uint8).reshape(length, self.wire_bytes)
        return full.view(self.word).reshape(length)


def add_masks(total: Words, plus: Iterable[bytes], minus: Iterable[bytes] = ()) -> None:
    """Add the masks of some seeds to a vector, and take those of others off, in place.

    A mask is the key stream of AES-256 in counter mode under its seed, which is used for this and nothing else.
    """
    signed = [(seed, np.add) for seed in plus] + [(seed, np.subtract) for seed in minus]
    size = total.itemsize
    room = np.empty(min(_CHUNK, max(total.nbytes, _BLOCK)) + _BLOCK, np.uint8)
    for first in range(0, len(signed), _TOGETHER):
        some = signed[first : first + _TOGETHER]
        streams = [(Cipher(algorithms.AES(seed), modes.CTR(bytes(_BLOCK))).encryptor(), way) for seed, way in some]
        for start in range(0, len(total), _CHUNK // size):
            part = total[start : start + _CHUNK // size]
            zeros = _ZEROS if part.nbytes == _CHUNK else _ZEROS[: part.nbytes]
            mask = room[: part.nbytes].view(total.dtype)
            for stream, way in streams:
                stream.update_into(zeros, room.data)
                way(part, mask, out=part)
