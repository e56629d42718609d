"""The fast backend: eight numbers per register, on CPUs with AVX-512 IFMA (Intel since Ice Lake, AMD since Zen 4).

The arithmetic is C (``_native.c``, ``core/``) on big-endian rows, without the interpreter's lock; here rows are cut
into contiguous blocks for the threads, and the few constants of a ring are computed once, as Python integers.

Montgomery's form has :math:`R = 2^{52K}`. A ring whose modulus is a square :math:`m^2`, as every Paillier ring's is,
raises to powers on pairs :math:`x + my` of half-length numbers: 1.6 to 1.7 times fewer multiplications (core/pairs.h).

What is secret: the exponents of a table, and the exponent of :meth:`NativeRing.power` where the caller says so. Both
are looked up by reading every entry, subtractions are masked, and nothing branches on a value (``make valgrind``
checks it); the length of an exponent shows. The scan of a table is a tenth of the time, and half of what a gather of
the entries that are wanted takes, because one permutation looks up 64 digits (core/table.h). The scan of a power's
sixteen entries costs 9%.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import gmpy2
import numpy as np

from tacit.crypto.gmp import GmpRing
from tacit.crypto.ring import (
    Ring,
    Rows,
    check_below,
    check_counts,
    check_divisor,
    check_exponent,
    check_exponents,
    check_modulus,
    check_table,
    from_integers,
    to_integers,
    widened,
    width_of,
)
from tacit.errors import CipherError
from tacit.limits import cores

_native: Any
try:
    _native = importlib.import_module("tacit.crypto._native")
except ImportError:  # built without a C compiler
    _native = None

LANES = 8
LIMB = 52
_LIMB_BYTES = 7  # of an entry of a table
_REGISTER = 64  # bytes
_THREADS_FROM = 1e7  # limb products from which a second thread pays: a third of a millisecond


def why_not() -> str | None:
    """Return why this backend can't run here, or None where it can."""
    if _native is None:
        return "its extension was not built (it needs a C compiler when Tacit is installed)"
    if not _native.supported():
        return "this CPU has no AVX-512 IFMA"
    return None


@functools.cache
def _pool(process: int) -> ThreadPoolExecutor:
    del process  # a forked child has none of its parent's threads, and makes its own
    return ThreadPoolExecutor(cores(), thread_name_prefix="tacit-crypto")


