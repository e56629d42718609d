r"""What a ledger costs at least, composed: privacy loss distributions that never round up.

Each release tells only in which cell of the grid its loss lies: post-processing, so that it costs no more than the
truth. A cell around :math:`ih` with masses :math:`P_i, Q_i` has the loss :math:`\ln(P_i/Q_i) = ih + o_i`, where
:math:`|o_i| \le h/2`, and by far less than that, since the cell is centred. The sum of the :math:`ih` is composed as in
``pessimistic.py``; the sum of the offsets stays, by Bernstein's inequality and but for a probability :math:`\beta`,
above

.. math:: s = T\,E[o] - \sqrt{2 T\,\mathrm{Var}[o] \ln(1/\beta)} - \tfrac13 (E[o] - \min o) \ln(1/\beta),

so that :math:`\delta(\varepsilon) \ge \delta_{grid}(\varepsilon - s) - \beta`. Mass that is truncated or infinite is
left out, and what the transform may round off is taken off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tacit.accounting.guard import log_less
from tacit.accounting.ledger import Tally
from tacit.accounting.pld.compose import ComposedLoss
from tacit.accounting.pld.loss import ADD, REMOVE, REPLACE, Array, Losses, Pair
from tacit.accounting.pld.pessimistic import LEAST_NOISE, beyond
from tacit.accounting.pld.shuffling import shuffled_cells

_COARSE = 2048  # points of a first look
_SPARED = 1e-3  # of delta: the probability that the offsets fall below s
_TRUNCATED = 1e-6  # of delta
_WIDEST, _NARROWEST = 1.0 / 2000.0, 1.0 / 65536.0  # of the spread of the total
_POINTS = 1 << 15  # the most cells of one release
_PLACES, _APART = 64, 4.0  # where to look below Chernoff's bound, in factors of e; 20 of them are told from rounding
_HALVINGS = 30
_FINEST = 1e-12
_PLAIN = 12.0  # pure releases beyond this lose all they may, but for one in e^12

Means = tuple[float, float]
Cells = tuple[int, Array, Array]  # the first index, and the masses of P and Q


def sides(tally: Tally) -> list[tuple[Means, float]]:
    """Return from which sides a ledger is looked at, and the most that can be lost on each; none without a grid.

    Sets of fixed size are taken for Poisson samples, which is what they are to an adversary where all others contribute
    nothing; where they are charged in full, they are among the releases without sampling.
    """
    sampled = (*tally.poisson, *tally.fixed)
    if all(value > _PLAIN for value, _ in tally.unmixed) and not sampled:
        return []  # what adds up has a closed form
    small = replace(tally, pure=tuple(release for release in tally.pure if release[0] <= _PLAIN))
    if beyond(small) or any(group.noise_multiplier < LEAST_NOISE for group in tally.fixed):
        return []  # and so has what is reported of this
    if tally.neighbours == "replace-one":
        return [(REPLACE, math.inf)]
    if not sampled:
        return [(REMOVE, math.inf)]  # Gaussian and pure losses look the same from both sides
    alone = not (tally.mu or tally.unmixed)
    added = -sum(group.count * math.log1p(-group.rate) for group in sampled) if alone else math.inf
    return [(REMOVE, math.inf), (ADD, added)]


@dataclass(frozen=True, kw_only=True)
class _Release:
    """Equal releases: their cells on a grid of a given step, the range of their losses, and how many there are."""

    cells: Callable[[float], Cells]
    range_: float
    count: int


class Floor:
    """The sum of all releases seen from one side."""

    def __init__(self, tally: Tally, means: Means, delta: float) -> None:
        self._delta = delta
        releases = _releases(tally, means, delta)
        step = _step(releases)
        composed = []
        mean = variance = farthest = 0.0
        for release in releases:
            losses, offsets = _placed(*release.cells(step), step=step)
            if not losses.masses.any():
                continue  # too close to a bound on its losses for a float to tell; leaving it out loses only
            own = float((losses.masses * offsets).sum())
            mean += release.count * own
            variance += release.count * float((losses.masses * (offsets - own) ** 2).sum())
            farthest = max(farthest, own - float(offsets.min()))
            composed.append((losses, release.count))
        composed = composed or [(Losses(step=step, first=0, masses=np.ones(1), infinite=0.0), 1)]
        self._total = ComposedLoss(composed, delta)
        luck = -math.log(_SPARED) - math.log(delta)
        self._shift = mean - math.sqrt(2.0 * variance * luck) - farthest * luck / 3.0
        # Large pure releases lose all they may, or are left out; so are large reports, which hardly anything hides.
        large = [(value, count) for value, count in tally.pure if value > _PLAIN]
        self._shift += sum(value * count for value, count in large)
        self._log_left = -sum(count * math.log1p(math.exp(-value)) for value, count in large)

    def log_delta(self, epsilon: float) -> float:
        """Return a lower bound on ln delta(eps), which says something only near :meth:`least`."""
        below = self._total.log_delta_below(epsilon - self._shift)
        return log_less(self._log_left + below, math.log(_SPARED) + math.log(self._delta))

    def exceeds(self, epsilon: float) -> bool:
        """Return whether delta(eps) is certainly more than delta: here, or at some larger epsilon."""
        return self._proves(epsilon) or any(self._proves(place) for place in self._places() if place > epsilon)

    def least(self) -> float:
        """Return an epsilon at which delta(eps) is certainly more than delta, and nearly the largest."""
        low = next((place for place in self._places() if self._proves(place)), 0.0)
        if low == 0.0:
            return 0.0
        high = low + _APART * self._total.reach
        while self._proves(high):
            low, high = high, high + _APART * self._total.reach
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self._proves(middle) else (low, middle)
        return low

    def _proves(self, epsilon: float) -> bool:
        return self.log_delta(epsilon) > math.log(self._delta)

    def _places(self) -> Iterator[float]:
        """Yield where to look, from Chernoff's bound down."""
        for step in range(_PLACES):
            place = self._total.guess + self._shift - step * _APART * self._total.reach
            if place <= 0.0:
                return
            yield place


