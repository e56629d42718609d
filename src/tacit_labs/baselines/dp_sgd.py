r"""DP-SGD as ``004_a69ec1a5888a3c07.txt`` has it: logistic regression by full-batch steps. For comparison only.

Each of k steps gets :math:`\delta_u = \delta/(k+1)`, and :math:`\varepsilon_u` from advanced composition in two
substitutions; the sum of the clipped gradients gets the classical noise for that share. In the author's public code the
bias moves by its exact gradient; here it can be clipped and noised with the weights, as it must be for any epsilon to
hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Loss = Literal["cross-entropy", "squared"]
TAU = 1e-6  # keeps the slope of the cross-entropy finite; the report names it, and its public code has this value


@dataclass(frozen=True, kw_only=True)
class Share:
    """What each step may cost."""

    epsilon: float
    delta: float


def share(*, epsilon: float, delta: float, steps: int) -> Share:
    """Return the share of each step; delta may be 1, which promises nothing.

    >>> found = share(epsilon=1.0, delta=1e-3, steps=1000)
    >>> round(found.epsilon, 6), found.delta == 1e-3 / 1001
    (0.005805, True)
    """
    small = delta / (steps + 1)
    root = math.sqrt(2.0 * steps * math.log(1.0 / small))
    too_large = epsilon / root
    return Share(epsilon=epsilon / (root + steps * math.expm1(too_large)), delta=small)


def total(each: Share, steps: int) -> float:
    """Return the epsilon of all steps by advanced composition, with the slack that one share of delta gives."""
    root = math.sqrt(2.0 * steps * math.log(1.0 / each.delta))
    return root * each.epsilon + steps * each.epsilon * math.expm1(each.epsilon)


def noise_multiplier(*, epsilon: float, delta: float, steps: int) -> float:
    """Return the standard deviation of the noise on the sum of gradients clipped to 1.

    >>> round(noise_multiplier(epsilon=1.0, delta=1e-3, steps=1000), 1)
    912.8
    """
    each = share(epsilon=epsilon, delta=delta, steps=steps)
    return math.sqrt(2.0 * math.log(1.25 / each.delta)) / each.epsilon


@dataclass(frozen=True, kw_only=True)
class Training:
    """One way to train."""

    steps: int
    lr: float = 0.01
    clip: float | None = None  # None is the report's "Normal": no clipping and no noise
    noise_multiplier: float = 0.0
    loss: Loss = "cross-entropy"
    protected_bias: bool = False  # whether the bias is clipped and noised as a weight is


def normal_of(seed: int) -> Callable[[int], Array]:
    """Return what ``np.random.seed(seed)`` makes ``np.random.normal`` draw: the report's own noise, seed by seed."""
    return np.random.RandomState(seed).standard_normal


def fit(
    features: Array,
    labels: Array,
    training: Training,
    draw: Callable[[int], Array],
    look: Callable[[int, Array, float], None],
) -> None:
    """Train from zero weights; ``look`` sees step, weights and bias after every step."""
    rows = np.column_stack([features, np.ones(len(features))]) if training.protected_bias else features
    count, width = rows.shape
    weights, bias = np.zeros(width), 0.0
    for step in range(1, training.steps + 1):
        slopes = _slopes(rows @ weights + bias, labels, training.loss)
        if training.clip is None:
            gradient = rows.T @ slopes / count
        else:
            each = rows * slopes[:, None]
            lengths = np.sqrt(np.einsum("ij,ij->i", each, each))
            clipped = each / np.maximum(1.0, lengths / training.clip)[:, None]
            noise = training.noise_multiplier * training.clip * draw(width)
            gradient = (clipped.sum(axis=0) + noise) / count
        weights -= training.lr * gradient
        if not training.protected_bias:
            bias -= training.lr * float(slopes.mean())
        look(step, weights, bias if not training.protected_bias else float(weights[-1]))


def _slopes(logits: Array, labels: Array, loss: Loss) -> Array:
    """Return how the loss of each example changes with its logit."""
    share_of_one = 1.0 / (1.0 + np.exp(-np.clip(logits, -500.0, 500.0)))
    if loss == "squared":
        slope = share_of_one - labels
    else:
        slope = (1.0 - labels) / (1.0 - share_of_one + TAU) - labels / (share_of_one + TAU)
    found: Array = slope * share_of_one * (1.0 - share_of_one)
    return found