def _shared(job: Callable[[slice], int], count: int, cost: float, workers: int | None) -> int:
    """Do a job on contiguous blocks of whole groups of eight rows, in threads; return the sum of its answers."""
    groups = -(-count // LANES)
    threads = min(workers or cores(), groups) if count * cost > _THREADS_FROM else 1
    if threads <= 1:
        return job(slice(0, count)) if count else 0
    edges = [LANES * (groups * part // threads) for part in range(threads)] + [count]
    blocks = [slice(start, stop) for start, stop in itertools.pairwise(edges)]
    return sum(_pool(os.getpid()).map(job, blocks))


def _aligned(size: int) -> Rows:
    """Return room for registers, which starts at a cache line."""
    room = np.empty(size + _REGISTER, np.uint8)
    start = -room.ctypes.data % _REGISTER
    return room[start : start + size]


@dataclass(frozen=True)
class NativeTable:
    """The 256 powers of one base for every byte of an exponent, byte by byte as the look-up wants them."""

    ring: NativeRing
    base: int
    bits: int
    entries: Rows = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_table(self.bits)
        ring = self.ring
        entries = _aligned(-(-self.bits // 8) * ring.size * _LIMB_BYTES * 256)
        _native.build_table(*ring.fast, from_integers([self.base % ring.modulus], ring.width), entries)
        object.__setattr__(self, "entries", entries)

    def powers(self, exponents: Rows, *, workers: int | None = None, aside: bool = False) -> Rows:
        """Multiply one entry for every byte; the GIL is released, so it is always ``aside``."""
        del aside
        check_exponents(exponents, self.bits)
        exponents, width = np.ascontiguousarray(exponents), exponents.shape[1]
        out = np.empty((len(exponents), self.ring.width), np.uint8)

        def job(block: slice) -> int:
            return int(_native.table_powers(*self.ring.fast, self.entries, exponents[block], width, out[block]))

        _shared(job, len(exponents), self.bits / 8 * self.ring.size**2 * 2.5, workers)
        return out


@dataclass(frozen=True)
class NativeRing:
    """The integers modulo an odd number of up to 12,900 bits."""

    modulus: int

    @functools.cached_property
    def width(self) -> int:
        """The bytes of a row."""
        return width_of(self.modulus)

    @functools.cached_property
    def limbs(self) -> int:
        """K, the limbs of a number below the modulus."""
        limbs: int = _native.limbs(self.modulus.bit_length())
        return limbs

    @functools.cached_property
    def plain(self) -> tuple[Rows, int, int]:
        """What the C functions know of the ring: the modulus, R and R squared."""
        return from_integers([self.modulus, self._radix(1), self._radix(2)], self.width), 0, self.width

    @functools.cached_property
    def fast(self) -> tuple[Rows, int, int]:
        """The same for powers: where the modulus is a square, of pairs of half the length."""
        root = math.isqrt(self.modulus)
        if root * root != self.modulus:
            return self.plain
        radix = 1 << (LIMB * _native.limbs(root.bit_length()))
        one, enter = divmod(radix % self.modulus, root), divmod(radix**3 % self.modulus, root)
        numbers = [root, -radix % root, one[1], one[0], enter[1], enter[0]]
        return from_integers(numbers, width_of(root)), 1, self.width

    @functools.cached_property
    def size(self) -> int:
        """The limbs of a residue in the form used for powers."""
        root, is_pair, _ = self.fast
        bits = int.from_bytes(root[0].tobytes(), "big").bit_length()
        size: int = _native.limbs(bits) << is_pair
        return size

    def _radix(self, power: int) -> int:
        """Return a power of R."""
        return int(gmpy2.powmod(2, LIMB * self.limbs * power, self.modulus))

    def _rows(self, rows: Rows) -> Rows:
        """Return rows as wide as the modulus."""
        if rows.shape[1] > self.width:
            check_below(rows, self.modulus)
            rows = rows[:, rows.shape[1] - self.width :]
        return np.ascontiguousarray(widened(rows, self.width))

    def _room(self, count: int) -> Rows:
        return np.empty((count, self.width), np.uint8)

    def multiply(self, left: Rows, right: Rows, *, workers: int | None = None) -> Rows:
        """Multiply row by row."""
        if len(left) == 1 and len(right) != 1:
            left, right = right, left
        if len(right) == 1 and len(left) != 1:
            check_below(left, self.modulus)
            check_below(right, self.modulus)
            return self.affine([(left, to_integers(right)[0])], 0, workers=workers)
        return self.product([left, right], workers=workers)

    def product(self, vectors: Sequence[Rows], *, workers: int | None = None) -> Rows:
        """Multiply many vectors row by row: a Montgomery product each, and one that puts the powers of R right."""
        count, parts = check_counts(vectors), [self._rows(vector) for vector in vectors]
        factor = from_integers([self._radix(len(parts))], self.width)
        out = self._room(count)

        def job(block: slice) -> int:
            return int(_native.product(*self.plain, tuple(part[block] for part in parts), factor, out[block]))

        if _shared(job, count, (len(parts) + 1) * 4 * self.limbs**2, workers):
            for part in parts:
                check_below(part, self.modulus)
        return out

    def fold(self, rows: Rows) -> int:
        """Multiply all rows: eight products, by lane, and then those."""
        totals = self._fold(self._rows(rows), _aligned(0)) if len(rows) else self._room(0)
        radix = self._radix(LANES * max(-(-len(rows) // LANES) - 1, 0))
        modulus, product = gmpy2.mpz(self.modulus), gmpy2.mpz(radix)
        for lane in to_integers(totals):
            product = product * lane % modulus
        return int(product)

    def _fold(self, rows: Rows, kept: Rows) -> Rows:
        totals = self._room(LANES)
        if _native.fold(*self.plain, rows, kept, totals):
            check_below(rows, self.modulus)
        return totals

    def power(self, bases: Rows, exponent: int, *, secret: bool, workers: int | None = None) -> Rows:
        """Raise every row to one exponent by a fixed window."""
        check_exponent(exponent)
        bases, out = self._rows(bases), self._room(len(bases))
        bits = exponent.bit_length()
        window = 1 if bits < 16 else 4 if bits < 512 or secret else 5
        digits = exponent.to_bytes(-(-bits // 8), "big")

        def job(block: slice) -> int:
            places = -(-bits // window)
            return int(_native.power(*self.fast, bases[block], digits, places, window, secret, out[block]))

        if _shared(job, len(bases), bits * self.size**2 * 2, workers):
            check_below(bases, self.modulus)
        return out

    def affine(
        self,
        terms: Sequence[tuple[Rows, int]],
        constant: int,
        *,
        times: Rows | None = None,
        workers: int | None = None,
    ) -> Rows:
        """Sum the products before they are reduced; rows longer than R are read in pieces of K limbs."""
        vectors = [rows for rows, _ in terms] + ([] if times is None else [times])
        count = check_counts(vectors)
        out, bits = self._room(count), LIMB * self.limbs
        if not count:
            return out
        square, modulus = gmpy2.mpz(self._radix(2)), gmpy2.mpz(self.modulus)
        factors = [constant * square % modulus]
        for rows, factor in terms:
            worth = factor * square % modulus
            for _ in range(-(-8 * rows.shape[1] // bits)):
                factors.append(worth)
                worth = (worth << bits) % modulus  # of the next piece
        constants = from_integers(factors, self.width)
        parts = [np.ascontiguousarray(rows) for rows, _ in terms]
        last = self._room(0) if times is None else self._rows(times)

        def job(block: slice) -> int:
            some = tuple(part[block] for part in parts)
            return int(_native.affine(*self.plain, some, constants, last[block], out[block]))

        if _shared(job, count, (len(factors) + 2) * 2 * self.limbs**2, workers):
            check_below(last, self.modulus)
        return out

    def inverse(self, rows: Rows) -> Rows:
        """Invert eight running products and unfold them (Montgomery's trick): three multiplications per row."""
        if not len(rows):
            return self._room(0)
        rows = self._rows(rows)
        kept = _aligned(-(-len(rows) // LANES) * self.limbs * _REGISTER)
        totals = to_integers(self._fold(rows, kept))
        try:
            inverses = [int(gmpy2.invert(total, self.modulus)) for total in totals]
        except ZeroDivisionError:
            where = next(place for place, x in enumerate(to_integers(rows)) if math.gcd(x, self.modulus) != 1)
            raise CipherError(
                f"Number {where} of {len(rows)} has a divisor in common with the modulus, expected one with an "
                "inverse: it is forged, or of another key."
            ) from None
        out = self._room(len(rows))
        _native.unfold(*self.plain, rows, kept, from_integers(inverses, self.width), out)
        return out

    def table(self, base: int, *, bits: int) -> NativeTable:
        """Build the table of a base."""
        return NativeTable(self, base, bits)


@dataclass(frozen=True)
class NativeBackend:
    """Rings by AVX-512 IFMA, and by gmpy2 beyond 12,900 bits."""

    name: str = "native"

    def ring(self, modulus: int) -> Ring:
        """Return the ring of ``modulus``."""
        check_modulus(modulus)
        if _native.limbs(modulus.bit_length()) > _native.MOST_LIMBS:
            return GmpRing(modulus)
        return NativeRing(modulus)

    def quotient(self, rows: Rows, divisor: int, *, workers: int | None = None) -> Rows:
        """Multiply with the divisor's inverse modulo a power of two (Jebelean 1993)."""
        check_divisor(divisor)
        rows, width = np.ascontiguousarray(rows), width_of(divisor)
        out = np.empty((len(rows), width), np.uint8)
        bits = -(-8 * width // (2 * LIMB)) * 2 * LIMB
        inverse = from_integers([int(gmpy2.invert(divisor, 1 << bits))], bits // 8)

        def job(block: slice) -> int:
            return int(_native.quotient(rows[block], rows.shape[1], inverse, out[block], width))

        _shared(job, len(rows), (bits / LIMB) ** 2, workers)
        return out
