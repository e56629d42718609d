"""Epsilon by privacy loss distributions: Poisson samples, pure releases and Gaussian ones in any mixture.

Losses of independent releases add up, so the distribution of the total is a convolution, and

    delta(eps) = mass at infinity + sum over losses l > eps of mass(l) (1 - e^(eps - l))

(Sommer, Meiser & Mohammadi 2019; Koskela, Jälkö & Honkela 2020). The result is an upper bound: the grid only rounds up
(``losses.py``), truncated mass is charged as infinite, and what the convolution may wrap around or round off is added.
dp-accounting's PLD is the yardstick in the tests; this one is faster because of two things:

- The masses are tilted by e^(theta l) before the transform and untilted after, theta from Chernoff's bound at the asked
  delta. The losses that decide then lie in the middle of a narrow window, and rounding errors shrink with the tail:
  delta = 1e-100 is as exact as 1e-5, where a plain transform stops at 1e-15.
- The step of the grid follows the spread of the total and the number of releases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.accounting import gaussian
from tacit.accounting.losses import ADD, REMOVE, REPLACE, Array, Losses, Pair
from tacit.accounting.parts import Parts
from tacit.accounting.roots import bracket_up, first_at_most_zero

_STEP = 1e-4
_FINEST = 1e-10
_LEAST_NOISE = 1e-3  # less, and one release already costs half a million; sampling changes only the last digits
_BEYOND = 1e5  # likewise of what is not sampled
_COARSE = 4096  # points of a first look
_POINTS = 1 << 19  # the most points of a grid; beyond, the step grows and with it the bound
_TRUNCATED = 1e-8  # share of delta that truncated losses may cost
_OUTSIDE = 1e-11  # tilted mass outside the window, on either side
_LARGEST_EXPONENT = 600.0
_SLACK = 1e-9  # bounds what wraps around (2e-11) and what the transform rounds off, relative to the tilted tail


def epsilon(parts: Parts, delta: float, *, coarser: float = 1.0) -> float:
    """Return an upper bound on epsilon at ``delta`` within about 1e-4 of the truth for epsilons of everyday size.

    Args:
        parts: what was released.
        delta: the probability that the bound may fail with.
        coarser: a factor on the grid's step; the answer stays an upper bound and comes faster.
    """
    ceiling = _unamplified(parts, delta)
    if any(group.noise_multiplier < _LEAST_NOISE for group in parts.poisson) or _largest(parts) > _BEYOND:
        return ceiling
    directions = [REPLACE] if parts.neighbours == "replace-one" else [REMOVE, ADD]
    return min(ceiling, max(_epsilon(_Releases.of(parts, means), delta, coarser) for means in directions))


def _largest(parts: Parts) -> float:
    return max(parts.mu**2, *(epsilon_ * count for epsilon_, count in parts.pure), 0.0)


def _unamplified(parts: Parts, delta: float) -> float:
    """Return what the releases cost as if everyone took part in each: a bound too, and no grid is needed for it."""
    poisson = sum(group.count * (parts.reach / group.noise_multiplier) ** 2 for group in parts.poisson)
    pure = sum(epsilon_ * count for epsilon_, count in parts.pure)
    return gaussian.epsilon_of(delta=delta, mu=math.sqrt(parts.mu**2 + poisson)) + pure


@dataclass(frozen=True, kw_only=True)
class _Releases:
    """Independent releases, all seen in the same direction: pairs with counts, and pure ones."""

    pairs: tuple[tuple[Pair, int], ...]
    pure: tuple[tuple[float, int], ...]

    @classmethod
    def of(cls, parts: Parts, means: tuple[float, float]) -> _Releases:
        pairs = [
            (Pair(means=means, rate=group.rate, deviation=group.noise_multiplier), group.count)
            for group in parts.poisson
        ]
        if parts.mu > 0.0:
            pairs.append((Pair(means=REMOVE, rate=1.0, deviation=1.0 / parts.mu), 1))
        return cls(pairs=tuple(pairs), pure=parts.pure)

    def step(self, tail: float) -> float:
        """Return a step that keeps the width of a bin, and the sum of all roundings, far below the spread of the total.

        Connecting the dots widens each release by up to step^2/4 in variance and half of that in mean. The step is
        dp-accounting's 1e-4 times a power of two, other than one only where that would be too coarse or too slow: on
        nested grids the coarser answer is the larger one, so that the two never contradict each other.
        """
        variance, range_, count = 0.0, 0.0, 0
        for pair, times in self.pairs:
            low, high = pair.reach(tail)
            look = pair.losses(step=max((high - low) / _COARSE, _FINEST), tail=tail)
            mean = float((look.masses * look.points).sum())
            variance += times * float((look.masses * (look.points - mean) ** 2).sum())
            range_, count = max(range_, high - low), count + times
        for epsilon_, times in self.pure:
            variance += times * epsilon_**2
            range_, count = max(range_, 2.0 * epsilon_), count + times
        spread = math.sqrt(variance)
        finest = min(spread / 256.0, math.sqrt(1e-2 * spread / count))
        coarsest = min(spread / 4e4, math.sqrt(2e-5 * spread / count), 1e-3)
        wanted = max(min(max(coarsest, _STEP), finest), range_ / _POINTS, spread * 1e-5, _FINEST)
        return _STEP * 2.0 ** math.floor(math.log2(wanted / _STEP))

    def losses(self, step: float, tail: float) -> list[tuple[Losses, int]]:
        """Return every release on the same grid."""
        sampled = [(pair.losses(step=step, tail=tail), times) for pair, times in self.pairs]
        return sampled + [(Losses.pure(epsilon_, step=step), times) for epsilon_, times in self.pure]


def _epsilon(releases: _Releases, delta: float, coarser: float) -> float:
    count = sum(times for _, times in (*releases.pairs, *releases.pure))
    tail = max(delta * _TRUNCATED / max(count, 1), 1e-300)
    total = _Total(releases.losses(releases.step(tail) * coarser, tail), delta)

    def excess(epsilon_: float) -> float:
        return total.log_delta(epsilon_) - math.log(delta)

    if excess(0.0) <= 0.0:
        return 0.0
    high = bracket_up(excess, max(total.guess, 1e-12), factor=1.05)
    if high is None:
        return math.inf
    low = 0.75 * high  # Chernoff's bound is seldom further off
    if excess(low) <= 0.0:
        low, high = 0.0, low
    return first_at_most_zero(excess, low, high, relative=1e-9)


class _Total:
    """The distribution of the summed loss, tilted so that the tail at ``delta`` is its middle."""

    def __init__(self, releases: Sequence[tuple[Losses, int]], delta: float) -> None:
        self._releases = releases
        self._step = releases[0][0].step
        self._theta, self.guess = _chernoff([(losses.thinned(_COARSE), times) for losses, times in releases], delta)
        self._log_mass = _cumulant(releases, self._theta)
        log_finite = sum(times * math.log1p(-min(losses.infinite, 0.5)) for losses, times in releases)
        self._infinite = -math.expm1(log_finite)
        first, tilted = self._convolve(*self._window())
        # Sums from each loss to the largest, of mass(l) and of mass(l) e^-l, both scaled so that the guess is at one.
        self._points = np.arange(first, first + tilted.size, dtype=np.float64) * self._step
        away = np.minimum(self.guess - self._points, _LARGEST_EXPONENT / (self._theta + 1.0))
        self._upper = _suffix_sums(tilted * np.exp(self._theta * away))
        self._lower = _suffix_sums(tilted * np.exp((self._theta + 1.0) * away))

    def log_delta(self, epsilon_: float) -> float:
        """Return the logarithm of an upper bound on delta(eps)."""
        start = int(np.searchsorted(self._points, epsilon_, side="right"))
        finite = float(self._upper[start] - math.exp(epsilon_ - self.guess) * self._lower[start])
        # What is not in the sums lies above eps or wrapped around to there, so it weighs at most what mass at eps does.
        slack = math.log(_SLACK) + self._theta * (self.guess - epsilon_)
        logarithm = self._log_mass - self._theta * self.guess + np.logaddexp(_log(finite), slack)
        return float(np.logaddexp(logarithm, _log(self._infinite)))

    def _window(self) -> tuple[int, int]:
        """Return the first and last index outside of which at most _OUTSIDE of the tilted mass lies, by Chernoff."""
        mean, variance = 0.0, 0.0
        for losses, times in self._releases:
            weights = self._tilt(losses)
            center = float((weights * losses.points).sum())
            mean += times * center
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

    Any theta is valid, so a rough minimum by golden section is as good as a fine one.
    """

    def bound(log_theta: float) -> float:
        theta = math.exp(log_theta)
        return (_cumulant(releases, theta) - math.log(delta)) / theta

    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    low, high = math.log(1e-3), math.log(1e4)
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
