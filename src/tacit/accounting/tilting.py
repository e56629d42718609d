"""How far losses are tilted before they are summed: the saddle point of large deviations, by Chernoff's bound."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tacit.accounting.losses import Array, Losses

ROUGHLY = 4096  # points for the choice of theta
_FLATTEST, _STEEPEST = 0.05, 60.0  # theta in units of one over the total's deviation; 21 is a normal law's at 1e-100
_WIDTH = 15.0  # of a window, in deviations


def width(releases: Sequence[tuple[Losses, int]], delta: float) -> float:
    """Return about how wide the window of :class:`Total` will be, from a first look at each release."""
    looks = [(*losses.thinned(ROUGHLY), times) for losses, times in releases]
    theta = steepness(looks, delta)
    variance = 0.0
    for points, masses, times in looks:
        exponents = theta * points + np.log(masses)
        weights = np.exp(exponents - exponents.max())
        weights /= weights.sum()
        variance += times * float((weights * (points - float((weights * points).sum())) ** 2).sum())
    return _WIDTH * math.sqrt(variance)


def cumulant(points: Array, log_masses: Array, theta: float) -> float:
    """Return ln E e^(theta l) of one release's finite part."""
    exponents = theta * points + log_masses
    largest = float(exponents.max())
    return largest + math.log(float(np.exp(exponents - largest).sum()))


def steepness(releases: Sequence[tuple[Array, Array, int]], delta: float) -> float:
    """Return about the theta with the smallest Chernoff bound on epsilon, (ln E e^(theta l) - ln delta)/theta.

    Any theta is valid, so a rough minimum by golden section is as good as a fine one. It is kept within what a normal
    law of the same spread could ask for: where the largest loss is an atom that decides alone, the minimum lies at
    infinity, and what is rounded off would be blown up with it.
    """
    variance = 0.0
    for points, masses, times in releases:
        weights = masses / masses.sum()
        center = float((weights * points).sum())
        variance += times * float((weights * (points - center) ** 2).sum())
    seen = [(points, np.log(masses), times) for points, masses, times in releases]

    def bound(log_theta: float) -> float:
        theta = math.exp(log_theta)
        return (sum(times * cumulant(points, logs, theta) for points, logs, times in seen) - math.log(delta)) / theta

    deviation = max(math.sqrt(variance), 1e-300)
    low, high = math.log(min(1e-3, _FLATTEST / deviation)), math.log(min(1e4, max(_STEEPEST / deviation, 2e-3)))
    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    deviation = max(math.sqrt(variance), 1e-300)
    low, high = math.log(min(1e-3, _FLATTEST / deviation)), math.log(min(1e4, max(_STEEPEST / deviation, 2e-3)))
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = bound(left), bound(right)
    while high - low > 0.1:
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = bound(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = bound(right)
    return math.exp((low + high) / 2.0)
