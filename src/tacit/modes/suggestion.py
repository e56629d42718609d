"""Settings of SignDS that are a guarantee: the ones that keep a budget, and of those the ones that say most."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from tacit.accounting import accountant
from tacit.accounting.events import ComposedEvent, Event, PureEvent, RepeatedEvent, ShuffledEvent
from tacit.accounting.ledger import Ledger
from tacit.accounting.roots import first_at_most_zero
from tacit.errors import ConfigError
from tacit.mechanisms.selection import Selection, plan

_SHARES = (0.25, 0.2, 0.15, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
_LARGEST, _SMALLEST = 100.0, 1e-4


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """Settings, what they come to, and what a report of them says."""

    sign_k: float
    sign_eps: float
    step: str
    output_dimensions: int
    threshold: int
    expected_hits: float
    participations: int
    epsilon: float  # of all participations
    delta: float
    accountant: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)

    def words(self) -> str:
        """Return the settings as they are written on a command line."""
        return f"signds.sign_k={self.sign_k:g} signds.sign_eps={self.sign_eps:.4g} signds.step={self.step}"


def composed(
    sign_eps: float, rr_eps: float, *, participations: int, delta: float, shuffled: int | None = None
) -> accountant.PrivacyCost:
    """Return what so many reports of a client cost, mixed among ``shuffled`` by a trusted shuffler or not."""
    if participations < 1:
        raise ConfigError(f"Expected participations={participations} >= 1.")
    event: Event = ComposedEvent(
        events=tuple(PureEvent(epsilon=epsilon) for epsilon in (sign_eps, rr_eps) if epsilon > 0.0)
    )
    if shuffled is not None:
        event = ShuffledEvent(epsilon=sign_eps + rr_eps, reports=shuffled)
    ledger = Ledger(neighbours="replace-one")
    ledger = ledger.charged(RepeatedEvent(event=event, count=participations), round_number=1)
    return accountant.epsilon(ledger, delta)


def suggest(
    *, dimensions: int, epsilon: float, delta: float, participations: int, shuffled: int | None = None
) -> Suggestion:
    """Return settings whose whole cost over ``participations`` of a client is at most ``epsilon``.

    All of it goes to the named coordinates, with a fixed step: within a sensible budget the magnitude's bit could only
    be a coin toss. Of the shares k / d the one is taken whose expected hits stand out most from those of a random set.
    Nothing here looks at data.
    """
    if not epsilon > 0.0:
        raise ConfigError(f"Expected a budget epsilon > 0, got {epsilon}.")

    def cost(sign_eps: float) -> accountant.PrivacyCost:
        return composed(sign_eps, 0.0, participations=participations, delta=delta, shuffled=shuffled)

    def excess(inverse: float) -> float:  # falls as a report gets cheaper, so the answer is on the private side
        return cost(1.0 / inverse).epsilon - epsilon

    low, high = 1.0 / _LARGEST, 1.0 / _SMALLEST
    if excess(high) > 0.0:
        raise ConfigError(
            f"Not even reports of epsilon {_SMALLEST:g} keep epsilon {epsilon:g} over {participations} participations. "
            "Raise the budget, or lower the number of rounds a client takes part in."
        )
    best = low if excess(low) <= 0.0 else first_at_most_zero(excess, low, high, relative=1e-3)
    sign_eps = float(f"{1.0 / best * (1.0 - 1e-3):.3g}")
    while (answer := cost(sign_eps)).epsilon > epsilon:  # the rounding may have gone up
        sign_eps = float(f"{sign_eps * 0.99:.3g}")
    shares = [share for share in _SHARES if share * dimensions >= 1.0] or [_SHARES[0]]
    chosen = max(
        ((share, plan(dimensions=dimensions, share=share, epsilon=sign_eps)) for share in shares),
        key=lambda pair: _signal(pair[1]),
    )
    return Suggestion(
        sign_k=chosen[0],
        sign_eps=sign_eps,
        step="fixed",
        output_dimensions=chosen[1].chosen,
        threshold=chosen[1].threshold,
        expected_hits=chosen[1].expected_hits,
        participations=participations,
        epsilon=answer.epsilon,
        delta=delta,
        accountant=answer.accountant,
    )


def _signal(selection: Selection) -> float:
    """Return how far the named set is from a random one, in standard deviations of a random one's hits."""
    share = selection.largest / selection.dimensions
    by_chance = selection.chosen * share
    return (selection.expected_hits - by_chance) / math.sqrt(by_chance * (1.0 - share))
