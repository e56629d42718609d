from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.crypto.backend import backend
from tacit.crypto.batch import COEFFICIENT_BYTES, coefficients, combined
from tacit.crypto.ring import from_integers, random_below, to_integers
from tacit.randomness import system_bytes
from tests.crypto.threshold.common import SMALL, TINY

N = SMALL[0] * SMALL[1]


@pytest.mark.parametrize("count", [1, 2, 16, 17, 60, 1023, 1025, 2100])
def test_it_is_the_product_of_powers(count: int) -> None:
    modulus = TINY[0] * TINY[1] if count > 100 else N
    ring = backend().ring(modulus)
    rows, exponents = random_below(modulus, count), coefficients(system_bytes(count * COEFFICIENT_BYTES))
    expected = 1
    for base, exponent in zip(to_integers(rows), to_integers(exponents), strict=True):
        expected = expected * pow(base, exponent, modulus) % modulus
    assert combined(ring, rows, exponents) == expected


@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize("value", [0, 1, 15, 16, 2**128 - 1])
def test_exponents_at_the_edges(count: int, value: int) -> None:
    ring = backend().ring(N)
    rows = random_below(N, count)
    exponents = from_integers([value] * count, COEFFICIENT_BYTES)
    assert combined(ring, rows, exponents) == pow(math.prod(to_integers(rows)), value, N)


@pytest.mark.parametrize("count", [5, 30])
def test_one_exponent_differs(count: int) -> None:
    ring = backend().ring(N)
    rows = random_below(N, count)
    for place in range(count):
        exponents = np.zeros((count, COEFFICIENT_BYTES), np.uint8)
        exponents[place] = from_integers([3 + (place << 70)], COEFFICIENT_BYTES)[0]
        assert combined(ring, rows, exponents) == pow(to_integers(rows)[place], 3 + (place << 70), N)


def test_every_row_needs_an_exponent() -> None:
    for count in (3, 40):
        with pytest.raises(ValueError, match=f"{count} rows came with 2 exponents"):
            combined(backend().ring(N), random_below(N, count), coefficients(system_bytes(2 * COEFFICIENT_BYTES)))
