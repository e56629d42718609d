"""A model, an update, a sum: each is one flat vector of float32.

A vector may be a good part of a machine's memory. What needs more than one number at a time in double precision goes
over it in :func:`blocks`, so that it takes little beside the vector itself; sums take vectors as they come
(:class:`ExactSum`) and keep none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Integers = NDArray[np.int64]  # what is summed where sums must be exact

_BLOCK = 1 << 20  # numbers that are computed with at a time
_CACHED = 1 << 15  # numbers of a sum: the block and what is computed beside it stay in the cache


def blocks(length: int, size: int = _BLOCK) -> Iterator[slice]:
    """Yield the parts of a vector, one after another.

    >>> list(blocks(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))


def norm(vector: Vector) -> float:
    r"""Return :math:`\lVert v \rVert_2`, accumulated in float64.

    >>> norm(np.array([3.0, 4.0], np.float32))
    5.0
    """
    squares = [float(np.square(vector[part], dtype=np.float64).sum()) for part in blocks(len(vector))]
    return math.sqrt(sum(squares))


def first_not_finite(vector: Vector) -> int | None:
    """Return the first coordinate that is NaN or infinite, or None.

    >>> first_not_finite(np.array([0.0, np.inf], np.float32))
    1
    """
    finite = np.isfinite(vector)
    return None if finite.all() else int(np.argmin(finite))


def finite(vector: Vector) -> Vector:
    """Return the vector, or zeros if a number of it is NaN or infinite.

    So a client that claims privacy treats an update it can't use: it takes part with one that says nothing, where a
    failure would tell everybody of its data.

    >>> finite(np.array([1.0, np.nan], np.float32))
    array([0., 0.], dtype=float32)
    """
    return vector if np.isfinite(vector).all() else np.zeros_like(vector)


def clip_factors(norms: NDArray[np.float64], bound: float) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return what :func:`clipped` multiplies vectors of these norms with, and which were within the bound already.

    >>> clip_factors(np.array([0.5, 2.0, np.inf]), 1.0)[0].round(3)
    array([1. , 0.5, 0. ])
    """
    within = norms <= bound
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = np.where(within, 1.0, bound / norms * (1.0 - 2.0**-23))
    return np.where(np.isfinite(norms), factors, 0.0), within


def clipped(vector: Vector, bound: float) -> tuple[Vector, bool]:
    r"""Return :math:`v \min(1, C / \lVert v \rVert_2)` as a new vector, and whether it was within the bound already.

    The scale is smaller by :math:`2^{-23}`, more than rounding to float32 can add, so that the result's norm is at most
    the bound and not a rounding error more. A vector that is not finite has no direction and becomes zero.

    >>> vector, within = clipped(np.array([3.0, 4.0], np.float32), 1.0)
    >>> vector.round(4), norm(vector) <= 1.0, within
    (array([0.6, 0.8], dtype=float32), True, False)
    >>> clipped(np.zeros(2, np.float32), 1.0)
    (array([0., 0.], dtype=float32), True)
    """
    length = norm(vector)
    if not math.isfinite(length):
        return np.zeros_like(vector), False
    if length <= bound:
        return vector.copy(), True
    return scaled(vector, bound / length * (1.0 - 2.0**-23)), False


def scaled(vector: Vector | NDArray[np.float64] | Integers, factor: float, divisor: float = 1.0) -> Vector:
    """Return the vector times a factor, over a divisor, computed in double precision and rounded once.

    >>> scaled(np.array([1.0, 2.0]), 1.0, 3.0)
    array([0.33333334, 0.6666667 ], dtype=float32)
    """
    found = np.empty(len(vector), np.float32)
    for part in blocks(len(vector)):
        found[part] = vector[part] * np.float64(factor) / np.float64(divisor)
    return found


class ExactSum:
    r"""Adds vectors of float32 that come one by one, without rounding: whatever their order, the sum has the same bits.

    A second vector keeps what the first loses: with :math:`s = \mathrm{fl}(h + x)` the error :math:`(h + x) - s` is a
    float64 itself (Knuth's two-sum), and these errors are added up exactly as long as the numbers of a coordinate, of
    which there are n, are larger than its largest sum by a factor of :math:`2^{-82} n`. Then :meth:`value` is the true
    sum, rounded once. What is smaller than that may be lost, as it would be lost in float64.

    >>> total = ExactSum(1)
    >>> for number in (1e20, 1.0, -1e20):
    ...     total.add(np.array([number], np.float32))
    >>> total.value(), total.value()
    (array([1.]), array([1.]))
    """

    def __init__(self, length: int) -> None:
        self._high, self._low = np.zeros(length), np.zeros(length)
        self._rooms = [np.empty(min(length, _CACHED)) for _ in range(3)]

    def add(self, vector: Vector) -> None:
        """Add a vector of finite numbers; from one thread at a time."""
        for part in blocks(len(self._high), _CACHED):
            high = self._high[part]
            own, after, back = (room[: len(high)] for room in self._rooms)
            own[:] = vector[part]
            np.add(high, own, out=after)
            np.subtract(after, high, out=back)  # what of own is in the sum
            np.subtract(own, back, out=own)  # and what is not
            np.subtract(after, back, out=back)
            np.subtract(high, back, out=back)
            np.add(own, back, out=own)
            if own.any():  # which is rare: then the second vector takes memory
                self._low[part] += own
            high[:] = after

    def value(self) -> NDArray[np.float64]:
        """Return the sum so far, which goes on being this object's: copy it to keep it while more is added."""
        self._high += self._low
        self._low = np.zeros(len(self._high))  # untouched it takes no memory
        return self._high
