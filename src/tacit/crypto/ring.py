"""Rows of large numbers, and arithmetic modulo one number on them: what the schemes and whoever computes share.

**Rows** are many large numbers as one contiguous array of big-endian bytes, one number per row. Ciphertexts travel and
rest in this form. No Python object per number exists outside a backend's inner loop.

A :class:`Ring` is the integers modulo an odd number; a :class:`Table` holds the powers of one base, so that raising
it to many exponents takes no squarings. Rows that go in are numbers below the modulus unless a method says
otherwise, or a ValueError is raised; rows that come out are reduced, and as wide as the modulus. ``workers`` is how
many threads or processes may share the work, None as many as there are cores. Two backends implement the interface
(:mod:`tacit.crypto.native`, :mod:`tacit.crypto.gmp`); what both refuse, they refuse by the checks at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.progress import told
from tacit.randomness import system_bytes

Rows = NDArray[np.uint8]  # (count, width)
BLOCK = 1 << 12  # rows handled at once, so that a long vector needs little beyond itself on the way


def row_blocks(count: int) -> Iterator[slice]:
    """Yield the parts of ``count`` rows that are handled at once.

    >>> list(row_blocks(5))
    [slice(0, 5, None)]
    """
    for start in range(0, count, BLOCK):
        yield slice(start, min(start + BLOCK, count))


def in_blocks(count: int, compute: Callable[[slice], Rows], what: str = "") -> Rows:
    """Return what ``compute`` gives for all of ``count`` rows, asked for a block at a time.

    >>> in_blocks(3, lambda part: from_integers(range(3), 1)[part]).tolist()
    [[0], [1], [2]]

    Args:
        count: how many rows.
        compute: returns a block of them.
        what: what people call it who wait for it (:mod:`tacit.progress`); empty where it never takes long.
    """
    if count <= BLOCK:
        return compute(slice(0, count))
    rows: Rows | None = None
    for part in row_blocks(count):
        some = compute(part)
        if rows is None:
            rows = np.empty((count, some.shape[1]), np.uint8)
        rows[part] = some
        if what:
            told(what, part.stop / count)
    assert rows is not None, "there is a block at least"
    return rows


def width_of(modulus: int) -> int:
    """Return how many bytes ``modulus`` has, and so every number below it."""
    return (modulus.bit_length() + 7) // 8


def from_integers(numbers: Iterable[int], width: int) -> Rows:
    """Return non-negative integers as rows of ``width`` bytes.

    >>> from_integers([1, 258], 2).tolist()
    [[0, 1], [1, 2]]
    """
    raw = b"".join([int(number).to_bytes(width, "big") for number in numbers])
    return np.frombuffer(raw, np.uint8).reshape(-1, width)


def to_integers(rows: Rows) -> list[int]:
    """Return the rows as integers."""
    raw, width = rows.tobytes(), rows.shape[1]
    return [int.from_bytes(raw[start : start + width], "big") for start in range(0, len(raw), width)]


def widened(rows: Rows, width: int) -> Rows:
    """Return the same numbers in rows of at least as many bytes."""
    if rows.shape[1] == width:
        return rows
    wide = np.zeros((len(rows), width), np.uint8)
    wide[:, width - rows.shape[1] :] = rows
    return wide


def random_below(bound: int, count: int) -> Rows:
    """Return ``count`` uniform numbers in [0, bound) from the operating system, in rows as wide as the largest.

    Candidates of as many bits as the largest are drawn, and those that are not below the bound are drawn again.
    """
    width, spare = width_of(bound - 1), -(bound - 1).bit_length() % 8
    rows = np.empty((count, width), np.uint8)
    missing = np.arange(count)
    while len(missing):
        drawn = np.frombuffer(system_bytes(len(missing) * width), np.uint8).reshape(-1, width).copy()
        drawn[:, 0] >>= spare
        rows[missing] = drawn
        missing = missing[not_below(drawn, bound)]
    return rows


def not_below(rows: Rows, bound: int) -> NDArray[np.intp]:
    """Return the places of the rows that are not below ``bound``.

    >>> not_below(from_integers([0, 6, 7, 255], 1), 7).tolist()
    [2, 3]
    """
    count, width = rows.shape
    if bound >> (8 * width):
        return np.empty(0, np.intp)
    edge = np.frombuffer(bound.to_bytes(width, "big"), np.uint8)
    undecided = np.arange(count)
    outside = []
    for column in range(width):  # ends after a column or two: equal bytes are rare
        if not len(undecided):
            break
        byte = rows[undecided, column]
        outside.append(undecided[byte > edge[column]])
        undecided = undecided[byte == edge[column]]
    outside.append(undecided)  # equal to the bound
    return np.sort(np.concatenate(outside))


def zeros(rows: Rows) -> NDArray[np.intp]:
    """Return the places of the rows that are zero."""
    return np.nonzero(~rows.any(axis=1))[0]


class Table(Protocol):
    r"""Powers of a fixed base: :math:`b^e = \prod_i b^{e_i 2^{wi}}` one look-up per digit (Brickell et al. 1992)."""

    @property
    def bits(self) -> int:
        """The length of the longest exponent."""
        ...

    def powers(self, exponents: Rows, *, workers: int | None = None, aside: bool = False) -> Rows:
        """Return the base to each exponent; exponents are secret, of at most ``bits`` bits.

        With ``aside`` other threads of the process are not held up meanwhile, even where that takes another process.
        """
        ...


class Ring(Protocol):
    """The integers modulo an odd number."""

    @property
    def modulus(self) -> int:
        """The number everything is reduced by."""
        ...

    @property
    def width(self) -> int:
        """The bytes of a row."""
        ...

    def multiply(self, left: Rows, right: Rows, *, workers: int | None = None) -> Rows:
        """Return the products row by row; a single row on one side is multiplied with every row of the other."""
        ...

    def product(self, vectors: Sequence[Rows], *, workers: int | None = None) -> Rows:
        """Return the product of many vectors row by row, such as the sum of many clients' ciphertexts."""
        ...

    def fold(self, rows: Rows) -> int:
        """Return the product of all rows."""
        ...

    def power(self, bases: Rows, exponent: int, *, secret: bool, workers: int | None = None) -> Rows:
        """Return every base to one non-negative exponent, in time that tells nothing of it where it is ``secret``."""
        ...

    def affine(
        self,
        terms: Sequence[tuple[Rows, int]],
        constant: int,
        *,
        times: Rows | None = None,
        workers: int | None = None,
    ) -> Rows:
        r"""Return :math:`(\sum_j x_j k_j + c) \cdot t` row by row.

        The rows :math:`x_j` may be of any width, and so larger than the modulus: ``affine([(x, 1)], 0)`` reduces.
        """
        ...

    def inverse(self, rows: Rows) -> Rows:
        """Return the inverse of every row; raise CipherError where a row has none."""
        ...

    def table(self, base: int, *, bits: int) -> Table:
        """Return the table for powers of ``base`` with exponents of at most ``bits`` bits."""
        ...


