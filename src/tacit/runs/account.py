"""The account of a run: its ledger, charged before each release, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tacit.accounting import accountant
from tacit.accounting.accountant import PrivacyCost
from tacit.accounting.events import Event
from tacit.accounting.ledger import Charge, RunningLedger, repeated
from tacit.errors import BudgetError
from tacit.federated.plan import NO_CLAIM, Claim, Privacy
from tacit.mechanisms.mechanism import Mechanism
from tacit.runs import remarks


class Account:
    """Charges a run's releases, and refuses one that would break the budget."""

    def __init__(self, claim: Claim | None, earlier: Iterable[Mapping[str, Any]] = ()) -> None:
        """Open the account.

        Args:
            claim: what the run promises; without one nothing is charged.
            earlier: the charges that the journal of an interrupted run holds.
        """
        self._claim = claim
        self._answer: Future[PrivacyCost] | None = None
        self._pool = ThreadPoolExecutor(1, "tacit-account")
        self._cleared: tuple[Event, int] | None = None  # so many more of this release are known to fit
        if claim is not None:
            self._ledger = RunningLedger(unit=claim.unit, neighbours=claim.neighbours)
            for told in earlier:
                charge = Charge.from_dict(told)
                self._ledger.add(charge.event, clients=charge.clients)

    def charge(
        self,
        mechanism: Mechanism,
        *,
        round_number: int,
        attempt: int,
        planned: int = 1,
        cohort: Sequence[int] | None = None,
    ) -> dict[str, Any] | None:
        """Charge one release and return the charge for the journal; over budget, nothing is charged or sent.

        Args:
            mechanism: what makes the release.
            round_number: its round.
            attempt: which try of the round it is, from 0.
            planned: how many releases the run still plans, this one included.
            cohort: who is asked; they are charged where the claim goes by participation, and everyone elsewhere.
        """
        if self._claim is None or mechanism.event is None:
            return None
        event = self._claim.event(mechanism.event)
        note = f"try {attempt + 1}" if attempt else ""
        clients = cohort if self._claim.by_participation else None
        self._check_budget(event, round_number, planned, clients)
        self._ledger.add(event, clients=clients)
        # Computed while the cohort trains.
        self._answer = self._pool.submit(accountant.epsilon, self._ledger.short(), self._claim.delta)
        whose = None if clients is None else tuple(clients)
        return Charge(round_number=round_number, event=event, note=note, clients=whose).to_dict()

    def _check_budget(self, event: Event, round_number: int, planned: int, clients: Sequence[int] | None) -> None:
        """Refuse a release that would break the budget.

        Where all that is planned fits, even if everyone takes part in it, one look suffices: more of the same release
        never costs less.
        """
        assert self._claim is not None
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
    def epsilon(self) -> float | None:
        """What was spent so far; None where nothing is claimed, or where it is infinite."""
        answer = self._spent()
        return None if answer is None or not math.isfinite(answer.epsilon) else answer.epsilon

    def privacy(self) -> Privacy:
        """Return what the run can claim now."""
        answer, claim = self._spent(), self._claim
        if answer is None or claim is None:
            return NO_CLAIM
        nominal_epsilon, nominal_delta = claim.nominal or (None, None)
        delta = None if nominal_epsilon is None else remarks.true_delta(self._ledger.short(), nominal_epsilon)
        said = (
            remarks.no_guarantee(answer.epsilon),
            None if claim.nominal is None else remarks.on_nominal(claim.nominal, delta, answer),
            remarks.on_charges(self._ledger),
            remarks.on_composition(self._ledger.short(), answer),
        )
        return Privacy(
            epsilon=self.epsilon,
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

    def _spent(self) -> PrivacyCost | None:
        if self._claim is None:
            return None
        if self._answer is None:
            return accountant.epsilon(self._ledger.short(), self._claim.delta)
        return self._answer.result()
