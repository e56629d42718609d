"""The privacy loss of one release, on a grid and never below the truth.

The loss is ``ln P(o)/Q(o)`` for an outcome ``o`` of P. Here P and Q are mixtures ``(1-q) N(0, s^2) + q N(m, s^2)``,
with m = (1, 0) when a unit is removed, (0, -1) when one is added and (1, -1) when one replaces another: the pairs that
dominate a Poisson-sampled Gaussian sum (Zhu, Dong & Wang 2022; for replacement the pair dp-accounting takes), and the
Gaussian mechanism itself for q = 1.

Between two grid points the masses of P and of Q are both kept and moved to the two ends. That is the smallest
distribution on the grid that dominates the true one ("connect the dots", Doroshenko, Ghazi, Kamath, Kumar & Manurangsi
2022). Masses of intervals are differences of normal tails taken on the side where they are small, so that the far tail
keeps its relative precision.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Array = NDArray[np.float64]

REMOVE, ADD, REPLACE = (1.0, 0.0), (0.0, -1.0), (1.0, -1.0)
_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True, kw_only=True)
class Losses:
    """A distribution of losses: ``masses[i]`` at ``(first + i) * step``, and ``infinite`` where Q has nothing."""

    step: float
    first: int
    masses: Array
    infinite: float

    @classmethod
    def pure(cls, epsilon: float, *, step: float) -> Self:
        """Return the losses of randomized response, the worst epsilon-DP release (Kairouz, Oh & Viswanath 2015)."""
        steps = max(1, math.ceil(epsilon / step))
        masses = np.zeros(2 * steps + 1)
        masses[0] = _logistic(-steps * step)
        masses[-1] = _logistic(steps * step)
        return cls(step=step, first=-steps, masses=masses, infinite=0.0)

    @property
    def points(self) -> Array:
        """The losses of the masses."""
        return np.arange(self.first, self.first + self.masses.size, dtype=np.float64) * self.step

    @functools.cached_property
    def log_masses(self) -> Array:
        """The logarithms of the masses, minus infinity where there is none."""
        with np.errstate(divide="ignore"):
            logs: Array = np.log(self.masses)
        return logs

    @property
    def delta_at_zero(self) -> float:
        """What delta has to be for an epsilon of zero: mass(l) (1 - e^-l) over all losses above zero."""
        return self.infinite - float((self.masses * np.expm1(-np.maximum(self.points, 0.0))).sum())

    def thinned(self, most: int) -> tuple[Array, Array]:
        """Return about ``most`` points and masses in place of all, of the same mean: a rough picture, no bound."""
        width = max(1, self.masses.size // most)
        masses, moments = (
            np.pad(values, (0, -values.size % width)).reshape(-1, width).sum(axis=1)
            for values in (self.masses, self.masses * self.points)
        )
        there = masses > 0.0
        return moments[there] / masses[there], masses[there]


def _logistic(x: float) -> float:
    """Return 1/(1 + e^-x)."""
    return 0.0 if x < -_LARGEST_EXPONENT else 1.0 / (1.0 + math.exp(-x))


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The two mixtures: their means (for P and Q), the sampling rate q, and the standard deviation s."""

    means: tuple[float, float]
    rate: float
    deviation: float

    def reach(self, tail: float) -> tuple[float, float]:
        """Return the losses outside of which P has at most ``tail`` on either side."""
        width = math.sqrt(-2.0 * math.log(tail)) * self.deviation
        ends = np.array([min(self.means[0], 0.0) - width, max(self.means[0], 0.0) + width])
        low, high = self._loss(ends).tolist()
        return low, high

    def losses(self, *, step: float, tail: float) -> Losses:
        """Return the losses on the grid of multiples of ``step``; at most ``tail`` is charged as infinite."""
        low, high = self.reach(tail)
        first, last = math.floor(low / step), math.ceil(high / step)
        last = max(last, first + 1)
        grid = np.arange(first, last + 1, dtype=np.float64) * step
        edges = self._outcome(grid)
        upper, lower = self._masses(edges, self.means[0]), self._masses(edges, self.means[1])
        # Both ends together hold `upper` under P and `lower` under Q, and at a loss e the two differ by the factor e^e.
        scaled = lower * np.exp(np.minimum(grid[:-1], _LARGEST_EXPONENT))
        left = np.clip((scaled - upper * math.exp(-step)) / -math.expm1(-step), 0.0, upper)
        masses = np.zeros(grid.size)
        masses[:-1] += left
        masses[1:] += upper - left
        masses[0] += self._below(edges[0])
        return Losses(step=step, first=first, masses=masses, infinite=self._above(edges[-1]))

    def cells(self, *, step: float, tail: float) -> tuple[int, Array, Array]:
        """Return what P and Q have in cells around the multiples of ``step``, and the first of them.

        A cell is all outcomes whose loss is within half a step; the last one holds all that lose more too. At most
        ``tail`` of P, with the smallest losses, is left out.
        """
        low, high = self.reach(tail)
        first, last = math.floor(low / step), math.ceil(high / step)
        edges = self._outcome((np.arange(first, last + 2, dtype=np.float64) - 0.5) * step)
        edges[-1] = math.inf
        return first, self._masses(edges, self.means[0]), self._masses(edges, self.means[1])

    def _loss(self, x: Array) -> Array:
        return self._log_density(x, self.means[0]) - self._log_density(x, self.means[1])

    def _log_density(self, x: Array, mean: float) -> Array:
        """Return the logarithm of a mixture's density relative to N(0, s^2)."""
        exponent = (2.0 * mean * x - mean * mean) / (2.0 * self.deviation**2)
        if self.rate == 1.0:
            return exponent
        logs: Array = np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + exponent)
        return logs

    def _outcome(self, loss: Array) -> Array:
        """Return the outcome with a given loss, which rises with the outcome; minus or plus infinity where none has."""
        if self.means == REMOVE:
            return self._outcome_removed(loss)
        if self.means == ADD:
            return -self._outcome_removed(-loss)
        # w = e^(x/s^2 - loss/2) solves w - 1/w = 2 (1-q)/q e^(1/(2 s^2)) sinh(loss/2).
        size = np.abs(loss) / 2.0
        with np.errstate(divide="ignore"):
            sinh = size + np.log(-np.expm1(-2.0 * size)) - math.log(2.0)
            odds = np.log(1.0 - self.rate) - math.log(self.rate)
        exponent = sinh + odds + 1.0 / (2.0 * self.deviation**2)
        solution = np.logaddexp(exponent, 0.5 * np.logaddexp(2.0 * exponent, 0.0))
        outcome: Array = np.sign(loss) * self.deviation**2 * (size + solution)
        return outcome

    def _outcome_removed(self, loss: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            high = loss - math.log(self.rate) + np.log1p(-(1.0 - self.rate) * np.exp(-np.maximum(loss, 0.0)))
            low = np.log1p(np.maximum(np.expm1(np.minimum(loss, 0.0)) / self.rate, -1.0))
        outcome: Array = self.deviation**2 * np.where(loss > 0.0, high, low) + 0.5
        return outcome

    def _masses(self, edges: Array, mean: float) -> Array:
        """Return a mixture's mass between neighbouring edges."""
        masses = self.rate * _between((edges - mean) / self.deviation)
        if self.rate < 1.0:
            masses += (1.0 - self.rate) * _between(edges / self.deviation)
        return masses

    def _below(self, edge: float) -> float:
        shifted = ndtr((edge - self.means[0]) / self.deviation)
        return float(self.rate * shifted + (1.0 - self.rate) * ndtr(edge / self.deviation))

    def _above(self, edge: float) -> float:
        shifted = ndtr((self.means[0] - edge) / self.deviation)
        return float(self.rate * shifted + (1.0 - self.rate) * ndtr(-edge / self.deviation))


def _between(edges: Array) -> Array:
    """Return the standard normal mass between neighbouring edges, from the tail on the side where they lie."""
    small: Any = ndtr(-np.abs(edges))
    left, right = edges[:-1], edges[1:]
    inner = np.where(left >= 0.0, small[:-1] - small[1:], small[1:] - small[:-1])
    masses: Array = np.where((left < 0.0) & (right >= 0.0), 1.0 - small[:-1] - small[1:], inner)
    return np.maximum(masses, 0.0)
