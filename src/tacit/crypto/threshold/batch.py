r"""Many equations in one: the product of all rows to random small exponents.

Where :math:`a_j = b_j` has to hold for every row j, it is enough to look at
:math:`\prod_j a_j^{\rho_j} = \prod_j b_j^{\rho_j}` with random :math:`\rho_j` of 128 bits that nobody knew when the
rows were fixed (Bellare, Garay and Rabin 1998). If some :math:`z_j = a_j / b_j` is not one, then whatever the other
exponents are, at most one :math:`\rho_j` modulo the order of :math:`z_j` makes the products equal. In general an
order can be small, and then this fails (Boyd and Pavlovski 2000). Here all :math:`z_j` are squares modulo a product
of two safe primes 2p'+1 and 2q'+1, where every order but one is at least the smaller of p' and q': both are longer
than 128 bits for every key that may be used, so the chance is at most :math:`2^{-128}`.
"""

from __future__ import annotations

from collections.abc import Iterator

import gmpy2
import numpy as np
from numpy.typing import NDArray

from tacit.crypto.ring import Ring
from tacit.crypto.rows import Rows, from_integers, to_integers

COEFFICIENT_BYTES = 16

_PLACES = 2 * COEFFICIENT_BYTES  # digits of four bits
_DIGITS = 15  # that are not zero
_FEW = 16  # rows up to which each is raised on its own
_CHUNK = 1024  # rows whose products are laid out at once


def coefficients(stream: bytes) -> Rows:
    """Return random bytes as one exponent a row."""
    return np.frombuffer(stream, np.uint8).reshape(-1, COEFFICIENT_BYTES)


def combined(ring: Ring, rows: Rows, exponents: Rows) -> int:
    r"""Return :math:`\prod_j x_j^{\rho_j}`.

    Rows with the same digit d at the same place are multiplied first, then those products to the power of their
    digits, by running products from the largest digit down: one product a row and place, and two a digit and place
    (Pippenger 1976). All places go together.
    """
    modulus, result = gmpy2.mpz(ring.modulus), gmpy2.mpz(1)
    if len(rows) <= _FEW:
        for number, exponent in zip(to_integers(rows), to_integers(exponents), strict=True):
            result = result * gmpy2.powmod(number, exponent, modulus) % modulus
        return int(result)
    digits = np.stack([exponents >> 4, exponents & 15], axis=2).reshape(-1, _PLACES)
    products = np.repeat(from_integers([1], ring.width), _PLACES * _DIGITS, axis=0)
    for start in range(0, len(rows), _CHUNK):
        layers = _layers(rows[start : start + _CHUNK], digits[start : start + _CHUNK])
        products = ring.product([products, *layers])
    by_place = products.reshape(_PLACES, _DIGITS, -1)
    running = powers = by_place[:, _DIGITS - 1]
    for digit in range(_DIGITS - 2, -1, -1):
        running = ring.multiply(running, by_place[:, digit])
        powers = ring.multiply(powers, running)
    for power in to_integers(powers):  # the most significant place first
        result = gmpy2.powmod(result, 16, modulus) * power % modulus
    return int(result)


def _layers(rows: Rows, digits: NDArray[np.uint8]) -> Iterator[Rows]:
    """Yield vectors with one entry a place and digit, whose product holds every row where its digits are."""
    row, place = np.nonzero(digits)
    target = place * _DIGITS + digits[row, place] - 1
    order = np.argsort(target, kind="stable")
    row, target = row[order], target[order]
    rank = np.arange(len(target)) - np.searchsorted(target, target)  # how many before it go to the same entry
    one = from_integers([1], rows.shape[1])
    for layer in range(int(rank.max(initial=-1)) + 1):
        entries = np.repeat(one, _PLACES * _DIGITS, axis=0)
        now = rank == layer
        entries[target[now]] = rows[row[now]]
        yield entries
