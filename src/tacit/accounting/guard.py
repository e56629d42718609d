"""No epsilon is reported that a lower bound of the same ledger contradicts.

An accountant's value is an upper bound. The guard holds against it what the ledger costs at least: the exact value of
one release and other closed forms (``certified.py``), and an optimistic discretisation of all of them together
(``optimistic.py``). The two sides share no grid, no tilt and no sum, so that a mistake in one is an error that names
both values, not a number that looks like any other. From above every value is held against Rényi bounds: the reported
one is the smaller of two, or the exact one, which no Rényi bound may undercut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tacit.accounting import certified
from tacit.accounting.ledger import Tally
from tacit.errors import AccountingError

if TYPE_CHECKING:
    from tacit.accounting.optimistic import Floor

_ROUNDING = 1e-9  # of epsilon
_HALVINGS = 60


def check(clients: Sequence[Tally], delta: float, epsilon: float, accountant: str) -> None:
    """Raise an error where ``epsilon`` is certainly less than some client lost at ``delta``, or more than by Rényi.

    Raises:
        AccountingError: two bounds on the same epsilon contradict each other.
    """
    if not math.isfinite(epsilon):
        return
    place = epsilon * (1.0 + _ROUNDING) + 1e-12
    for tally in clients:
        if _exceeded(tally, delta, place, accountant):
            raise AccountingError(
                f"The accountant {accountant} found epsilon {epsilon:.6g} at delta {delta:g} ({tally.neighbours}, "
                f"sampling {tally.sampling}), and the same ledger certainly costs {lower(tally, delta):.6g} or more: "
                "one of the two is wrong. Please report this with the ledger. Nothing is claimed."
            )
    if accountant == "exact-gaussian":
        above = max(_gaussian_renyi(tally.mu, delta) for tally in clients)
        if epsilon > above * (1.0 + _ROUNDING):
            raise AccountingError(
                f"The accountant {accountant} found epsilon {epsilon:.6g} at delta {delta:g}, and its Rényi bound is "
                f"{above:.6g}: one of the two is wrong. Please report this with the ledger. Nothing is claimed."
            )


def lower(tally: Tally, delta: float) -> float:
    """Return a certified lower bound on the epsilon of a ledger: the largest that is known here."""
    if tally.hopeless:
        return math.inf
    found = _closed(tally, delta)
    for means, most in _sides(tally):
        if most > found:
            found = max(found, _floor(tally, means, delta).least())
    return found


def _exceeded(tally: Tally, delta: float, epsilon: float, accountant: str) -> bool:
    """Return whether a ledger certainly costs more."""
    if certified.log_delta(tally, epsilon) > math.log(delta):
        return True
    if accountant == "basic" and not (tally.poisson or tally.fixed or tally.mixed):
        return False  # what adds up needs no other bound than the outcome in which all is lost
    return any(most > epsilon and _floor(tally, means, delta).exceeds(epsilon) for means, most in _sides(tally))


def _sides(tally: Tally) -> list[tuple[tuple[float, float], float]]:
    if not (tally.poisson or tally.fixed or tally.unmixed) or tally.skellam or tally.hopeless:
        return []
    from tacit.accounting import optimistic

    return optimistic.sides(tally)


def _floor(tally: Tally, means: tuple[float, float], delta: float) -> Floor:
    from tacit.accounting import optimistic

    return optimistic.Floor(tally, means, delta)


def _closed(tally: Tally, delta: float) -> float:
    """Return nearly the largest epsilon at which the closed forms exceed ``delta``, or zero."""

    def exceeds(epsilon: float) -> bool:
        return certified.log_delta(tally, epsilon) > math.log(delta)

    low, high = 0.0, 1e-12
    while exceeds(high):
        low, high = high, 2.0 * high
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return low


def _gaussian_renyi(mu: float, delta: float) -> float:
    """Return the Rényi bound on a Gaussian release, at its best order (Mironov 2017)."""
    return 0.5 * mu * mu + mu * math.sqrt(-2.0 * math.log(delta))
