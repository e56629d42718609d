"""A model, an update, a sum: each is one flat vector of float32."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Integers = NDArray[np.int64]  # what is summed where sums must be exact


def norm(vector: Vector) -> float:
    r"""Return :math:`\lVert v \rVert_2`, accumulated in float64.

    >>> norm(np.array([3.0, 4.0], np.float32))
    5.0
    """
    return float(np.sqrt(np.square(vector, dtype=np.float64).sum()))


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
    return (vector * np.float64(bound / length * (1.0 - 2.0**-23))).astype(np.float32), False
