"""The portable backend: gmpy2, which brings the GNU multiple precision library on every platform.

Powers with a secret exponent use ``mpz_powm_sec``, whose time and memory accesses do not depend on it; they release
the GIL, so threads share them. A loop of single multiplications does not: the tables of a fixed base share large jobs
among processes instead (:mod:`tacit.crypto.workers`).

Tables are another matter: an entry is looked up by a digit of the exponent, and multiplied in time that depends on the
number. So the exponents of encryption leak to whoever shares the machine's caches. The native core has no such leak.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import gmpy2
import numpy as np

from tacit.crypto.ring import (
    Rows,
    check_below,
    check_counts,
    check_divisor,
    check_exponent,
    check_exponents,
    check_modulus,
    check_table,
    width_of,
)
from tacit.errors import CipherError
from tacit.limits import cores

_TABLE_BYTES = 64 << 20  # a larger window would be faster and need more memory than a phone likes
_CHUNK = 512  # exponents at a time: their digits are Python integers, and their powers should stay in the cache
_BLOCK = 64  # rows of many vectors that are multiplied together, for the same reason
_PROCESSES_FROM = 1.0  # seconds of work with one table from which starting processes pays
_WORTH_SENDING = 0.02  # seconds of work that are worth the way to another process

Number = Any  # gmpy2.mpz: the package has no type stubs


def _numbers(rows: Rows) -> list[Number]:
    raw, width, parse = rows.tobytes(), rows.shape[1], gmpy2.mpz.from_bytes
    return [parse(raw[start : start + width], "big") for start in range(0, len(raw), width)]


def _rows(numbers: Sequence[Number], width: int) -> Rows:
    raw = b"".join([number.to_bytes(width, "big") for number in numbers])
    return np.frombuffer(raw, np.uint8).reshape(-1, width)


@dataclass(frozen=True)
class GmpTable:
    """The powers of one base as gmpy2 integers, one list per place of a digit."""

    ring: GmpRing
    base: int
    bits: int
    window: int = field(init=False)
    entries: list[list[Number]] = field(init=False, repr=False)
    work: list[float] = field(default_factory=lambda: [0.0], init=False, repr=False, compare=False)  # seconds so far

    def __post_init__(self) -> None:
        check_table(self.bits)
        object.__setattr__(self, "window", _window(self.bits, self.ring.width))
        entries, step, modulus = [], gmpy2.mpz(self.base) % self.ring.number, self.ring.number
        for _ in range(-(-self.bits // self.window)):
            row = [gmpy2.mpz(1)]
            for _ in range((1 << self.window) - 1):
                row.append(row[-1] * step % modulus)
            entries.append(row)
            step = row[-1] * step % modulus
        object.__setattr__(self, "entries", entries)

    def powers(self, exponents: Rows, *, workers: int | None = None, aside: bool = False) -> Rows:
        """Multiply one entry of every list; large jobs are shared among processes, as the loop holds the GIL."""
        from tacit.crypto.workers import table_workers

        check_exponents(exponents, self.bits)
        count = workers or cores()
        if aside:
            helpers = table_workers(self.ring.modulus, self.base, self.bits, max(1, cores() - 1))
            return helpers.share(exponents, self._powers, here=False)
        seconds = len(exponents) * len(self.entries) * (self.ring.width / 512) ** 1.6 * 4.5e-6
        self.work[0] += seconds
        if count > 1 and seconds > _WORTH_SENDING and self.work[0] > _PROCESSES_FROM:
            helpers = table_workers(self.ring.modulus, self.base, self.bits, count - 1)
            return helpers.share(exponents, self._powers)
        return self._powers(exponents)

    def _powers(self, exponents: Rows) -> Rows:
        modulus, width = self.ring.number, self.ring.width
        first, *others = self.entries
        done = []
        for start in range(0, len(exponents), _CHUNK):
            first_digits, *other_digits = self._digits(exponents[start : start + _CHUNK])
            powers = [first[digit] for digit in first_digits]
            for row, digits in zip(others, other_digits, strict=True):  # one list of the table at a time stays in cache
                powers = [power * row[digit] % modulus for power, digit in zip(powers, digits, strict=True)]
            done += powers
        return _rows(done, width)

    def _digits(self, exponents: Rows) -> list[list[int]]:
        """Return the digits of all exponents place by place, least significant first."""
        bits = np.unpackbits(exponents[:, ::-1], axis=1, bitorder="little")
        count, places = len(exponents), len(self.entries)
        padded = np.zeros((count, places * self.window), np.uint8)
        shared = min(bits.shape[1], padded.shape[1])
        padded[:, :shared] = bits[:, :shared]
        weights = (1 << np.arange(self.window)).astype(np.float32)
        digits: list[list[int]] = (padded.reshape(count, places, self.window) @ weights).T.astype(np.intp).tolist()
        return digits


def _window(bits: int, width: int) -> int:
    """Return the widest digit whose table stays small."""
    window = 4
    while -(-bits // (window + 1)) * (2 << window) * width <= _TABLE_BYTES and window < 12:
        window += 1
    return window


@dataclass(frozen=True)
class GmpRing:
    """The integers modulo an odd number, computed by gmpy2."""

    modulus: int

    @functools.cached_property
    def number(self) -> Number:
        """The modulus as gmpy2 knows it."""
        return gmpy2.mpz(self.modulus)

    @functools.cached_property
    def width(self) -> int:
        """The bytes of a row."""
        return width_of(self.modulus)

    def _numbers(self, rows: Rows) -> list[Number]:
        check_below(rows, self.modulus)
        return _numbers(rows)

    def multiply(self, left: Rows, right: Rows, *, workers: int | None = None) -> Rows:
        """Multiply row by row; the loop holds the GIL, so ``workers`` changes nothing here."""
        del workers
        if 1 not in (len(left), len(right)):
            check_counts([left, right])
        modulus, a, b = self.number, self._numbers(left), self._numbers(right)
        if len(a) == 1 and len(b) != 1:
            a, b = b, a
        if len(b) == 1:
            (factor,) = b
            return _rows([x * factor % modulus for x in a], self.width)
        return _rows([x * y % modulus for x, y in zip(a, b, strict=True)], self.width)

    def product(self, vectors: Sequence[Rows], *, workers: int | None = None) -> Rows:
        """Multiply many vectors row by row; the loop holds the GIL, so ``workers`` changes nothing here."""
        del workers
        check_counts(vectors)
        for vector in vectors:
            check_below(vector, self.modulus)
        first, *others = vectors
        modulus, done = self.number, []
        for start in range(0, len(first), _BLOCK):
            block = slice(start, start + _BLOCK)
            total = _numbers(first[block])
            for vector in others:
                total = [x * y % modulus for x, y in zip(total, _numbers(vector[block]), strict=True)]
            done += total
        return _rows(done, self.width)

    def fold(self, rows: Rows) -> int:
        """Multiply all rows."""
        modulus, total = self.number, gmpy2.mpz(1)
        for number in self._numbers(rows):
            total = total * number % modulus
        return int(total)

    def power(self, bases: Rows, exponent: int, *, secret: bool, workers: int | None = None) -> Rows:
        """Raise every row to one exponent, in threads."""
        check_exponent(exponent)
        modulus, numbers, power = self.number, self._numbers(bases), gmpy2.mpz(exponent)
        if secret and exponent > 0:  # mpz_powm_sec wants an exponent of at least one

            def chunk(part: list[Number]) -> list[Number]:
                gmpy2.get_context().allow_release_gil = True
                return [gmpy2.powmod_sec(base, power, modulus) for base in part]
        else:

            def chunk(part: list[Number]) -> list[Number]:
                return list(gmpy2.powmod_base_list(part, power, modulus))

        return _rows(_threaded(chunk, numbers, workers or cores()), self.width)

    def affine(
        self,
        terms: Sequence[tuple[Rows, int]],
        constant: int,
        *,
        times: Rows | None = None,
        workers: int | None = None,
    ) -> Rows:
        """Compute the combination and reduce it once."""
        del workers
        count = check_counts([rows for rows, _ in terms] + ([] if times is None else [times]))
        modulus, sums = self.number, [gmpy2.mpz(constant)] * count
        for rows, factor in terms:
            k = gmpy2.mpz(factor)
            sums = [s + x * k for s, x in zip(sums, _numbers(rows), strict=True)]
        if times is None:
            return _rows([s % modulus for s in sums], self.width)
        return _rows([s * t % modulus for s, t in zip(sums, self._numbers(times), strict=True)], self.width)

    def inverse(self, rows: Rows) -> Rows:
        """Invert the product of all once and unfold it (Montgomery's trick): three multiplications per row."""
        modulus, numbers = self.number, self._numbers(rows)
        partial = [gmpy2.mpz(1)]
        for number in numbers:
            partial.append(partial[-1] * number % modulus)
        try:
            rest = gmpy2.invert(partial[-1], modulus)
        except ZeroDivisionError:
            where = next(place for place, x in enumerate(numbers) if gmpy2.gcd(x, modulus) != 1)
            raise CipherError(
                f"Number {where} of {len(numbers)} has a divisor in common with the modulus, expected one with an "
                "inverse: it is forged, or of another key."
            ) from None
        done = []
        for place in range(len(numbers) - 1, -1, -1):
            done.append(rest * partial[place] % modulus)
            rest = rest * numbers[place] % modulus
        return _rows(done[::-1], self.width)

    def table(self, base: int, *, bits: int) -> GmpTable:
        """Build the table of a base."""
        return GmpTable(self, base, bits)


def _threaded(chunk: Callable[[list[Number]], list[Number]], numbers: list[Number], workers: int) -> list[Number]:
    workers = min(workers, len(numbers))
    if workers <= 1:
        return chunk(numbers)
    step = -(-len(numbers) // (4 * workers))
    parts = [numbers[start : start + step] for start in range(0, len(numbers), step)]
    with ThreadPoolExecutor(workers) as pool:
        return [power for part in pool.map(chunk, parts) for power in part]


@dataclass(frozen=True)
class GmpBackend:
    """Rings by gmpy2."""

    name: str = "gmpy2"

    def ring(self, modulus: int) -> GmpRing:
        """Return the ring of ``modulus``."""
        check_modulus(modulus)
        return GmpRing(modulus)

    def quotient(self, rows: Rows, divisor: int, *, workers: int | None = None) -> Rows:
        """Divide exactly."""
        del workers
        check_divisor(divisor)
        number = gmpy2.mpz(divisor)
        return _rows([gmpy2.divexact(x, number) for x in _numbers(rows)], width_of(divisor))