class Backend(Protocol):
    """Makes rings."""

    @property
    def name(self) -> str:
        """What `TACIT_CRYPTO_BACKEND` calls it."""
        ...

    def ring(self, modulus: int) -> Ring:
        """Return the ring of the integers modulo an odd ``modulus`` > 1."""
        ...

    def quotient(self, rows: Rows, divisor: int, *, workers: int | None = None) -> Rows:
        """Return every row divided by an odd ``divisor`` that divides it, in rows as wide as the divisor."""
        ...


def check_modulus(modulus: int) -> None:
    """Refuse what is no modulus of a ring here."""
    if modulus < 3 or modulus % 2 == 0:
        shown = hex(modulus) if modulus.bit_length() <= 64 else f"an even number of {modulus.bit_length()} bits"
        raise ValueError(f"The modulus is {shown}, expected an odd number of at least 3.")


def check_divisor(divisor: int) -> None:
    """Refuse a divisor that has no inverse modulo a power of two."""
    if divisor < 1 or divisor % 2 == 0:
        raise ValueError("The divisor is even or not positive, expected an odd number of at least 1.")


def check_counts(vectors: Sequence[Rows]) -> int:
    """Return how many rows all vectors have."""
    counts = [len(vector) for vector in vectors]
    if not counts:
        raise ValueError("No vector was given, expected at least one.")
    if len(set(counts)) > 1:
        raise ValueError(f"The vectors have {counts} rows, expected the same number in each.")
    return counts[0]


def check_below(rows: Rows, modulus: int) -> None:
    """Refuse rows that are not reduced."""
    outside = not_below(rows, modulus)
    if len(outside):
        raise ValueError(
            f"{len(outside)} of {len(rows)} rows are not below the modulus (the first is row {outside[0]}), expected "
            "reduced numbers: `affine([(rows, 1)], 0)` reduces them."
        )


def check_exponent(exponent: int) -> None:
    """Refuse a negative exponent; its value may be secret."""
    if exponent < 0:
        raise ValueError("The exponent is negative, expected at least 0: invert the bases first.")


def check_table(bits: int) -> None:
    """Refuse a table for no exponents."""
    if bits < 1:
        raise ValueError(f"The table is for exponents of {bits} bits, expected at least 1.")


def check_exponents(exponents: Rows, bits: int) -> None:
    """Refuse exponents that a table of ``bits`` bits does not reach."""
    outside = not_below(exponents, 1 << bits)
    if len(outside):
        raise ValueError(
            f"{len(outside)} of {len(exponents)} exponents have more than {bits} bits (the first is number "
            f"{outside[0]}), expected none: build the table for longer ones."
        )
