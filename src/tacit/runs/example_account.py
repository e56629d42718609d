"""The account of a run's examples, client by client: each is charged for its own steps of DP-SGD."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tacit.accounting import events
from tacit.accounting.accountant import PrivacyCost
from tacit.accounting.events import RepeatedEvent
from tacit.errors import BudgetError, RunError
from tacit.federated.examples import ExamplePlan
from tacit.federated.plan import Claim, Privacy


class ExampleAccount:
    """Charges every client of a cohort for its own steps, and refuses a round that would break the budget."""

    def __init__(
        self, examples: ExamplePlan, claim: Claim, earlier: Iterable[Sequence[Mapping[str, Any]]] = ()
    ) -> None:
        """Open the account; ``earlier`` are the charges that the journal of an interrupted run holds."""
        self._examples = examples
        self._claim = claim
        self.taken = [0] * len(examples.steps)
        for charge in earlier:
            for group, (clients, steps) in zip(charge, read(charge), strict=True):
                for client in clients:
                    if not 0 <= client < len(self.taken):
                        raise RunError(
                            f"The journal charges client {client}, and the run has clients 0 to {len(self.taken) - 1}: "
                            "it is damaged. Restore it, or run anew with --force."
                        )
                    self._refuse_other(client, steps, events.from_dict(group["event"]))
                    self.taken[client] += steps
        self._worst: tuple[int, PrivacyCost] | None = None

    def _refuse_other(self, client: int, steps: int, event: events.Event) -> None:
        """Refuse charges of steps with another noise or rate: they can't be counted as steps of these."""
        if event != self._examples.event(client, steps):
            raise BudgetError(
                f"Earlier steps of client {client} were made with another noise or batch size than these "
                f"(noise multiplier {self._examples.noise_multiplier:.4g} now), and can't be counted with them. Set "
                "dpsgd.noise instead of a budget, the same for all fits."
            )

    def charge(self, clients: Sequence[int], *, round_number: int, steps: int | None = None) -> list[dict[str, Any]]:
        """Charge the steps of a round to the clients of its cohort, and return the charge for the journal.

        Args:
            clients: the cohort.
            round_number: for the message.
            steps: how many steps are taken, where that is not the plan's number for a round.
        """
        after = list(self.taken)
        groups: dict[tuple[float, int], list[int]] = {}
        for client in clients:
            count = self._examples.steps[client] if steps is None else steps
            after[client] += count
            groups.setdefault((self._examples.rates[client], count), []).append(client)
        worst = self._examples.worst(after)
        limit = self._claim.max_epsilon
        if limit is not None and worst[1].epsilon > limit * (1 + 1e-9):
            raise BudgetError(
                f"Round {round_number} would bring the epsilon of client {worst[0]}'s examples to "
                f"{worst[1].epsilon:.4g}, over the budget of {limit:g} (delta {self._claim.delta:g})."
            )
        self.taken, self._worst = after, worst
        return [
            {"clients": members, "event": events.to_dict(self._examples.event(members[0], count))}
            for (_, count), members in groups.items()
        ]

    @property
    def epsilon(self) -> float | None:
        """What the worst client's examples have spent; None where it is infinite."""
        spent = self._spent()[1].epsilon
        return spent if math.isfinite(spent) else None

    def privacy(self) -> Privacy:
        """Return what the run can claim for an example of any client."""
        client, answer = self._spent()
        least = min((self._examples.spent(c, self.taken[c]).epsilon for c in self._extremes()), default=0.0)
        notes = self._claim.notes
        if not math.isfinite(answer.epsilon):
            notes = ("There is no guarantee: epsilon is infinite, because a release had no noise.", *notes)
        elif len(self.taken) > 1:
            notes = (f"Epsilon is that of the worst of {len(self.taken)} clients (client {client}).", *notes)
            if least < answer.epsilon:
                notes = (f"{notes[0][:-1]}; some client's is as low as {least:.4g}.", *notes[1:])
        return Privacy(
            epsilon=self.epsilon,
            delta=answer.delta,
            unit=answer.unit,
            neighbours=answer.neighbours,
            accountant=answer.accountant,
            against=self._claim.against,
            notes=notes,
        )

    def _extremes(self) -> list[int]:
        """Return the clients that may have spent least: fewest steps, and of those the smallest rate."""
        fewest = min(self.taken)
        return [min((c for c, n in enumerate(self.taken) if n == fewest), key=lambda c: self._examples.rates[c])]

    def _spent(self) -> tuple[int, PrivacyCost]:
        if self._worst is None:
            self._worst = self._examples.worst(self.taken)
        return self._worst


def read(charge: Sequence[Mapping[str, Any]]) -> list[tuple[list[int], int]]:
    """Return who was charged how many steps, from the journal's record of an attempt."""
    told = []
    for group in charge:
        event = events.from_dict(group["event"])
        told.append(
            ([int(client) for client in group["clients"]], event.count if isinstance(event, RepeatedEvent) else 1)
        )
    return told
