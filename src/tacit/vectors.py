"""A model, an update, a sum: each is one flat vector of float32."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]


def norm(vector: Vector) -> float:
    r"""Return :math:`\lVert v \rVert_2`, accumulated in float64.

    >>> norm(np.array([3.0, 4.0], np.float32))
    5.0
    """
    return float(np.sqrt(np.dot(vector.astype(np.float64), vector.astype(np.float64))))


def first_not_finite(vector: Vector) -> int | None:
    """Return the first coordinate that is NaN or infinite, or None.

    >>> first_not_finite(np.array([0.0, np.inf], np.float32))
    1
    """
    finite = np.isfinite(vector)
    return None if finite.all() else int(np.argmin(finite))
