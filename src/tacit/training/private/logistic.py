r"""Many private logistic regressions as one batched tensor program: settings by seeds, all at once.

Full-batch DP-SGD on :math:`p = \sigma(w^T x)`, the bias being the weight of a constant feature and so inside the clip.
The gradient of example i is :math:`(p_i - y_i) x_i`. With :math:`u_i = x_i / \lVert x_i \rVert` and
:math:`l_i = (p_i - y_i) \lVert x_i \rVert`, clipped it is :math:`\max(-C, \min(C, l_i))\, u_i`: no gradient need be
formed, no number can make it longer than C, and a step of M settings on S data sets is two batched products of
``(S, n, d)`` with ``(S, d, M)`` and ``(S, n, M)``. An example whose features or whose p are not finite takes no part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import ConfigError
from tacit.grid import within


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One regression: how many steps, with which noise. ``clip_bound`` None is plain gradient descent."""

    steps: int
    lr: float
    clip_bound: float | None = None  # C
    noise_multiplier: float = 0.0  # z; the noise on the sum of gradients has standard deviation z C

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ConfigError(f"Expected 1 step or more, got {self.steps}.")
        if self.clip_bound is None and self.noise_multiplier:
            raise ConfigError("Noise without a clip bound protects nothing. Set clip_bound.")


def train(
    features: NDArray[np.float64],
    labels: NDArray[np.int64],
    settings: Sequence[Setting],
    draw: Callable[[int], NDArray[np.float64]],
) -> NDArray[np.float32]:
    """Train every setting on every data set from zero weights.

    Args:
        features: ``(S, n, d)`` without the constant; one data set per seed.
        labels: ``(S, n)``, 0 or 1.
        settings: what to train.
        draw: gives so many standard normal numbers; it is called once per step.

    Returns:
        Weights ``(settings, S, d + 1)``, the last of each being the bias.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the products are small: threads would wait for each other more than they work
    try:
        return _train(features, labels, settings, draw)
    finally:
        torch.set_num_threads(threads)


def _train(
    features: NDArray[np.float64],
    labels: NDArray[np.int64],
    settings: Sequence[Setting],
    draw: Callable[[int], NDArray[np.float64]],
) -> NDArray[np.float32]:
    rows = _with_constant(features)
    truth = torch.from_numpy(labels.astype(np.float32))[:, :, None]
    lengths = rows.double().norm(dim=2, keepdim=True)
    directions = (rows.double() / lengths).nan_to_num().float()  # an infinite feature makes NaN: no direction
    lengths = lengths.clamp(max=torch.finfo(torch.float32).max).float()
    examples, width = rows.shape[1], rows.shape[2]
    order = sorted(range(len(settings)), key=lambda number: -settings[number].steps)
    ordered = [settings[number] for number in order]
    bounds = torch.tensor([math.inf if s.clip_bound is None else within(s.clip_bound) for s in ordered])
    stds = torch.tensor([(s.clip_bound or 0.0) * s.noise_multiplier for s in ordered])
    rates = torch.tensor([s.lr / examples for s in ordered])
    weights = torch.zeros(len(rows), width, len(settings))
    active, step = len(settings), 0
    while active:
        moving = weights[:, :, :active]
        for _ in range(ordered[active - 1].steps - step):
            errors = torch.sigmoid(torch.bmm(rows, moving)) - truth
            along = errors.mul_(lengths).clamp_(-bounds[:active], bounds[:active]).nan_to_num_(nan=0.0)
            sums = torch.bmm(directions.mT, along)
            noise = torch.from_numpy(draw(sums.numel())).float().view_as(sums)
            moving = moving - rates[:active] * (sums + noise * stds[:active])
            step += 1
        weights[:, :, :active] = moving
        while active and ordered[active - 1].steps == step:
            active -= 1
    found = np.empty((len(settings), len(rows), width), np.float32)
    found[order] = weights.permute(2, 0, 1).numpy()
    return found


def accuracies(
    weights: NDArray[np.float32], features: NDArray[np.float64], labels: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the share of right answers, ``(settings, S)``, of weights as :func:`train` returns them."""
    logits = torch.bmm(_with_constant(features), torch.from_numpy(weights).permute(1, 2, 0))  # (S, n, settings)
    right = (logits > 0).numpy() == (labels == 1)[:, :, None]
    shares: NDArray[np.float64] = right.mean(axis=1).T
    return shares


def _with_constant(features: NDArray[np.float64]) -> Tensor:
    rows = torch.from_numpy(features).float()
    return torch.cat([rows, torch.ones(*rows.shape[:2], 1)], dim=2)
