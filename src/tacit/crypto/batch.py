r"""Products of many powers, :math:`\prod_j x_j^{\rho_j}`: how one equation stands for one per row.

Where :math:`a_j = b_j` has to hold for every row j, it is enough to look at :math:`\prod_j a_j^{\rho_j} = \prod_j
b_j^{\rho_j}` with random :math:`\rho_j` of 128 bits that nobody knew when the rows were fixed (Bellare, Garay and Rabin
1998). Whoever does so has to say which orders elements can have: in a group with small ones it fails (Boyd and
Pavlovski 2000).
"""

from __future__ import annotations

import gmpy2
import numpy as np
from numpy.typing import NDArray

from tacit.crypto.ring import Ring, Rows, from_integers, to_integers

COEFFICIENT_BYTES = 16

_FEW = 16  # rows up to which each is raised on its own
_PLACES = 2 * COEFFICIENT_BYTES  # digits of four bits: of eight, fewer products and more memory take as long
_DIGITS = 15  # that are not zero
_CHUNK = 1024  # rows whose products are laid out at once
_ALIKE = 48  # products that are extended at once: those with about as many rows, so that few are multiplied with one


def coefficients(stream: bytes) -> Rows:
    """Return random bytes as one exponent per row."""
    return np.frombuffer(stream, np.uint8).reshape(-1, COEFFICIENT_BYTES)


def combined(ring: Ring, rows: Rows, exponents: Rows, *, workers: int | None = None) -> int:
    r"""Return :math:`\prod_j x_j^{\rho_j}`.

    Rows with the same digit d at the same place are multiplied first, then those products to the power of their
    digits, by running products from the largest digit down: one product per row and place, and two per digit and place
    (Pippenger 1976). All places go together.
    """
    modulus, result = gmpy2.mpz(ring.modulus), gmpy2.mpz(1)
    if len(rows) != len(exponents):
        raise ValueError(f"{len(rows)} rows came with {len(exponents)} exponents, expected one for each.")
    if len(rows) <= _FEW:
        for number, exponent in zip(to_integers(rows), to_integers(exponents), strict=True):
            result = result * gmpy2.powmod(number, exponent, modulus) % modulus
        return int(result)
    digits = np.stack([exponents >> 4, exponents & 15], axis=2).reshape(-1, _PLACES)
    products = np.repeat(from_integers([1], ring.width), _PLACES * _DIGITS, axis=0)
    for start in range(0, len(rows), _CHUNK):
        part = slice(start, start + _CHUNK)
        _multiply_in(ring, products, rows[part], digits[part], workers)
    by_place = products.reshape(_PLACES, _DIGITS, -1)
    running = powers = by_place[:, _DIGITS - 1]
    for digit in range(_DIGITS - 2, -1, -1):
        running = ring.multiply(running, by_place[:, digit], workers=workers)
        powers = ring.multiply(powers, running, workers=workers)
    for power in to_integers(powers):  # the most significant place first
        result = gmpy2.powmod(result, 16, modulus) * power % modulus
    return int(result)


def _multiply_in(ring: Ring, products: Rows, rows: Rows, digits: NDArray[np.uint8], workers: int | None) -> None:
    """Multiply every row into the products of its digits, those with about as many rows at a time."""
    row, place = np.nonzero(digits)
    target = place * _DIGITS + digits[row, place] - 1
    row = row[np.argsort(target, kind="stable")]
    counts = np.bincount(target, minlength=len(products))
    firsts = np.cumsum(counts) - counts
    fullest = np.argsort(-counts, kind="stable")
    for start in range(0, len(products), _ALIKE):
        some = fullest[start : start + _ALIKE]
        layers = [products[some]]
        for layer in range(int(counts[some[0]])):
            there = counts[some] > layer
            entries = np.zeros((len(some), ring.width), np.uint8)
            entries[:, -1] = 1
            entries[there] = rows[row[firsts[some[there]] + layer]]
            layers.append(entries)
        products[some] = ring.product(layers, workers=workers)
