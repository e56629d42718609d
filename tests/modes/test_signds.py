"""Runs with SignDS, from the configuration to the ledger on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tacit.accounting import accountant
from tacit.accounting.events import ComposedEvent, PureEvent, RepeatedEvent
from tacit.accounting.ledger import Ledger
from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError
from tacit.mechanisms.signds import SignDS
from tacit.modes.catalogue import plan_of, resolve
from tacit.protocols.signs import SignSum
from tacit.runs.ledger import ledger_of
from tacit.runs.run import resume, run
from tests.runs.common import Watching, digits, weights


def job(**changes: Any) -> RunConfig:
    settings: dict[str, Any] = {"mode": "signds", "signds": {"sign_k": 0.2, "sign_eps": 2.0, "rr_eps": 0.5}}
    for key, value in changes.items():
        settings[key] = settings[key] | value if isinstance(value, dict) and key in settings else value
    return digits(**settings)


def pure(*epsilons: float, times: int) -> float:
    event = ComposedEvent(events=tuple(PureEvent(epsilon=epsilon) for epsilon in epsilons))
    ledger = Ledger(neighbours="replace-one").charged(RepeatedEvent(event=event, count=times), round_number=1)
    return accountant.epsilon(ledger, 1e-5).epsilon


def test_the_plan() -> None:
    plan = plan_of(resolve(job()), 5)
    assert isinstance(plan.mechanism, SignDS)
    assert isinstance(plan.protocol, SignSum)
    assert plan.claim is not None
    assert (plan.claim.neighbours, plan.claim.by_participation) == ("replace-one", True)
    assert "no values" in plan.guarantee.server
    assert plan.optimizer.lr == 1.0


def test_documented_defaults() -> None:
    mechanism = plan_of(resolve(RunConfig(mode="signds")), 10).mechanism
    assert isinstance(mechanism, SignDS)
    assert (mechanism.share, mechanism.epsilon, mechanism.ratio, mechanism.fixed_step) == (0.01, 100.0, 0.6, 1.0)
    assert mechanism.epsilon_per_report == 105.0


def test_a_run_learns_and_is_charged_for_the_set_and_the_bit() -> None:
    result = run(job(federate={"rounds": 20, "clients": 10}, signds={"sign_eps": 50.0, "rr_eps": 5.0}))
    assert result.test_accuracy is not None
    assert result.test_accuracy > 0.6
    assert result.claimed.epsilon == pytest.approx(20 * 55.0)
    assert (result.claimed.unit, result.claimed.neighbours) == ("client", "replace-one")
    assert any("This is no guarantee: at epsilon 1100" in note for note in result.claimed.notes)
    assert any("Basic composition gives 1100, advanced 1100" in note for note in result.claimed.notes)
    assert all(record.train_loss is None for record in result.rounds)


def test_small_epsilons_compose_to_less_than_their_sum_and_are_not_scolded() -> None:
    result = run(job(federate={"rounds": 6}, signds={"sign_eps": 0.3, "rr_eps": 0.1}))
    assert result.claimed.epsilon == pytest.approx(pure(0.3, 0.1, times=6))
    assert result.claimed.epsilon is not None
    assert result.claimed.epsilon <= 6 * 0.4
    assert not any("no guarantee" in note for note in result.claimed.notes)


def test_each_client_is_charged_for_its_own_participations(tmp_path: Path) -> None:
    config = job(federate={"clients": 12, "per_round": 3, "rounds": 8}, out=tmp_path / "run")
    result = run(config)
    lines = [json.loads(line) for line in (tmp_path / "run" / "journal.jsonl").read_text().splitlines()]
    cohorts = [line["charge"]["clients"] for line in lines if line["type"] == "attempt"]
    assert [len(cohort) for cohort in cohorts] == [3] * 8
    most = max(sum(client in cohort for cohort in cohorts) for client in range(12))
    assert most < 8
    assert result.claimed.epsilon == pytest.approx(pure(2.0, 0.5, times=most))
    assert any(f"asked most often, {most} of 8 times" in note for note in result.claimed.notes)
    assert ledger_of(tmp_path / "run").lines[-1].epsilon == result.claimed.epsilon


def test_a_resumed_run_keeps_estimate_and_charges(tmp_path: Path) -> None:
    """The estimate grows five-fold in the first rounds; a resumed run that forgot it would end elsewhere."""
    changes: dict[str, Any] = {"signds": {"sign_eps": 20.0, "r_start": 1e-6}, "federate": {"rounds": 5, "per_round": 3}}
    whole = run(job(out=tmp_path / "whole", **changes))
    broken = tmp_path / "broken"
    run(job(out=broken, **changes | {"federate": {"rounds": 3, "per_round": 3}}))
    text = (broken / "config.yaml").read_text().replace("rounds: 3", "rounds: 5")
    (broken / "config.yaml").write_text(text)
    (broken / "result.json").unlink()
    journal = (broken / "journal.jsonl").read_text().splitlines()
    (broken / "journal.jsonl").write_text("\n".join(line for line in journal if '"end"' not in line) + "\n")
    again = resume(broken)
    assert again.claimed.epsilon == whole.claimed.epsilon
    assert len(again.rounds) == 5
    assert again.rounds[-1].bytes_up == whole.rounds[-1].bytes_up


def test_a_run_with_a_seed_can_be_repeated(tmp_path: Path) -> None:
    run(job(out=tmp_path / "a"))
    run(job(out=tmp_path / "b"))
    run(job(out=tmp_path / "c", seed=2))
    assert weights(tmp_path / "a") == weights(tmp_path / "b") != weights(tmp_path / "c")


def test_it_stops_at_the_worst_clients_budget() -> None:
    config = job(federate={"clients": 6, "per_round": 3, "rounds": 12}, dp={"max_epsilon": 9.9})
    result = run(config)
    assert result.claimed.epsilon is not None
    assert result.claimed.epsilon <= 9.9
    assert 3 <= len(result.rounds) < 12
    assert "over the budget of 9.9" in result.notes[-1]


def test_few_clients_take_the_fixed_step_and_pay_for_no_bit() -> None:
    result = run(job(federate={"clients": 60, "per_round": 2, "rounds": 2}))
    assert result.claimed.epsilon in (pytest.approx(2.0), pytest.approx(4.0))


def test_a_shuffler_has_to_be_trusted_and_is_said_to_be_missing() -> None:
    config = job(federate={"clients": 40, "rounds": 2}, signds={"sign_eps": 0.5, "rr_eps": 0.1, "shuffle": True})
    result = run(config)
    assert result.claimed.epsilon is not None
    assert result.claimed.epsilon < 0.9 * pure(0.5, 0.1, times=2)
    assert "shuffler" in str(result.claimed.against)
    assert any("trusted shuffler" in note and "at least 20 reports" in note for note in result.claimed.notes)


def test_few_coordinates_are_warned_of() -> None:
    watching = Watching()
    result = run(job(signds={"sign_k": 0.05}), observer=watching)  # 650 parameters: 32
    (warning,) = (note for note in watching.notes if "sign_k" in note)
    assert "signds.sign_k=0.05 of 650 coordinates is 32: expected more than 50" in warning
    assert warning in result.notes
    assert not any("sign_k" in note for note in run(job()).notes)  # 130


def test_a_majority_that_is_noise_is_warned_of() -> None:
    """In the growth phase every false 0 multiplies the step by five."""
    watching = Watching()
    run(job(signds={"rr_eps": 0.2}, federate={"clients": 20}), observer=watching)
    assert any(
        "signds.rr_eps=0.2 makes the majority of 20 answers hardly more than a coin" in n for n in watching.notes
    )
    quiet = Watching()
    run(job(signds={"rr_eps": 3.0}, federate={"clients": 20}), observer=quiet)
    run(job(signds={"rr_eps": 0.2, "step": "fixed"}, federate={"clients": 20}), observer=quiet)
    assert quiet.notes == []


def test_a_client_that_diverges_reports_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    original = SignDS.on_client
    calls: list[int] = []

    def sometimes(self: SignDS, work: Any, randomness: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            work.update[3] = float("nan")
        return original(self, work, randomness)

    monkeypatch.setattr(SignDS, "on_client", sometimes)
    watching = Watching()
    result = run(job(), observer=watching)
    assert [record.clients_replied for record in result.rounds] == [5, 5]
    assert not any("nan" in note or "finite" in note or "diverged" in note for note in watching.notes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"signds": {"sign_k": 0.0}}, r"signds.sign_k=0.0 does not work: expected a number in \(0, 0.25\]"),
        ({"signds": {"sign_k": 0.3}}, r"signds.sign_k=0.3 does not work: expected a number in \(0, 0.25\]"),
        ({"signds": {"sign_eps": 101}}, r"signds.sign_eps=101 does not work: expected a number in \(0, 100\]"),
        ({"signds": {"sign_eps": 0}}, r"expected a number in \(0, 100\]"),
        ({"signds": {"sign_thr_ratio": 0.4}}, r"sign_thr_ratio=0.4 does not work: expected a number in \[0.5, 1\]"),
        ({"signds": {"sign_global_lr": 0}}, r"sign_global_lr=0 does not work: expected a number in \[1e-12, 1e\+06\]"),
        ({"signds": {"sign_dim_out": 51}}, r"sign_dim_out=51 does not work: expected a whole number from 0 to 50"),
        ({"signds": {"sign_dim_out": -1}}, "expected a whole number from 0 to 50"),
        ({"signds": {"min_share": 1.5}}, "expected a number from 0 to 1"),
        ({"signds": {"rr_eps": 0}}, "signds.rr_eps=0"),
        ({"signds": {"h_max": 0}}, "signds.h_max=0"),
        ({"dp": {"noise": 1.0}}, "dp.noise has no effect in mode 'signds'.*tacit signds suggest"),
        ({"federate": {"weighting": "examples"}}, "federate.weighting=examples"),
        ({"mode": "plain"}, r"signds.sign_k, .* has no effect in mode 'plain'. Remove it, or add --mode signds"),
    ],
)
def test_what_can_not_be(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan_of(resolve(job(**changes)), 5)
