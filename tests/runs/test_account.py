from __future__ import annotations

from dataclasses import replace

import pytest

from tacit.accounting import accountant
from tacit.accounting.accountant import PrivacyCost
from tacit.accounting.ledger import Ledger
from tacit.errors import BudgetError
from tacit.federated.plan import Claim
from tacit.mechanisms.mechanism import Mechanism
from tacit.mechanisms.signds import SignDS
from tacit.runs.account import Account
from tacit.wire import Turn

REPORT: Mechanism = SignDS(
    share=0.2,
    epsilon=1.0,
    ratio=0.6,
    fixed_step=1.0,
    population=2,
    expected_clients=1.0,
    magnitude=None,
)
CLAIM = Claim(
    delta=1e-9, unit="client", neighbours="replace-one", against="all", max_epsilon=4.0, by_participation=True
)


def charge(account: Account, cohorts: list[tuple[int, ...]]) -> int:
    """Charge round after round and return how many fit."""
    for number, cohort in enumerate(cohorts, start=1):
        planned = len(cohorts) - number + 1
        try:
            account.charge(REPORT, turn=Turn(round_number=number), planned=planned, cohort=cohort)
        except BudgetError:
            return number - 1
    return len(cohorts)


def test_a_client_is_stopped_at_its_own_budget_whoever_came_between() -> None:
    """When client 1 comes, all that is planned would fit for it; that says nothing about client 0."""
    assert charge(Account(CLAIM), [(0,), (0,), (0,), (1,), (0,), (0,)]) == 5
    assert charge(Account(CLAIM), [(0,), (1,), (0,), (1,), (0,), (1,), (0,), (1,)]) == 8


def test_without_participations_everyone_is_charged_for_every_round() -> None:
    account = Account(replace(CLAIM, by_participation=False))
    assert charge(account, [(0,), (1,), (0,), (1,), (0,)]) == 4


def test_earlier_charges_keep_their_clients() -> None:
    first = Account(CLAIM)
    charges = [
        first.charge(REPORT, turn=Turn(round_number=number), planned=9, cohort=(number % 2,)) for number in range(1, 8)
    ]
    again = Account(CLAIM)
    for made in charges:
        assert made is not None
        again.add(made)
    assert again.privacy().epsilon == first.privacy().epsilon == pytest.approx(4.0)
    with pytest.raises(BudgetError):
        again.charge(REPORT, turn=Turn(round_number=8), cohort=(1,))
    assert again.charge(REPORT, turn=Turn(round_number=8), cohort=(0,)) is not None


@pytest.mark.parametrize("by_participation", [True, False])
def test_every_round_of_a_long_run_is_charged_with_the_same_work(
    by_participation: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def epsilon(ledger: Ledger, delta: float) -> PrivacyCost:
        seen.append(len(ledger.charges))
        return accountant.estimate(ledger, delta, accountant="basic")

    monkeypatch.setattr(accountant, "epsilon", epsilon)
    claim = replace(CLAIM, by_participation=by_participation, max_epsilon=1e9)
    account = Account(claim)
    for number in range(1, 2_001):
        account.charge(REPORT, turn=Turn(round_number=number), planned=1, cohort=(number % 5, 5 + number % 3))
    assert account.epsilon == (667.0 if by_participation else 2_000.0)
    assert max(seen) <= 2  # what was charged, and what is asked for
    assert len(seen) <= 2 * 2_000
