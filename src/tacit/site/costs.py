"""What one reply of a site costs, against whom, and what many of them cost together.

A site's own book is not the hub's. It knows what left it and nothing of what the server does, so a reply is priced for
each :data:`~tacit.site.contract.Trust`:

=========  ===================================================================================================
nobody     what the site's own noise hides, whoever sees its message: epsilon holds against everyone
cohort     under masks and encryption: the noise of all whose sum is opened, if they keep theirs to themselves
server     in mode dp: the server's noise, if it adds it; epsilon holds against whoever sees the models
=========  ===================================================================================================

and, where the site trains with DP-SGD, for one of its rows (against everyone). No amplification by the hub's sampling
is claimed: the site was asked, and can't look at the hub's coins. Neighbours are *all data of the site replaced by any
other* (replace-one), which covers every row of theirs; a row that DP-SGD protects is added or removed (add-remove).

All prices of a reply are kept, so that a site that trusts less later sees what its past costs then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tacit.accounting import accountant, events
from tacit.accounting.events import (
    ComposedEvent,
    Event,
    GaussianEvent,
    PureEvent,
    RepeatedEvent,
    SampledEvent,
    ShuffledEvent,
    SkellamEvent,
)
from tacit.accounting.ledger import RunningLedger, repeated
from tacit.federated.examples import ExamplePlan
from tacit.federated.plan import Plan
from tacit.mechanisms.mechanism import Hides, Mechanism
from tacit.modes.catalogue import mode_of
from tacit.site.contract import TRUSTS, Budget, Trust

NO_NOISE = GaussianEvent(noise_multiplier=0.0)  # costs an infinite epsilon
AGAINST: Mapping[Trust, str] = {
    "nobody": "everyone, the server included",
    "cohort": "the server and everyone else, while enough other sites add their noise and keep it to themselves",
    "server": "whoever sees the models, and not the server and its app, which are trusted to add noise and to forget",
}


@dataclass(frozen=True, kw_only=True)
class Price:
    """What one reply costs: for the site as a whole by whom it trusts, and for one of its rows under DP-SGD."""

    nobody: Event
    cohort: Event
    server: Event
    example: Event | None = None

    def of(self, budget: Budget) -> Event:
        """Return the release that a budget is charged for."""
        if budget.unit == "example" and self.example is not None:
            return self.example
        return self.by(budget.trust)

    def by(self, trust: Trust) -> Event:
        """Return what it costs the site as a whole."""
        return {"nobody": self.nobody, "cohort": self.cohort, "server": self.server}[trust]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        plain: dict[str, Any] = {trust: events.to_dict(self.by(trust)) for trust in TRUSTS}
        return plain if self.example is None else plain | {"example": events.to_dict(self.example)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Price:
        """Build the price that :meth:`to_dict` wrote; what is not understood is refused, never skipped."""
        return cls(**{name: events.from_dict(value) for name, value in data.items()})


def price_of(plan: Plan, mechanism: Mechanism, *, examples: ExamplePlan | None, party: int) -> Price:
    """Return what a reply costs.

    Args:
        plan: of the run.
        mechanism: the plan's, as it is in this round.
        examples: DP-SGD inside this client.
        party: this client's number.
    """
    mode = mode_of(plan.mode)
    own = mechanism.alone if isinstance(mechanism, Hides) else NO_NOISE
    claimed = NO_NOISE if plan.claim is None or mechanism.event is None else mechanism.event
    return Price(
        nobody=own,
        cohort=claimed if mode.hidden else own,
        server=claimed if mode.hidden or mode.central else own,
        example=None if examples is None else examples.event(party, examples.steps[party]),
    )


def least_noise(event: Event) -> float:
    """Return the smallest noise multiplier in an event; infinite where a release has no such number.

    >>> least_noise(GaussianEvent(noise_multiplier=2.0)), least_noise(PureEvent(epsilon=1.0))
    (2.0, inf)
    """
    match event:
        case ComposedEvent():
            return min(map(least_noise, event.events), default=math.inf)
        case RepeatedEvent() | SampledEvent():
            return least_noise(event.event)
        case PureEvent() | ShuffledEvent():
            return math.inf
        case _:
            return event.noise_multiplier


def composed(prices: Iterable[tuple[Price, int]], budget: Budget) -> float:
    r"""Return the epsilon of all releases together, each with how often it was made.

    There are three books: releases priced for a row (DP-SGD), releases with Skellam noise, whose accountant knows no
    sampling and no pure releases, and all others. Where several were written in, each gets an equal part of delta and
    the epsilons add up (basic composition): a row more or less is one of the changes that the other two cover.
    """
    rows = RunningLedger(unit="example")
    skellam, others = RunningLedger(neighbours="replace-one"), RunningLedger(neighbours="replace-one")
    for price, count in prices:
        release = price.of(budget)
        by_row = budget.unit == "example" and price.example is not None
        (rows if by_row else skellam if isinstance(release, SkellamEvent) else others).add(repeated(release, count))
    books = [book.short() for book in (rows, skellam, others) if book.charges]
    return sum((accountant.epsilon(book, budget.delta / len(books)).epsilon for book in books), 0.0)
