"""The sum of many privacy losses, sharp in the tail that decides.

Losses are tilted by e^(theta l) before the Fourier transform and untilted after, theta from Chernoff's bound at the
asked delta (the saddle point of large deviations). The losses that decide then lie in the middle of a narrow window,
and rounding errors shrink with the tail: delta = 1e-100 is as exact as 1e-5, where a plain transform stops at 1e-15.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.accounting.losses import Array, Losses

_ROUGHLY = 4096  # points for the choice of theta
_STEEPEST = 60.0  # the largest theta, in units of one over the total's deviation; a normal law needs 21 at delta 1e-100
_OUTSIDE = 1e-11  # tilted mass outside the window, on either side
_LARGEST_EXPONENT = 600.0  # so far below the guess delta is beyond all bounds, whatever the exact sum
_SLACK = 1e-9  # bounds what wraps around (2e-11) and what the transform rounds off, relative to the tilted tail


class Total:
    """The distribution of the summed loss, tilted so that the tail at ``delta`` is its middle."""

    def __init__(self, releases: Sequence[tuple[Losses, int]], delta: float) -> None:
        self._releases = releases
        self._step = releases[0][0].step
        self._theta, self.guess = _chernoff([(losses.thinned(_ROUGHLY), times) for losses, times in releases], delta)
        self._log_mass = _cumulant(releases, self._theta)
        self._infinite = min(1.0, sum(times * losses.infinite for losses, times in releases))
        first, tilted = self._convolve(*self._window())
        # Sums from each loss to the largest, of mass(l) and of mass(l) e^-l, both scaled so that the guess is at one.
        self._points = np.arange(first, first + tilted.size, dtype=np.float64) * self._step
        away = np.minimum(self.guess - self._points, _LARGEST_EXPONENT / (self._theta + 1.0))
        self._upper = _suffix_sums(tilted * np.exp(self._theta * away))
        self._lower = _suffix_sums(tilted * np.exp((self._theta + 1.0) * away))

    def log_delta(self, epsilon_: float) -> float:
        """Return the logarithm of an upper bound on delta(eps)."""
        start = int(np.searchsorted(self._points, epsilon_, side="right"))
        finite = 0.0
        if start < self._points.size:
            factor = math.exp(min(epsilon_ - self.guess, _LARGEST_EXPONENT))  # less is taken off: still a bound
            finite = float(self._upper[start] - factor * self._lower[start])
        # What is not in the sums lies above eps or wrapped around to there, so it weighs at most what mass at eps does.
        slack = math.log(_SLACK) + self._theta * (self.guess - epsilon_)
        logarithm = self._log_mass - self._theta * self.guess + np.logaddexp(_log(finite), slack)
        return float(np.logaddexp(logarithm, _log(self._infinite)))

    def _window(self) -> tuple[int, int]:
        """Return the first and last index outside of which at most _OUTSIDE of the tilted mass lies, by Chernoff."""
        variance = 0.0
        for losses, times in self._releases:
            weights = self._tilt(losses)
            center = float((weights * losses.points).sum())
            variance += times * float((weights * (losses.points - center) ** 2).sum())
        low = sum(times * losses.first for losses, times in self._releases)
        high = low + sum(times * (losses.masses.size - 1) for losses, times in self._releases)
        deviation = math.sqrt(variance)
        if deviation > 0.0:
            right, left = (
                min(
                    (_cumulant(self._releases, self._theta + sign * rate) - self._log_mass - math.log(_OUTSIDE)) / rate
                    for rate in (2.0 / deviation, 4.0 / deviation, 7.0 / deviation)  # 7 for a normal law
                )
                for sign in (1.0, -1.0)
            )
            low = max(low, math.floor(-left / self._step))
            high = min(high, math.ceil(right / self._step))
        return low, max(low, high)

    def _tilt(self, losses: Losses) -> Array:
        exponents = self._theta * losses.points + losses.log_masses
        weights: Array = np.exp(exponents - exponents.max())
        weights /= weights.sum()
        return weights

    def _convolve(self, low: int, high: int) -> tuple[int, Array]:
        """Return the tilted distribution of the total on the window, as its first index and masses."""
        size = _fast(high - low + 1)
        transform: Any = 1.0
        start = 0
        for losses, times in self._releases:
            tilted = self._tilt(losses)
            folded = np.pad(tilted, (0, -tilted.size % size)).reshape(-1, size).sum(axis=0)
            transform = transform * np.fft.rfft(folded) ** times
            start += times * losses.first
        masses: Array = np.maximum(np.fft.irfft(transform, size), 0.0)
        return low, np.roll(masses, -((low - start) % size))


def _cumulant(releases: Sequence[tuple[Losses, int]], theta: float) -> float:
    """Return ln E e^(theta l) of the finite part of the total."""
    total = 0.0
    for losses, times in releases:
        exponents = theta * losses.points + losses.log_masses
        largest = float(exponents.max())
        total += times * (largest + math.log(float(np.exp(exponents - largest).sum())))
    return total


def _chernoff(releases: Sequence[tuple[Losses, int]], delta: float) -> tuple[float, float]:
    """Return about the theta with the smallest Chernoff bound on epsilon, (ln E e^(theta l) - ln delta)/theta, and it.

    Any theta is valid, so a rough minimum by golden section is as good as a fine one. It is kept within what a normal
    law of the same spread could ask for: where the largest loss is an atom that decides alone, the minimum lies at
    infinity, and what is rounded off would be blown up with it.
    """
    variance = 0.0
    for losses, times in releases:
        weights = losses.masses / losses.masses.sum()
        center = float((weights * losses.points).sum())
        variance += times * float((weights * (losses.points - center) ** 2).sum())

    def bound(log_theta: float) -> float:
        theta = math.exp(log_theta)
        return (_cumulant(releases, theta) - math.log(delta)) / theta

    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    low, high = math.log(1e-3), math.log(min(1e4, max(_STEEPEST / math.sqrt(variance), 2e-3) if variance else 1e4))
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
    best = (low + high) / 2.0
    return math.exp(best), bound(best)


def _log(x: float) -> float:
    return math.log(x) if x > 0.0 else -math.inf


def _suffix_sums(values: Array) -> Array:
    """Return the sums from each place to the end, and a zero after it."""
    sums: Array = np.append(np.cumsum(values[::-1])[::-1], 0.0)
    return sums


def _fast(size: int) -> int:
    """Return the next length of the form 2^a, 3 2^a or 5 2^a, which transforms fast."""
    power = 1 << (size - 1).bit_length()
    return min(length for length in (power, power * 3 // 4, power * 5 // 8) if length >= size)
