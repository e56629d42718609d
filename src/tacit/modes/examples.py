"""The example level of a run: from the configuration, and its account, client by client."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tacit.accounting import events
from tacit.accounting.accountant import Cost
from tacit.accounting.events import RepeatedEvent
from tacit.config.run_config import RunConfig
from tacit.config.sections import DpSgd, Train
from tacit.errors import BudgetError, ConfigError, RunError
from tacit.federated.examples import AGAINST, BUDGETS, ExampleLevel, Examples, noise_for
from tacit.federated.plan import Claim, Privacy

MODE = "dp-sgd"
_HOSTS = (MODE, "dp", "local-dp")
_CLIP = 1.0
_SIZES = "How many examples a client holds is taken to be public; its training loss stays with it."
_ALONE = (
    "How many examples there are is taken to be public; the loss and the accuracy on the training data are the data "
    "holder's own, no noise protects them."
)
_OTHER = {
    "client": "It protects one example within a client's data, not the client as a whole: that is the other epsilon.",
    None: "It protects one example within a client's data, not the client as a whole.",
}


def level_of(config: RunConfig) -> ExampleLevel | None:
    """Return the example level that the configuration asks for, or None."""
    own = config.dpsgd
    if config.engine == "alone" and (config.mode != MODE or config.federate.clients not in (None, 1)):
        raise ConfigError(
            f"engine=alone is one data holder with DP-SGD: expected mode=dp-sgd and federate.clients=1, got "
            f"mode={config.mode} and federate.clients={config.federate.clients}."
        )
    changed = [f"dpsgd.{key}" for key, value in own if value != getattr(DpSgd(), key)]
    asked = own.noise is not None or own.epsilon is not None
    if config.mode not in _HOSTS:
        if changed:
            raise ConfigError(
                f"{', '.join(changed)} has no effect in mode {config.mode!r}. Use --mode dp-sgd, or --mode dp with "
                "dpsgd.epsilon for both levels."
            )
        return None
    alone = config.mode == MODE
    if not asked and not alone:
        if changed:
            raise ConfigError("DP-SGD inside the clients needs dpsgd.epsilon or dpsgd.noise.")
        return None
    dp = config.dp
    if alone and dp.clip == "adaptive":
        raise ConfigError(
            "dp.clip=adaptive is for mode 'dp'. For DP-SGD set --clip to a number, or clipping=automatic."
        )
    if alone and own.batch_size is None and config.train.batch_size != Train().batch_size:
        raise ConfigError(
            f"train.batch_size={config.train.batch_size} is for plain SGD. Set dpsgd.batch_size, the mean size of a "
            "Poisson batch."
        )
    return ExampleLevel(
        delta=own.delta or dp.delta,
        clip=own.clip or (float(dp.clip) if alone and dp.clip is not None else _CLIP),
        clipping=own.clipping,
        epsilon=own.epsilon if asked or not alone else dp.epsilon,
        noise=own.noise if asked or not alone else dp.noise,
        max_epsilon=own.max_epsilon or (dp.max_epsilon if alone else None),
        batch_size=own.batch_size,
        epochs=config.train.local_epochs,
        steps=own.steps,
        rounds=1 if config.engine == "alone" else config.federate.rounds,
        micro_batch=own.micro_batch,
        budget_by=own.budget_by,
    )


def claim_of(level: ExampleLevel, *, beside: str | None = None, alone: bool = False) -> Claim:
    """Return the claim that an example level makes.

    Args:
        level: how clients train.
        beside: the unit of the other level, if there is one.
        alone: whether it is one data holder without a federation.
    """
    limits = [limit for limit in (level.epsilon, level.max_epsilon) if limit is not None]
    return Claim(
        delta=level.delta,
        unit="example",
        neighbours="add-remove",
        against="whoever sees the model, now or after any step" if alone else AGAINST,
        max_epsilon=min(limits) if limits else None,
        notes=(_ALONE,) if alone else (_OTHER[beside], _SIZES),
    )


def methods(examples: Examples) -> tuple[str, ...]:
    """Return what the budget's other solutions would have needed, where the lab's method was asked for."""
    level = examples.level
    if level.budget_by == "tight" or level.epsilon is None:
        return ()
    rate = max(examples.rates)
    total_steps = level.rounds * max(examples.steps)
    two, exact, tight = (
        noise_for(way, epsilon=level.epsilon, delta=level.delta, steps=total_steps, rate=rate) for way in BUDGETS
    )
    return (
        f"Noise multiplier by the lab's advanced composition: {two:.6g} in two steps, {exact:.6g} by the exact root; "
        f"the tight accounting needs {tight:.6g} for the same budget, {examples.noise_multiplier / tight:.3g} times "
        "less than was used. Epsilon is what the noise in use really costs.",
    )


class ExampleAccount:
    """Charges every client of a cohort for its own steps, and refuses a round that would break the budget."""

    def __init__(self, examples: Examples, claim: Claim, earlier: Iterable[Sequence[Mapping[str, Any]]] = ()) -> None:
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
        self._worst: tuple[int, Cost] | None = None

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

    def _spent(self) -> tuple[int, Cost]:
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