def _releases(tally: Tally, means: Means, delta: float) -> list[_Release]:
    full = tally if tally.neighbours == "add-remove" else tally.without_fixed()
    groups = (*tally.poisson, *(() if full is tally else tally.fixed))
    pure = [(value, count) for value, count in tally.pure if value <= _PLAIN]
    mixed = [(release, count) for release, count in tally.mixed if release[0] <= _PLAIN]
    count = sum(group.count for group in groups) + sum(times for _, times in (*pure, *mixed)) + 1
    tail = max(delta * _TRUNCATED / count, 1e-300)
    pairs = [(Pair(means=means, rate=group.rate, deviation=group.noise_multiplier), group.count) for group in groups]
    if full.mu > 0.0:
        pairs.append((Pair(means=REMOVE, rate=1.0, deviation=1.0 / full.mu), 1))
    found = []
    for pair, times in pairs:
        low, high = pair.reach(tail)
        found.append(_Release(cells=partial(_pair_cells, pair, tail), range_=high - low, count=times))
    for value, times in pure:
        found.append(_Release(cells=partial(_pure_cells, value), range_=2.0 * value, count=times))
    for (value, reports), times in mixed:
        cells = partial(_shuffled_cells, value, reports, tail)
        found.append(_Release(cells=cells, range_=2.0 * value, count=times))
    return found


def _step(releases: Sequence[_Release]) -> float:
    """Return a step so small that the offsets of all releases together are far below the spread of the total."""
    variance, range_, count = 0.0, 0.0, 0
    for release in releases:
        rough = max(release.range_ / _COARSE, _FINEST)
        first, masses, _ = release.cells(rough)
        points = np.arange(first, first + masses.size) * rough
        mean = float((masses * points).sum())
        variance += release.count * float((masses * (points - mean) ** 2).sum())
        range_, count = max(range_, release.range_), count + release.count
    share = max(min(_WIDEST, 0.03 / math.sqrt(count)), _NARROWEST)
    return max(math.sqrt(variance) * share, range_ / _POINTS, _FINEST)


def _placed(first: int, upper: Array, lower: Array, *, step: float) -> tuple[Losses, Array]:
    """Return the cells on the grid, and how far above its place each truly is, or at least."""
    points = np.arange(first, first + upper.size, dtype=np.float64) * step
    with np.errstate(divide="ignore", invalid="ignore"):
        offsets = np.log(upper) - np.log(lower) - points
    # Where a mass is too small for a float the cell's lower edge is what is certain.
    offsets = np.clip(np.nan_to_num(offsets, nan=-0.5 * step, posinf=-0.5 * step), -0.5 * step, 0.5 * step)
    return Losses(step=step, first=first, masses=upper, infinite=0.0), np.where(upper > 0.0, offsets, 0.0)


def _pair_cells(pair: Pair, tail: float, step: float) -> Cells:
    return pair.cells(step=step, tail=tail)


def _shuffled_cells(epsilon: float, reports: int, tail: float, step: float) -> Cells:
    return shuffled_cells(epsilon, reports, step=step, tail=tail)


def _pure_cells(epsilon: float, step: float) -> Cells:
    """Return the cells of randomized response."""
    far = round(epsilon / step)
    upper = np.zeros(2 * far + 1)
    small = math.exp(-epsilon) / (1.0 + math.exp(-epsilon))
    upper[0] += small
    upper[-1] += 1.0 - small
    return -far, upper, upper[::-1].copy()
