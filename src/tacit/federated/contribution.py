"""What a client adds to the sum: its weighted update, its weight and its weighted loss, in one vector.

The weight is folded in before the vector leaves the client, and the sum of weights has a slot of its own, so that a
protocol only ever adds vectors: the same layout serves a sum in the clear and a sum under encryption.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tacit.vectors import Vector

Weighting = Literal["examples", "uniform"]
_EXTRA = 2


@dataclass(frozen=True, kw_only=True)
class Average:
    """What the sum of contributions says."""

    update: Vector
    weight: float
    loss: float


def length(parameters: int) -> int:
    """Return the length of a contribution for a model of ``parameters``."""
    return parameters + _EXTRA


def pack(update: Vector, *, weight: float, loss: float) -> Vector:
    """Return the vector a client adds to the sum."""
    contribution = np.empty(len(update) + _EXTRA, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows here the server refuses by name
        np.multiply(update, np.float32(weight), out=contribution[:-_EXTRA])
        contribution[-_EXTRA:] = weight, weight * loss
    return contribution


def average(total: NDArray[np.float64]) -> Average:
    """Return the weighted mean of the updates and losses.

    >>> total = pack(np.ones(2, np.float32), weight=3, loss=1) + pack(np.zeros(2, np.float32), weight=1, loss=5)
    >>> average(total.astype(float))
    Average(update=array([0.75, 0.75], dtype=float32), weight=4.0, loss=2.0)
    """
    weight = float(total[-2])
    return Average(update=(total[:-_EXTRA] / weight).astype(np.float32), weight=weight, loss=float(total[-1]) / weight)
