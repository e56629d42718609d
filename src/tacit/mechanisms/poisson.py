r"""Poisson numbers whose every bit of chance comes from one source of uniform numbers.

From a rate of 10 on: transformed rejection (Hörmann, "The transformed rejection method for generating Poisson random
variables", 1993). A uniform :math:`U \in (-\frac12, \frac12)` proposes

.. math:: k = \lfloor (2a / (\tfrac12 - |U|) + b)\, U + \lambda + 0.43 \rfloor

and a second one decides by the law itself, so that what is accepted is Poisson however the proposal was made. Below
10: of Poisson(10) points each is kept by a coin of its own with probability :math:`\lambda/10` (thinning). Neither way
cuts the tails.

The logarithm of the law is taken in the form :math:`-D(k, \lambda) - \rho(k) - \frac12 \log 2 \pi k`, with
:math:`D = k \log(k/\lambda) + \lambda - k` and :math:`\rho` what Stirling's formula leaves (Loader, "Fast and accurate
computation of binomial probabilities", 2000). The textbook's :math:`k \log\lambda - \lambda - \log k!` loses the
digits that matter at large rates: it is off by 0.004 at :math:`2^{40}`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError
from tacit.randomness import Randomness
from tacit.vectors import Integers

Array = NDArray[np.float64]

LARGEST_RATE = 2.0**50  # numbers around it are whole in float64, with room for the tails
_LEAST = 10.0  # transformed rejection is proved for rates from here on
_CHUNK = 1 << 16  # numbers made at a time: their intermediate values stay in the cache
_TERMS = 9  # of the series of D; the tenth is below 2^-53 of the first


def poisson(rate: float, count: int, randomness: Randomness, *purpose: str | int) -> Integers:
    """Return ``count`` independent Poisson numbers that nobody can predict, or reproducible ones in a simulation.

    Args:
        rate: the mean and the variance, from 0 to 2^50.
        count: how many.
        randomness: where every uniform number comes from: the operating system, unless it is a simulation's.
        *purpose: the name of the draw.
    """
    if not 0.0 <= rate <= LARGEST_RATE:
        raise ConfigError(f"Expected a rate from 0 to 2^50, got {rate}. Use a smaller scale, or more clients.")
    numbers = np.zeros(count, np.int64)
    if rate == 0.0:
        return numbers
    for first in range(0, count, _CHUNK):
        size = min(_CHUNK, count - first)
        own = (*purpose, first)
        made = _by_rejection(max(rate, _LEAST), size, randomness, own)
        numbers[first : first + size] = made if rate >= _LEAST else _thinned(made, rate / _LEAST, randomness, own)
    return numbers


def _by_rejection(rate: float, count: int, randomness: Randomness, purpose: tuple[str | int, ...]) -> Integers:
    """Return ``count`` numbers by transformed rejection; the constants are Hörmann's."""
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    log_height = math.log(1.1239 + 1.1328 / (b - 3.4))
    inner = 0.9277 - 3.6224 / (b - 2.0)
    found: list[Integers] = []
    missing, turn = count, 0
    while missing:
        proposals = missing + missing // 6 + 32
        drawn = randomness.uniform(2 * proposals, *purpose, "try", turn)
        u, v = drawn[:proposals] - 0.5, drawn[proposals:]
        edge = 0.5 - np.abs(u)
        numbers = np.floor((2.0 * a / edge + b) * u + (rate + 0.43))
        accepted = (edge >= 0.07) & (v <= inner)  # the law need not be looked at: these lie under it
        open_ = np.flatnonzero(~accepted & (numbers >= 0.0) & ((edge >= 0.013) | (v <= edge)))
        near = edge[open_]
        asked = np.log(v[open_]) + log_height - np.log(a / (near * near) + b)
        accepted[open_[asked <= _log_law(numbers[open_], rate)]] = True
        found.append(numbers[accepted][:missing].astype(np.int64))
        missing -= len(found[-1])
        turn += 1
    return np.concatenate(found)


def _thinned(numbers: Integers, share: float, randomness: Randomness, purpose: tuple[str | int, ...]) -> Integers:
    """Keep each of the points that ``numbers`` count with probability ``share``."""
    kept = randomness.uniform(int(numbers.sum()), *purpose, "kept") < share
    owners = np.repeat(np.arange(len(numbers)), numbers)
    return np.bincount(owners[kept], minlength=len(numbers)).astype(np.int64)


def _log_law(numbers: Array, rate: float) -> Array:
    """Return the logarithm of the probability of each number, to about 1e-13 at every rate."""
    k = np.maximum(numbers, 1.0)
    logs = -_deviance(k, rate) - _stirling_rest(k) - 0.5 * np.log(2.0 * np.pi * k)
    return np.where(numbers == 0.0, -rate, logs)


def _deviance(k: Array, rate: float) -> Array:
    r"""Return :math:`k \log(k/\lambda) + \lambda - k`, by its series where the terms would cancel.

    With :math:`v = (k-\lambda)/(k+\lambda)` it is :math:`(k-\lambda) v + 2k \sum_{j \ge 1} v^{2j+1}/(2j+1)`.
    """
    gap = k - rate
    v = gap / (k + rate)
    square = v * v
    series = np.full_like(v, 1.0 / (2 * _TERMS + 1))
    for j in range(_TERMS - 1, 0, -1):
        series = series * square + 1.0 / (2 * j + 1)
    close = gap * v + 2.0 * k * v * square * series
    return np.where(np.abs(v) < 0.1, close, k * np.log(k / rate) - gap)


def _stirling_rest(k: Array) -> Array:
    """Return ``log k! - (k log k - k + log(2 pi k)/2)``: a table for small k, an asymptotic series above."""
    inverse = 1.0 / (k * k)
    above = (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse / 1680.0))) / k
    return np.where(k < len(_REST), _REST[np.minimum(k, len(_REST) - 1).astype(np.int64)], above)


_REST = np.array(
    [0.0] + [math.lgamma(k + 1.0) - (k * math.log(k) - k + 0.5 * math.log(2.0 * math.pi * k)) for k in range(1, 32)]
)
