r"""Sets of coordinates as single numbers: the shortest code there is for a set of known size.

A set :math:`c_1 < \dots < c_h` of coordinates below d has the rank :math:`\sum_i \binom{c_i}{i}`, and every number
below :math:`\binom dh` is the rank of exactly one set (the combinatorial number system; Cover, "Enumerative source
encoding", 1973). So a set takes :math:`\lceil \log_2 \binom dh \rceil` bits, and nothing but a set of h different
coordinates below d can be written down: order and repetitions have no code.

To decode, the largest c with :math:`\binom ci \le r` is guessed from the logarithm of r and then corrected with exact
integers, so that one or two binomials a coordinate are computed instead of twenty.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError, WireError

Indices = NDArray[np.int64]


@functools.lru_cache(maxsize=64)
def sets(dimensions: int, chosen: int) -> int:
    """Return how many sets of ``chosen`` coordinates below ``dimensions`` there are."""
    if not 0 < chosen <= dimensions:
        raise ConfigError(f"Expected 1 to {dimensions} chosen coordinates of {dimensions}, got {chosen}.")
    return math.comb(dimensions, chosen)


def code_bits(dimensions: int, chosen: int) -> int:
    """Return how many bits the rank of a set takes.

    >>> code_bits(66_404, 176), code_bits(21_840, 14)
    (1756, 166)
    """
    return (sets(dimensions, chosen) - 1).bit_length()


def check(indices: Indices, *, dimensions: int, chosen: int) -> None:
    """Refuse indices that are not ``chosen`` different coordinates below ``dimensions`` in ascending order."""
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise WireError(f"Expected one row of whole numbers, got shape {indices.shape} of {indices.dtype}.")
    if len(indices) != chosen:
        raise WireError(f"Expected {chosen} coordinates, got {len(indices)}.")
    if indices[0] >= 0 and indices[-1] < dimensions and (indices[1:] > indices[:-1]).all():
        return
    outside = (indices < 0) | (indices >= dimensions)
    if outside.any():
        raise WireError(f"Coordinate {indices[outside][0]} is out of range: expected 0 to {dimensions - 1}.")
    steps = np.diff(indices)
    if (steps == 0).any():
        raise WireError(f"Coordinate {indices[:-1][steps == 0][0]} is there twice: expected different ones.")
    if (steps < 0).any():
        where = int(np.argmax(steps < 0))
        raise WireError(
            f"Coordinate {indices[where]} comes before {indices[where + 1]}: expected ascending order, because an "
            "order of the sender's choice could carry something."
        )


def rank(indices: Indices, *, dimensions: int, chosen: int) -> int:
    """Return the number of a set.

    >>> rank(np.array([0, 4, 7]), dimensions=8, chosen=3)
    41
    """
    check(indices, dimensions=dimensions, chosen=chosen)
    return sum(math.comb(coordinate, place) for place, coordinate in enumerate(indices.tolist(), start=1))


def unrank(number: int, *, dimensions: int, chosen: int) -> Indices:
    """Return the set with a number, its coordinates in ascending order.

    >>> unrank(41, dimensions=8, chosen=3)
    array([0, 4, 7])
    """
    count = sets(dimensions, chosen)
    if not 0 <= number < count:
        raise WireError(
            f"There are {_power(count)} sets of {chosen} coordinates out of {dimensions}, and the number is beyond "
            "the last: a coordinate would be out of range."
        )
    indices = np.empty(chosen, np.int64)
    below = dimensions
    for place in range(chosen, 0, -1):
        below, binomial = _largest(number, place, below)
        number -= binomial
        indices[place - 1] = below
    return indices


def _largest(number: int, place: int, below: int) -> tuple[int, int]:
    """Return the largest c under ``below`` with C(c, place) at most ``number``, and that binomial."""
    if number == 0:
        return place - 1, 0
    c = min(max(int(_guess(number, place)), place), below - 1)
    binomial = math.comb(c, place)
    while binomial > number:
        binomial = binomial * (c - place) // c
        c -= 1
    while c + 1 < below:
        following = binomial * (c + 1) // (c + 1 - place)
        if following > number:
            break
        c, binomial = c + 1, following
    return c, binomial


def _guess(number: int, place: int) -> float:
    """Return about the c with C(c, place) equal to ``number``: with x = c - (i-1)/2, i! C(c, i) is nearly x^i."""
    log_power = (math.log(number) + math.lgamma(place + 1.0)) / place
    x = math.exp(log_power)
    second, fourth = (place**2 - 1) / 24.0, (place**2 - 1) * (3 * place**2 - 7) / 960.0
    for _ in range(2):
        x = math.exp(log_power + min(second / x**2 + fourth / x**4, 1.0))
    return x + (place - 1) / 2.0


def _power(count: int) -> str:
    return str(count) if count < 10**9 else f"about 2^{count.bit_length() - 1}"
