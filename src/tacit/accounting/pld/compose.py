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

from tacit.accounting.pld.loss import Array, Losses

_OUTSIDE = 1e-11  # tilted mass outside the window, on either side
_LARGEST_EXPONENT = 600.0  # so far below the guess delta is beyond all bounds, whatever the exact sum
_NEAR = 300.0  # losses this close to the point that a sum is scaled by neither overflow nor vanish
_SLACK = 1e-10  # bounds what wraps around (2e-11)
_ROUNDING = 2.0**-52
_ROUGHLY = 4096  # points for the choice of theta
_FLATTEST, _STEEPEST = 0.05, 60.0  # theta in units of one over the total's deviation; 21 is a normal law's at 1e-100
_WIDTH = 15.0  # of a window, in deviations
_VANISHED = -80.0  # the logarithm of a frequency's share that is left out; the transform rounds off at -36


class ComposedLoss:
    """The distribution of the summed loss, tilted so that the tail at ``delta`` is its middle.

    What is left out of the tilted masses, or added to them, is at most ``slack`` in all: what lies outside the window
    wraps around (Chernoff), and the transform of n points, raised to the power T, rounds off. An error of r in each
    frequency becomes T r in its power, and T r sqrt(n sum of squared masses) in the sum of all masses (Parseval and
    Cauchy-Schwarz), with r a few roundings for every level of the transform.
    """

    def __init__(self, releases: Sequence[tuple[Losses, int]], delta: float) -> None:
        self._releases = releases
        self._step = releases[0][0].step
        self._theta = _steepness([(*losses.thinned(_ROUGHLY), times) for losses, times in releases], delta)
        self._log_mass = self._cumulant(self._theta)
        self.guess = (self._log_mass - math.log(delta)) / self._theta  # Chernoff's bound
        self._infinite = min(1.0, sum(times * losses.infinite for losses, times in releases))
        first, self._tilted = self._convolve(*self._window())
        size, count = self._tilted.size, sum(times for _, times in releases)
        error = _ROUNDING * (math.log2(size + 1) + 8.0)
        self._slack = _SLACK + error * count * math.sqrt(size * float(np.square(self._tilted).sum()))
        # Sums from each loss to the largest: of mass(l) scaled by the guess, and of mass(l) e^-l scaled by `_near`.
        self._points = np.arange(first, first + size, dtype=np.float64) * self._step
        self._away = self._theta * (self.guess - self._points)
        self._upper = _suffix_sums(self._tilted * np.exp(np.minimum(self._away, _LARGEST_EXPONENT)))
        self._scale(self.guess)

    @property
    def reach(self) -> float:
        """How far delta(eps) takes to fall by a factor of about e."""
        return 1.0 / self._theta

    def log_delta(self, epsilon_: float) -> float:
        """Return the logarithm of an upper bound on delta(eps)."""
        if abs(epsilon_ - self._near) > _NEAR:
            self._scale(epsilon_)
        start = int(np.searchsorted(self._points, epsilon_, side="right"))
        finite = 0.0
        if start < self._points.size:
            taken = self._lower[min(start - self._start, self._lower.size - 1)]
            finite = float(self._upper[start] - math.exp(epsilon_ - self._near) * taken)
        # What is not in the sums lies above eps or wrapped around to there, so it weighs at most what mass at eps does.
        slack = math.log(self._slack) + self._theta * (self.guess - epsilon_)
        logarithm = self._log_mass - self._theta * self.guess + np.logaddexp(_log(finite), slack)
        return float(np.logaddexp(logarithm, _log(self._infinite)))

    def log_delta_below(self, epsilon_: float) -> float:
        """Return the logarithm of a lower bound on delta(eps), minus infinity where nothing is left of it.

        It is summed anew, in logarithms and without the sums that :meth:`log_delta` looks up, so that an error in one
        of the two does not hide in the other. Infinite mass and what hardly weighs are left out, and the slack is taken
        off; so it says something only within a few :attr:`reach` of the guess.
        """
        start, end = np.searchsorted(self._points, (epsilon_, epsilon_ + 40.0 * self.reach), side="right")
        points, masses = self._points[start:end], self._tilted[start:end]
        there = masses > 0.0
        if not there.any():
            return -math.inf
        points = points[there]
        logs = np.log(masses[there]) - self._theta * (points - epsilon_) + np.log(-np.expm1(epsilon_ - points))
        largest = float(logs.max())
        left = math.exp(largest) * float(np.exp(logs - largest).sum()) - self._slack
        return self._log_mass - self._theta * epsilon_ + _log(left)

    def _scale(self, near: float) -> None:
        """Prepare the sums of mass(l) e^-l for an epsilon that is near this one; losses far above it weigh nothing."""
        self._near = near
        self._start, end = np.searchsorted(self._points, (near - _NEAR, near + 2.0 * _NEAR))
        part = slice(self._start, end)
        exponents = np.minimum(self._away[part] + (near - self._points[part]), _LARGEST_EXPONENT)
        self._lower = _suffix_sums(self._tilted[part] * np.exp(exponents))

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
                    (self._cumulant(self._theta + sign * rate) - self._log_mass - math.log(_OUTSIDE)) / rate
                    # 7 for a normal law; untilting by theta, and no further, where the losses have a long lower tail
                    for rate in (2.0 / deviation, 4.0 / deviation, 7.0 / deviation, self._theta)
                )
                for sign in (1.0, -1.0)
            )
            low = max(low, math.floor(-left / self._step))
            high = min(high, math.ceil(right / self._step))
        return low, max(low, high)

    def _cumulant(self, theta: float) -> float:
        """Return ln E e^(theta l) of the total's finite part."""
        return sum(times * _cumulant(losses.points, losses.log_masses, theta) for losses, times in self._releases)

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
            transform = transform * _power(np.fft.rfft(folded), times)
            start += times * losses.first
        masses: Array = np.maximum(np.fft.irfft(transform, size), 0.0)
        return low, np.roll(masses, -((low - start) % size))


def _power(transform: Any, times: int) -> Any:
    """Return the power of a transform; after many releases all but its lowest frequencies have vanished."""
    seen = np.abs(transform) > math.exp(_VANISHED / times)
    power = np.zeros_like(transform)
    power[seen] = transform[seen] ** times
    return power


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


def width(releases: Sequence[tuple[Losses, int]], delta: float) -> float:
    """Return about how wide the window of :class:`ComposedLoss` will be, from a first look at each release."""
    looks = [(*losses.thinned(_ROUGHLY), times) for losses, times in releases]
    theta = _steepness(looks, delta)
    variance = 0.0
    for points, masses, times in looks:
        exponents = theta * points + np.log(masses)
        weights = np.exp(exponents - exponents.max())
        weights /= weights.sum()
        variance += times * float((weights * (points - float((weights * points).sum())) ** 2).sum())
    return _WIDTH * math.sqrt(variance)


def _cumulant(points: Array, log_masses: Array, theta: float) -> float:
    """Return ln E e^(theta l) of one release's finite part."""
    exponents = theta * points + log_masses
    largest = float(exponents.max())
    return largest + math.log(float(np.exp(exponents - largest).sum()))


def _steepness(releases: Sequence[tuple[Array, Array, int]], delta: float) -> float:
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
        return (sum(times * _cumulant(points, logs, theta) for points, logs, times in seen) - math.log(delta)) / theta

    deviation = max(math.sqrt(variance), 1e-300)
    low, high = math.log(min(1e-3, _FLATTEST / deviation)), math.log(min(1e4, max(_STEEPEST / deviation, 2e-3)))
    ratio = (math.sqrt(5.0) - 1.0) / 2.0
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
