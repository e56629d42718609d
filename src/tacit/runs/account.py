"""The accounts of a run, charged before each release: what it costs a client, and what an example of one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from tacit.accounting import accountant, risk
from tacit.accounting.accountant import PrivacyCost
from tacit.accounting.events import Event
from tacit.accounting.ledger import Charge, Ledger, RunningLedger, repeated
from tacit.errors import BudgetError, RunError
from tacit.federated.examples import ExampleCharge, ExamplePlan, Most
from tacit.federated.plan import Claim, Privacy
from tacit.mechanisms.mechanism import Mechanism
from tacit.runs import remarks
from tacit.wire import Turn


class Account:
    """Charges a run's releases, and refuses one that would break the budget."""

    def __init__(self, claim: Claim) -> None:
        """Open the account of what ``claim`` promises."""
        self._claim = claim
        self._answer: Future[PrivacyCost] | None = None
        self._pool = ThreadPoolExecutor(1, "tacit-account")
        self._cleared: tuple[Event, int] | None = None  # so many more of this release are known to fit
        self._ledger = RunningLedger(unit=claim.unit, neighbours=claim.neighbours)

    def add(self, charge: Charge) -> None:
        """Count what was charged before, such as in a run that goes on."""
        self._ledger.add(charge.event, clients=charge.clients)
        self._answer = None

    def charge(
        self,
        mechanism: Mechanism,
        *,
        turn: Turn,
        planned: int = 1,
        cohort: Sequence[int] | None = None,
    ) -> Charge | None:
        """Charge one release and return the charge for the journal; over budget, nothing is charged or sent.

        Args:
            mechanism: what makes the release.
            turn: its round, and which try of it.
            planned: how many releases the run still plans, this one included.
            cohort: who is asked; they are charged where the claim goes by participation, and everyone elsewhere.
        """
        if mechanism.event is None:
            return None
        event = self._claim.event(mechanism.event)
        note = f"try {turn.attempt + 1}" if turn.attempt else ""
        clients = cohort if self._claim.by_participation else None
        self._check_budget(event, turn.round_number, planned, clients)
        self._ledger.add(event, clients=clients)
        # Computed while the cohort trains.
        self._answer = self._pool.submit(accountant.epsilon, self._ledger.short(), self._claim.delta)
        whose = None if clients is None else tuple(clients)
        return Charge(round_number=turn.round_number, event=event, note=note, clients=whose)

    def _check_budget(self, event: Event, round_number: int, planned: int, clients: Sequence[int] | None) -> None:
        """Refuse a release that would break the budget.

        Where all that is planned fits, even if everyone takes part in it, one look suffices: more of the same release
        never costs less.
        """
        limit = self._claim.max_epsilon
        if limit is None:
            return
        if self._cleared is not None and self._cleared[0] == event and self._cleared[1] > 0:
            self._cleared = (event, self._cleared[1] - 1)
            return
        for count in (planned, 1):
            ledger = self._ledger.short(repeated(event, count), clients=clients if count == 1 else None)
            after = accountant.epsilon(ledger, self._claim.delta)
            if after.epsilon <= limit * (1 + 1e-9):
                self._cleared = (event, count - 1)
                return
        raise BudgetError(
            f"Round {round_number} would bring epsilon to {after.epsilon:.4g}, over the budget of {limit:g} "
            f"(delta {self._claim.delta:g})."
        )

    @property
    def epsilon(self) -> float:
        """What was spent so far."""
        return self.spent().epsilon

    def privacy(self) -> Privacy:
        """Return what the run can claim now."""
        answer, claim = self.spent(), self._claim
        nominal_epsilon, nominal_delta = claim.nominal or (None, None)
        delta = None if nominal_epsilon is None else remarks.true_delta(self._ledger.short(), nominal_epsilon)
        said = (
            remarks.no_guarantee(answer.epsilon, claim.infinite),
            None if claim.nominal is None else remarks.on_nominal(claim.nominal, delta, answer),
            None if math.isinf(answer.epsilon) else remarks.on_charges(self._ledger),
            remarks.on_composition(self._ledger.short(), answer),
        )
        return Privacy(
            epsilon=answer.epsilon,
            delta=answer.delta,
            unit=answer.unit,
            neighbours=answer.neighbours,
            accountant=answer.accountant,
            against=claim.against,
            notes=tuple(note for note in said if note is not None) + claim.notes,
            nominal_epsilon=nominal_epsilon,
            nominal_delta=nominal_delta,
            true_delta=delta,
        )

    @property
    def ledger(self) -> Ledger:
        """A short ledger of what was charged so far."""
        return self._ledger.short()

    def final(self) -> Privacy:
        """Return the claim at the end of a run, with what it means as a risk, which takes a moment to find."""
        return _with_risk(self.privacy(), self._ledger.short())

    def spent(self) -> PrivacyCost:
        """Return what all charges so far cost."""
        if self._answer is None:
            return accountant.epsilon(self._ledger.short(), self._claim.delta)
        return self._answer.result()


