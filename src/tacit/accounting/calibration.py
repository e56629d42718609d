"""The smallest noise that keeps a whole run within a budget.

Never too little: the noise that is returned was accounted for, and its epsilon is at most the one asked. Fast: where
the cost is that of one Gaussian release the answer is closed; elsewhere that answer is the upper end, a coarse grid
finds the place, and the fine grid is used for the last few steps only.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from tacit.accounting import accountant as accounting
from tacit.accounting import profile
from tacit.accounting.accountant import Name, PrivacyCost
from tacit.accounting.events import RepeatedEvent, Sampling, SkellamEvent
from tacit.accounting.ledger import Ledger, Neighbours, Tally
from tacit.accounting.roots import first_at_most_zero
from tacit.accounting.uniform_run import uniform_run
from tacit.errors import ConfigError

_COARSER = 8.0
_ROUGH = 1e-4  # relative tolerance on the coarse grid
_TOLERANCE = 1e-6  # relative, of the noise multiplier
_SLOW_TOLERANCE = 1e-4  # the same by dp-accounting, where each step takes up to a second
_SKELLAM_TOLERANCE = 1e-9  # the same of Skellam noise
_MARGIN = 1e-6  # of the budget, so that the rounding of another accountant of the same kind does not exceed it
_LEAST = 1e-3  # sampling so rare that delta alone covers it needs no noise at all; the search stops about here


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """A noise multiplier and what a run with it costs."""

    noise_multiplier: float
    cost: PrivacyCost


def calibrate(
    *,
    epsilon: float,
    delta: float,
    rounds: int = 1,
    rate: float = 1.0,
    sampling: Sampling = "poisson",
    neighbours: Neighbours | None = None,
    accountant: Name | None = None,
) -> Calibrated:
    """Return the smallest noise multiplier whose run costs at most ``epsilon``.

    It is found up to a millionth above, or a ten-thousandth where dp-accounting is what it is calibrated by.

    Args:
        epsilon: the budget of the whole run.
        delta: strictly between 0 and 1.
        rounds: how many rounds.
        rate: the share of units in a round.
        sampling: how they are chosen.
        neighbours: the relation; see :func:`tacit.accounting.uniform_run.uniform_run` for the default.
        accountant: what to calibrate by; the tightest that applies if None.
    """
    if not 0.0 < epsilon < math.inf:
        raise ConfigError(f"Expected an epsilon above 0, got {epsilon}.")
    if not 0.0 < delta < 1.0:
        raise ConfigError(f"Expected a delta strictly between 0 and 1, got {delta}.")

    def ledger(noise: float) -> Ledger:
        return uniform_run(noise_multiplier=noise, rounds=rounds, rate=rate, sampling=sampling, neighbours=neighbours)

    @functools.cache
    def excess(noise: float) -> float:
        found = accounting.estimate(ledger(noise), delta, accountant=accountant).epsilon
        return _log_excess(found, epsilon * (1.0 - _MARGIN))

    def cost(noise: float) -> PrivacyCost:
        return accounting.epsilon(ledger(noise), delta, accountant=accountant)

    one = Tally.of(ledger(1.0))
    # Without amplification the whole run is one Gaussian release with mu proportional to 1/noise.
    unamplified = math.sqrt(one.mu**2 + sum(one.reach**2 * group.count for group in one.poisson))
    noise = unamplified / profile.largest_mu(epsilon=epsilon, delta=delta)
    if not _closed(one, accountant):
        tolerance, factor = _SLOW_TOLERANCE, 0.5
        if one.poisson and accountant in (None, "pld"):
            tolerance, factor = _TOLERANCE, 1.0 - 10.0 * _ROUGH
            noise = _rough(ledger, epsilon * (1.0 - _MARGIN), delta, noise)
        while excess(noise) > 0.0:  # an accountant looser than the exact one needs more
            noise *= 1.5
        low, high = _narrowed(excess, noise, factor=factor)
        noise = first_at_most_zero(excess, low, high, relative=tolerance)
    final = cost(noise)
    nudge = 1e-15
    while final.epsilon > epsilon:
        # The last bit of the closed form may round either way.
        noise *= 1.0 + nudge
        nudge *= 2.0
        final = cost(noise)
    return Calibrated(noise_multiplier=noise, cost=final)


def _closed(tally: Tally, accountant: Name | None) -> bool:
    """Return whether the exact Gaussian accountant is the one that will answer."""
    if accountant is None:
        return not tally.poisson and not (tally.fixed and tally.neighbours != "add-remove")
    return accountant == "exact-gaussian"


def _rough(ledger: Callable[[float], Ledger], epsilon: float, delta: float, high: float) -> float:
    """Return enough noise by a coarse grid: its epsilon is an upper bound, so that its answer is on the safe side."""
    from tacit.accounting.pld import pessimistic

    @functools.cache
    def excess(noise: float) -> float:
        return _log_excess(pessimistic.epsilon(Tally.of(ledger(noise)), delta, coarser=_COARSER), epsilon)

    if excess(high) > 0.0:
        return high
    low, high = _narrowed(excess, high, factor=0.5)
    return first_at_most_zero(excess, low, high, relative=_ROUGH)


def _narrowed(excess: Callable[[float], float], high: float, *, factor: float) -> tuple[float, float]:
    """Return noise that is not enough and noise that is, by steps down that grow up to a half."""
    while high > _LEAST and excess(high * factor) <= 0.0:
        high, factor = high * factor, max(factor**4, 0.5)
    return high * factor, high


def _log_excess(found: float, asked: float) -> float:
    """Return ln(found/asked): nearly linear in the noise, which suits the secant."""
    return -math.inf if found == 0.0 else math.log(found / asked)


def calibrate_skellam(
    *, epsilon: float, delta: float, rounds: int = 1, sensitivity: float, neighbours: Neighbours = "zero-out"
) -> Calibrated:
    """Return the smallest noise multiplier whose run costs at most ``epsilon``, a billionth above.

    Everyone is charged for every round: no amplification by sampling is claimed. The model need not be known, see
    :class:`~tacit.accounting.events.SkellamEvent`.

    Args:
        epsilon: the budget of the whole run.
        delta: strictly between 0 and 1.
        rounds: how many rounds.
        sensitivity: the norm of a client's integers before they are rounded, or anything below.
        neighbours: the relation. Under zero-out a client sends its share of the noise and no update; where the noise
            comes from the clients, add-remove is not a relation that this noise holds for.

    >>> found = calibrate_skellam(epsilon=8.0, delta=1e-5, rounds=100, sensitivity=2.0**14)
    >>> round(found.noise_multiplier, 4), round(found.cost.epsilon, 6), found.cost.accountant
    (6.3809, 8.0, 'rdp-skellam')
    """
    if not 0.0 < epsilon < math.inf:
        raise ConfigError(f"Expected an epsilon above 0, got {epsilon}.")
    profile.check_delta(delta)
    if rounds < 1:
        raise ConfigError(f"Expected 1 round or more, got rounds={rounds}.")

    def ledger(noise: float) -> Ledger:
        event = RepeatedEvent(event=SkellamEvent(noise_multiplier=noise, sensitivity=sensitivity), count=rounds)
        return Ledger(neighbours=neighbours).charged(event, round_number=1)

    def excess(noise: float) -> float:
        return accounting.estimate(ledger(noise), delta).epsilon - epsilon

    # What Gaussian noise would need, by its exact cost, is a good first guess, and a little too small.
    low = math.sqrt(rounds) / profile.largest_mu(epsilon=epsilon, delta=delta)
    while excess(low) <= 0.0:
        low /= 2.0
    high = 2.0 * low
    while excess(high) > 0.0:
        low, high = high, 2.0 * high
    noise = first_at_most_zero(excess, low, high, relative=_SKELLAM_TOLERANCE)
    return Calibrated(noise_multiplier=noise, cost=accounting.epsilon(ledger(noise), delta))
