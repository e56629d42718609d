"""Arithmetic modulo one odd number on rows: the one interface between the schemes and whoever computes.

A :class:`Ring` is the integers modulo an odd number; a :class:`Table` holds the powers of one base, so that raising
it to many exponents takes no squarings. Rows that go in are numbers below the modulus unless a method says
otherwise, or a ValueError is raised; rows that come out are reduced, and as wide as the modulus. ``workers`` is how
many threads or processes may share the work, None as many as there are cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tacit.crypto.rows import Rows


class Table(Protocol):
    r"""Powers of a fixed base: :math:`b^e = \prod_i b^{e_i 2^{wi}}` with one look-up a digit (Brickell et al. 1992)."""

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