def so_far(account: Account | ExampleAccount) -> Privacy:
    """Return what a run that has not ended can claim, with its risk where that is found at once."""
    privacy = account.privacy()
    return account.final() if privacy.accountant == "exact-gaussian" else privacy


def _with_risk(privacy: Privacy, ledger: Ledger) -> Privacy:
    found = risk.of_ledger(ledger, privacy.delta)
    return replace(privacy, right_guesses=found.right_guesses, gaussian_mu=found.mu)


def _raise(most: Most, rate: float, steps: int, client: int) -> None:
    """Note a client that has now taken more steps than all others with its rate."""
    if steps > most[rate][0]:
        most[rate] = steps, client


class ExampleAccount:
    """Charges every client of a cohort for its own steps, and refuses a round that would break the budget."""

    def __init__(self, examples: ExamplePlan, claim: Claim) -> None:
        """Open the account of what ``claim`` promises to clients that train as ``examples`` says."""
        self._examples = examples
        self._claim = claim
        self.taken = [0] * len(examples.steps)
        self._most = examples.most(self.taken)  # kept up to date, so that a round costs what its cohort is
        self._worst: tuple[int, PrivacyCost] | None = None

    def add(self, charged: Sequence[ExampleCharge]) -> None:
        """Count what a try was charged before, such as in a run that goes on."""
        for group in charged:
            for client in group.clients:
                if not 0 <= client < len(self.taken):
                    raise RunError(
                        f"The journal charges client {client}, and the run has clients 0 to {len(self.taken) - 1}: "
                        "it is damaged. Restore it, or run anew with --force."
                    )
                self._refuse_other(client, group.steps, group.event)
                self.taken[client] += group.steps
                _raise(self._most, self._examples.rates[client], self.taken[client], client)
        self._worst = None

    def _refuse_other(self, client: int, steps: int, event: Event) -> None:
        """Refuse charges of steps with another noise or rate: they can't be counted as steps of these."""
        if event != self._examples.event(client, steps):
            raise BudgetError(
                f"Earlier steps of client {client} were made with another noise or batch size than these "
                f"(noise multiplier {self._examples.noise_multiplier:.4g} now), and can't be counted with them. Set "
                "dpsgd.noise instead of a budget, the same for all fits."
            )

    def charge(
        self, clients: Sequence[int], *, round_number: int, steps: int | None = None
    ) -> tuple[ExampleCharge, ...]:
        """Charge the steps of a round to the clients of its cohort, and return the charge for the journal.

        Args:
            clients: the cohort.
            round_number: for the message.
            steps: how many steps are taken, where that is not the plan's number for a round.
        """
        most = dict(self._most)
        groups: dict[tuple[float, int], list[int]] = {}
        for client in clients:
            count, rate = self._examples.steps[client] if steps is None else steps, self._examples.rates[client]
            _raise(most, rate, self.taken[client] + count, client)
            groups.setdefault((rate, count), []).append(client)
        worst = self._examples.worst(most)
        limit = self._claim.max_epsilon
        if limit is not None and worst[1].epsilon > limit * (1 + 1e-9):
            raise BudgetError(
                f"Round {round_number} would bring the epsilon of client {worst[0]}'s examples to "
                f"{worst[1].epsilon:.4g}, over the budget of {limit:g} (delta {self._claim.delta:g})."
            )
        self._most, self._worst = most, worst
        for (_, count), members in groups.items():
            for client in members:
                self.taken[client] += count
        return tuple(
            ExampleCharge(clients=tuple(members), event=self._examples.event(members[0], count))
            for (_, count), members in groups.items()
        )

    @property
    def ledger(self) -> Ledger:
        """What the worst client's examples were charged."""
        client, _ = self._spent()
        return self._examples.ledger(client, self.taken[client])

    @property
    def epsilon(self) -> float:
        """What the worst client's examples have spent."""
        return self._spent()[1].epsilon

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
            epsilon=answer.epsilon,
            delta=answer.delta,
            unit=answer.unit,
            neighbours=answer.neighbours,
            accountant=answer.accountant,
            against=self._claim.against,
            notes=notes,
        )

    def final(self) -> Privacy:
        """Return the claim at the end of a run, with what it means as a risk."""
        return _with_risk(self.privacy(), self.ledger)

    def _extremes(self) -> list[int]:
        """Return the clients that may have spent least: fewest steps, and of those the smallest rate."""
        fewest = min(self.taken)
        return [min((c for c, n in enumerate(self.taken) if n == fewest), key=lambda c: self._examples.rates[c])]

    def _spent(self) -> tuple[int, PrivacyCost]:
        if self._worst is None:
            self._worst = self._examples.worst(self._most)
        return self._worst
