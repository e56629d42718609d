"""What a run of a large population does goes by its cohorts, and not by how many clients there are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tacit.accounting import accountant
from tacit.accounting.ledger import Ledger
from tacit.config.run_config import RunConfig
from tacit.federated.examples import ExampleLevel, ExamplePlan, Most
from tacit.federated.plan import Claim
from tacit.federated.round import LocalClients
from tacit.flow import Frames
from tacit.runs.account import ExampleAccount
from tacit.runs.folder import JOURNAL
from tacit.runs.journal import Disclosure
from tacit.runs.result import RoundRecord
from tacit.runs.run import run
from tacit.shares import Rows, Shares
from tacit.wire import Turn
from tests.federated.common import make_plan
from tests.runs.common import lines

POPULATION, COHORT, ROUNDS = 101_000, 5, 2
MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "dp": {"dp": {"noise": 1.0}},
    "local-dp": {"dp": {"noise": 9.0}},
    "masks": {},
    "paillier": {"paillier": {"bits": 512, "insecure_key_size": True}},
    "dp-sgd": {"dp": {"noise": 3.0}},
}


@pytest.mark.parametrize("mode", MODES)
def test_only_the_cohorts_of_a_large_population_are_touched(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    asked: list[int] = []
    one, answer = Shares.__getitem__, LocalClients.answer

    def watched(shares: Shares, client: int) -> Rows:
        read.append(client)
        return one(shares, client)

    def answered(clients: LocalClients, requests: Frames) -> Frames:
        asked.extend(requests)
        return answer(clients, requests)

    monkeypatch.setattr(Shares, "__getitem__", watched)
    monkeypatch.setattr(LocalClients, "answer", answered)
    result = run(
        RunConfig(
            mode=mode,
            out=tmp_path / "run",
            seed=1,
            data={"name": f"synthetic:{POPULATION}"},
            federate={"per_round": COHORT, "rounds": ROUNDS},
            evaluate={"train": False},
            **MODES[mode],
        ),
        quiet=True,
    )
    assert (result.clients, len(result.rounds)) == (POPULATION, ROUNDS)
    most = 4 * COHORT * ROUNDS + 1  # Poisson cohorts vary; masks take a trip for each of their steps
    assert 0 < len(set(asked)) <= most
    assert len(set(read)) <= most
    for line in lines(tmp_path / "run" / JOURNAL):
        assert len(str(line)) < 3_000, line["type"]


def test_an_account_of_examples_goes_through_its_cohorts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    level = ExampleLevel(delta=1e-5, clip=1.0, noise=2.0, batch_size=2, rounds=9)
    chance = random.Random(1)
    plan = level.fitted([chance.randrange(2, 6) for _ in range(40)])
    claim = Claim(delta=1e-5, unit="example", neighbours="add-remove", against="everyone")
    whole, passes = ExamplePlan.most, 0

    def watched(own: ExamplePlan, taken: Sequence[int]) -> Most:
        nonlocal passes
        passes += 1
        return whole(own, taken)

    monkeypatch.setattr(ExamplePlan, "most", watched)
    account, again = ExampleAccount(plan, claim), ExampleAccount(plan, claim)
    for number in range(1, 4):
        charged = account.charge(chance.sample(range(40), 5), round_number=number)
        again.add(charged)
        assert passes == 2  # one where each account was opened
        assert account.epsilon == again.epsilon == plan.worst(whole(plan, account.taken))[1].epsilon


def test_a_large_cohort_is_counted_in_the_journal_and_not_named() -> None:
    told = Disclosure(plan=make_plan(clients=5_000))
    record = RoundRecord(**dict.fromkeys(RoundRecord.__slots__))  # type: ignore[arg-type]  # its figures don't matter
    for size, named in ((1_000, True), (4_000, False)):
        cohort = range(0, size)
        attempt = told.attempt(Turn(round_number=1), cohort, population=5_000, charge=None, example_charges=None)
        assert attempt.clients == size
        assert attempt.asked == (tuple(cohort) if named else None)
        assert told.round(record, cohort, ()).dropped == attempt.asked
        assert told.round(record, cohort, cohort[1:]).dropped == (0,)
    everyone = told.attempt(Turn(round_number=1), range(5_000), population=5_000, charge=None, example_charges=None)
    assert everyone.asked == "all"


@pytest.mark.parametrize("mode", ["dp", "local-dp"])
def test_a_round_is_composed_and_written_like_the_one_before(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    composed: list[int] = []
    whole = accountant.epsilon

    def watched(ledger: Ledger, delta: float) -> accountant.PrivacyCost:
        composed.append(len(ledger.charges))
        return whole(ledger, delta)

    monkeypatch.setattr(accountant, "epsilon", watched)
    run(
        RunConfig(
            mode=mode,
            out=tmp_path / "run",
            seed=1,
            data={"name": "synthetic:90"},
            federate={"per_round": 5, "rounds": 20},
            evaluate={"train": False},
            dp={"noise": 50.0},
        ),
        quiet=True,
    )
    assert 20 <= len(composed) <= 35  # once for each round, and a few times before and after them
    assert set(composed) == {1}  # equal releases are one charge, of whichever client has most of them
    written = [line for line in lines(tmp_path / "run" / JOURNAL) if line["type"] in ("attempt", "round")]
    for kind in ("attempt", "round"):
        sizes = [len(str(line)) for line in written if line["type"] == kind]
        assert len(sizes) == 20
        assert max(sizes) - min(sizes) < 60
