"""Epsilon by privacy loss distributions: Poisson samples, pure releases and Gaussian ones in any mixture.

Losses of independent releases add up, so the distribution of the total is a convolution, and

    delta(eps) = mass at infinity + sum over losses l > eps of mass(l) (1 - e^(eps - l))

(Sommer, Meiser & Mohammadi 2019; Koskela, Jälkö & Honkela 2020). The result is an upper bound: the grid only rounds up
(``loss.py``), truncated mass is charged as infinite, and what the convolution may wrap around or round off is added.
dp-accounting's PLD is the yardstick in the tests. This one is some ten times faster, because its transforms are tilted
(``compose.py``) and the step of its grid follows the spread of the total and the number of releases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from tacit.accounting import profile
from tacit.accounting.ledger import Tally
from tacit.accounting.pld.compose import ComposedLoss, width
from tacit.accounting.pld.loss import ADD, REMOVE, REPLACE, Losses, Pair
from tacit.accounting.pld.shuffling import shuffled
from tacit.accounting.roots import bracket_up, first_at_most_zero

_STEP = 1e-4  # dp-accounting's
_FINEST = 1e-10  # for releases that cost next to nothing
LEAST_NOISE = 1e-3  # less, and one release already costs half a million; sampling changes only the last digits
_BEYOND = 1e5  # likewise of what is not sampled
_COARSE = 4096  # points of a first look
_POINTS = 1 << 19  # the most points of a grid; beyond, the step grows and with it the bound
_LONGEST = 1 << 20  # likewise of the total
_TRUNCATED = 1e-8  # share of delta that truncated losses may cost
_PLAIN = 12.0  # pure releases beyond this add up: one in e^12 loses less than all, so no theorem saves 1e-5 of it


def epsilon(tally: Tally, delta: float, *, coarser: float = 1.0) -> float:
    """Return an upper bound on epsilon at ``delta`` within about 1e-4 of the truth for epsilons of everyday size.

    Args:
        tally: what was released.
        delta: the probability that the bound may fail with.
        coarser: a factor on the grid's step; the answer stays an upper bound and comes faster.
    """
    large = sum(epsilon_ * count for epsilon_, count in tally.unmixed if epsilon_ > _PLAIN)
    if 0.0 < large < math.inf:
        pure = tuple(release for release in tally.pure if release[0] <= _PLAIN)
        mixed = tuple(release for release in tally.mixed if release[0][0] <= _PLAIN)
        rest = replace(tally, pure=pure, mixed=mixed)
        nothing = rest.mu == 0.0 and not (rest.poisson or rest.unmixed)
        return large + (0.0 if nothing else epsilon(rest, delta, coarser=coarser))
    ceiling = _unamplified(tally, delta)
    if beyond(tally):
        return ceiling
    removed = REPLACE if tally.neighbours == "replace-one" else REMOVE
    found = _epsilon(_Releases.of(tally, removed), delta, coarser)
    # Gaussian and pure losses look the same from both sides, and so does what one replaces. One more among a sample
    # loses at most -ln(1-q), and mostly that is less than one fewer.
    most = -sum(group.count * math.log1p(-group.rate) for group in tally.poisson)
    if removed == REMOVE and tally.poisson and (tally.mu > 0.0 or tally.unmixed or most > found):
        found = max(found, _epsilon(_Releases.of(tally, ADD), delta, coarser))
    return min(ceiling, found)


def beyond(tally: Tally) -> bool:
    """Return whether so much is lost that no grid is laid over it; what nobody sampled is accounted in closed form."""
    largest = max(tally.mu**2, *(epsilon_ * count for epsilon_, count in tally.unmixed), 0.0)
    return largest > _BEYOND or any(group.noise_multiplier < LEAST_NOISE for group in tally.poisson)


def _unamplified(tally: Tally, delta: float) -> float:
    """Return what the releases cost as if everyone took part in each: a bound too, and no grid is needed for it."""
    poisson = sum(group.count * (tally.reach / group.noise_multiplier) ** 2 for group in tally.poisson)
    pure = sum(epsilon_ * count for epsilon_, count in tally.unmixed)
    mu = math.sqrt(tally.mu**2 + poisson)
    return (profile.epsilon_at(delta=delta, mu=mu) if mu > 0.0 else 0.0) + pure


@dataclass(frozen=True, kw_only=True)
class _Releases:
    """Independent releases, all seen in the same direction: pairs with counts, pure ones and shuffled reports."""

    pairs: tuple[tuple[Pair, int], ...]
    pure: tuple[tuple[float, int], ...]
    mixed: tuple[tuple[tuple[float, int], int], ...]

    @classmethod
    def of(cls, tally: Tally, means: tuple[float, float]) -> _Releases:
        pairs = [
            (Pair(means=means, rate=group.rate, deviation=group.noise_multiplier), group.count)
            for group in tally.poisson
        ]
        if tally.mu > 0.0:
            pairs.append((Pair(means=REMOVE, rate=1.0, deviation=1.0 / tally.mu), 1))
        return cls(pairs=tuple(pairs), pure=tally.pure, mixed=tally.mixed)

    def step(self, tail: float, delta: float) -> float:
        """Return a step that keeps the width of a bin, and the sum of all roundings, far below the spread of the total.

        Connecting the dots widens each release by up to step^2/4 in variance and half of that in mean. The step is
        dp-accounting's 1e-4 times a power of two, other than one only where that would be too coarse or too slow: on
        nested grids the coarser answer is the larger one, so that the two never contradict each other.
        """
        variance, range_, count = 0.0, 0.0, 0
        looks = []
        for pair, times in self.pairs:
            low, high = pair.reach(tail)
            look = pair.losses(step=max((high - low) / _COARSE, _FINEST), tail=tail)
            looks.append((look, times))
            mean = float((look.masses * look.points).sum())
            variance += times * float((look.masses * (look.points - mean) ** 2).sum())
            range_, count = max(range_, high - low), count + times
        for epsilon_, times in self.pure:
            variance += times * epsilon_**2
            looks.append((Losses.pure(epsilon_, step=epsilon_), times))
            range_, count = max(range_, 2.0 * epsilon_), count + times
        for (epsilon_, reports), times in self.mixed:
            look = shuffled(epsilon_, reports, step=max(2.0 * epsilon_ / _COARSE, _FINEST), tail=tail)
            variance += times * float((look.masses * look.points**2).sum())
            looks.append((look, times))
            range_, count = max(range_, 2.0 * epsilon_), count + times
        spread = math.sqrt(variance)
        finest = min(spread / 256.0, math.sqrt(1e-2 * spread / count))
        coarsest = min(spread / 4e4, math.sqrt(2e-5 * spread / count), max(1e-3, spread * 1e-4))
        longest = max(range_ / _POINTS, width(looks, delta) / _LONGEST)
        wanted = max(min(max(coarsest, _STEP), finest), longest, spread * 1e-5, _FINEST)
        return _STEP * 2.0 ** math.floor(math.log2(wanted / _STEP))

    def losses(self, step: float, tail: float) -> list[tuple[Losses, int]]:
        """Return every release on the same grid."""
        sampled = [(pair.losses(step=step, tail=tail), times) for pair, times in self.pairs]
        mixed = [(shuffled(*release, step=step, tail=tail), times) for release, times in self.mixed]
        return sampled + mixed + [(Losses.pure(epsilon_, step=step), times) for epsilon_, times in self.pure]


@lru_cache(maxsize=4096)  # repeats and points of a sweep release the same
def _epsilon(releases: _Releases, delta: float, coarser: float) -> float:
    count = sum(times for _, times in (*releases.pairs, *releases.pure, *releases.mixed))
    tail = max(delta * _TRUNCATED / max(count, 1), 1e-300)
    losses = releases.losses(releases.step(tail, delta) * coarser, tail)
    if sum(times * each.delta_at_zero for each, times in losses) <= delta:  # these add up; a steep tilt can't see zero
        return 0.0
    total = ComposedLoss(losses, delta)

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
