"""DP-SGD inside the clients, as the plan of a run: what protects one example within a client's data.

This is a level of its own. A client's epsilon (unit: client) says nothing of what the client's own update tells the
server; an example's epsilon (unit: example) says nothing of whether a client took part. A run may have either or
both, and reports each by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tacit.accounting import accountant, events
from tacit.accounting.accountant import PrivacyCost
from tacit.accounting.calibration import calibrate
from tacit.accounting.composition import exact_share, two_step_share
from tacit.accounting.events import Event, GaussianEvent, RepeatedEvent, SampledEvent
from tacit.accounting.ledger import Ledger
from tacit.errors import ConfigError

BudgetBy = Literal["tight", "advanced-composition", "advanced-composition-exact"]
BUDGETS: tuple[BudgetBy, ...] = ("advanced-composition", "advanced-composition-exact", "tight")
_BATCH = 512
Most = dict[float, tuple[int, int]]  # rate -> most steps that a client with it took, and which client
AGAINST = "everyone but the client itself, the server included"


@dataclass(frozen=True, kw_only=True)
class ExampleCharge:
    """What a try of a round costs the examples of some clients: the same event for each of them."""

    clients: tuple[int, ...]
    event: Event

    @property
    def steps(self) -> int:
        """How many steps of DP-SGD each client takes."""
        return self.event.count if isinstance(self.event, RepeatedEvent) else 1

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"clients": list(self.clients), "event": events.to_dict(self.event)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ExampleCharge:
        """Build the charge that :meth:`to_dict` wrote."""
        clients = data.get("clients") if isinstance(data, Mapping) else None
        if not isinstance(clients, list) or not all(type(client) is int and client >= 0 for client in clients):
            raise ConfigError(f"Not a charge of clients' examples: {data!r:.100}.")
        return cls(clients=tuple(clients), event=events.from_dict(data.get("event", {})))


@dataclass(frozen=True, kw_only=True)
class ExampleLevel:
    """What the clients' DP-SGD promises, and how it spends the budget."""

    delta: float
    clip: float  # C
    clipping: Literal["flat", "per-layer", "automatic"] = "flat"
    epsilon: float | None = None  # the budget, or
    noise: float | None = None  # z
    max_epsilon: float | None = None
    batch_size: int | None = None  # the mean size of a batch; 512, or all of a smaller holder's examples, if None
    epochs: int = 1  # passes in a round, where ``steps`` is None
    steps: int | None = None  # in a round
    rounds: int
    micro_batch: int | None = None
    budget_by: BudgetBy = "tight"

    def __post_init__(self) -> None:
        if (self.noise is None) == (self.epsilon is None):
            given = "neither" if self.noise is None else "both"
            raise ConfigError(
                f"DP-SGD needs a noise multiplier (--sigma) or a budget (--epsilon), one of them; {given} was given."
            )
        if self.budget_by != "tight" and self.epsilon is None:
            raise ConfigError(f"dpsgd.budget_by={self.budget_by} turns a budget into noise: give --epsilon.")

    def fitted(self, sizes: Sequence[int]) -> ExamplePlan:
        """Return the plan for clients that hold so many examples each."""
        batches = tuple(self._batch(client, size) for client, size in enumerate(sizes))
        steps = tuple(
            self.steps if self.steps is not None else max(1, -(-self.epochs * size // batch))
            for size, batch in zip(sizes, batches, strict=True)
        )
        rates = tuple(batch / size for size, batch in zip(sizes, batches, strict=True))
        plan = ExamplePlan(level=self, noise_multiplier=self.noise or 0.0, batches=batches, rates=rates, steps=steps)
        if self.epsilon is None:
            return plan
        # Most often the holder with the largest rate needs most; who needs more than that is looked at again.
        most = plan.most([count * self.rounds for count in steps])
        client = most[max(most)][1]
        for _ in most:
            noise = max(plan.noise_multiplier, self._calibrated(rates[client], steps[client] * self.rounds))
            plan = replace(plan, noise_multiplier=noise)
            client, worst = plan.worst(most)
            if self.budget_by != "tight" or worst.epsilon <= self.epsilon:
                break
        return plan

    def _batch(self, client: int, size: int) -> int:
        if self.batch_size is None:
            return min(_BATCH, size)
        if self.batch_size > size:
            raise ConfigError(
                f"A batch size of {self.batch_size} is larger than the data: client {client} holds {size} examples. "
                f"Use {size} or less, or leave the batch size out."
            )
        return self.batch_size

    def _calibrated(self, rate: float, steps: int) -> float:
        assert self.epsilon is not None
        return noise_for(self.budget_by, epsilon=self.epsilon, delta=self.delta, steps=steps, rate=rate)


def noise_for(budget_by: BudgetBy, *, epsilon: float, delta: float, steps: int, rate: float = 1.0) -> float:
    r"""Return the noise multiplier that ``steps`` steps get from a budget.

    ``tight`` is the least noise whose composed cost is within the budget. The lab's way gives each of k steps
    :math:`\delta_u = \delta/(k+1)` and an :math:`\varepsilon_u` by advanced composition (Dwork, Rothblum & Vadhan
    2010), solved in two substitutions or exactly, and then the classical :math:`\sqrt{2 \ln(1.25/\delta_u)} /
    \varepsilon_u`. It knows of no amplification by sampling.

    >>> round(noise_for("advanced-composition", epsilon=1.0, delta=1e-3, steps=1000), 1)
    912.8
    >>> round(noise_for("tight", epsilon=1.0, delta=1e-3, steps=1000), 2)
    81.42
    """
    if budget_by == "tight":
        found = calibrate(epsilon=epsilon, delta=delta, rounds=steps, rate=rate).noise_multiplier
        return found * (1.0 + 1e-9)  # so that no order of adding up the rounds exceeds the budget
    share_of = two_step_share if budget_by == "advanced-composition" else exact_share
    share = share_of(epsilon=epsilon, delta=delta, count=steps)
    if share.epsilon > 1.0:
        raise ConfigError(
            f"Advanced composition gives each of {steps} steps epsilon {share.epsilon:.3g}, and the classical Gaussian "
            "mechanism it goes with is proved up to 1. Take more steps, a smaller epsilon, or dpsgd.budget_by=tight."
        )
    return math.sqrt(2.0 * math.log(1.25 / share.delta)) / share.epsilon


@dataclass(frozen=True, kw_only=True)
class ExamplePlan:
    """The level fitted to clients whose numbers of examples are known."""

    level: ExampleLevel
    noise_multiplier: float  # z, the same for all
    batches: tuple[int, ...]  # the mean batch of each client
    rates: tuple[float, ...]  # q of each client
    steps: tuple[int, ...]  # of each client, in a round

    def event(self, client: int, steps: int) -> Event:
        """Return what so many steps cost an example of a client."""
        release = SampledEvent(event=GaussianEvent(noise_multiplier=self.noise_multiplier), rate=self.rates[client])
        return RepeatedEvent(event=release, count=steps)

    def spent(self, client: int, steps: int) -> PrivacyCost:
        """Return what so many steps have cost an example of a client."""
        return accountant.epsilon(self.ledger(client, steps), self.level.delta)

    def ledger(self, client: int, steps: int) -> Ledger:
        """Return what so many steps have released about an example of a client."""
        ledger = Ledger(unit="example")
        return ledger.charged(self.event(client, steps), round_number=1) if steps else ledger

    def most(self, taken: Sequence[int]) -> Most:
        """Return who took most steps of those with each rate, ``taken`` being every client's steps so far."""
        found: Most = {}
        for client, (rate, steps) in enumerate(zip(self.rates, taken, strict=True)):
            if rate not in found or steps > found[rate][0]:
                found[rate] = steps, client
        return found

    def worst(self, most: Most) -> tuple[int, PrivacyCost]:
        """Return the client whose examples have spent most.

        Only clients that no other has both a larger rate and more steps than need be looked at.
        """
        front: list[tuple[int, int]] = []
        for _, (steps, client) in sorted(most.items(), reverse=True):
            if not front or steps > front[-1][0]:
                front.append((steps, client))
        answers = [(client, self.spent(client, steps)) for steps, client in front]
        return max(answers, key=lambda pair: pair[1].epsilon)
