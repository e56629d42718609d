"""Runs whose clients train with DP-SGD, and one data holder alone: from the configuration to the ledger on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import nn

import tacit
from tacit.accounting import accountant
from tacit.accounting.uniform_run import uniform_run
from tacit.config.run_config import RunConfig
from tacit.errors import BudgetError, ConfigError, RunError
from tacit.federated.plan import ServerOptimizer
from tacit.runs.ledger import ledger_of
from tacit.runs.result import Result
from tacit.runs.run import resume, run
from tests.runs.common import unchecked


def config(**changes: Any) -> RunConfig:
    settings: dict[str, Any] = {
        "mode": "dp-sgd",
        "seed": 1,
        "data": {"name": "digits"},
        "model": {"name": "logistic"},
        "federate": {"clients": 4, "rounds": 3},
        "dp": {"epsilon": 3.0},
        "dpsgd": {"batch_size": 60},
    }
    for key, value in changes.items():
        settings[key] = settings[key] | value if isinstance(value, dict) and key in settings else value
    return RunConfig(**settings)


def alone(**changes: Any) -> RunConfig:
    base: dict[str, Any] = {
        "single_holder": True,
        "federate": {"clients": 1, "rounds": 4},
        "data": {"name": "breast-cancer"},
        "dp": {"epsilon": 1.0, "delta": 1e-3},
        "dpsgd": {"batch_size": 100, "steps": 30},
    }
    for key, value in changes.items():
        base[key] = base.get(key, {}) | value if isinstance(value, dict) else value
    return config(**base)


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


def test_every_client_is_charged_for_its_own_examples(tmp_path: Path) -> None:
    result = run(config(out=tmp_path / "run", data={"split": "dirichlet:0.5"}))
    privacy = result.claimed
    assert (privacy.unit, privacy.neighbours, privacy.accountant) == ("example", "add-remove", "pld")
    assert "the server included" in (privacy.against or "")
    assert 2.99 < (privacy.epsilon or 0.0) <= 3.0
    assert "worst of 4 clients" in privacy.notes[0]
    assert result.example_privacy is None
    assert all(record.train_loss is None for record in result.rounds)  # losses would leak
    assert "own noise protects" in result.sees["server"]
    spent = [record.epsilon or 0.0 for record in result.rounds]
    assert 0 < spent[0] < spent[1] < spent[2] == privacy.epsilon
    charged = [record["example_charges"] for record in records(tmp_path / "run") if record["type"] == "attempt"]
    assert sorted(client for group in charged[0] for client in group["clients"]) == [0, 1, 2, 3]
    told = ledger_of(tmp_path / "run")
    assert told.claim is not None
    assert told.claim.unit == "example"
    assert [line.epsilon for line in told.lines] == pytest.approx(spent)
    assert "on a poisson sample of" in told.lines[0].release
    assert Result.read(tmp_path / "run" / "result.json") == result


def test_the_defaults_learn() -> None:
    result = run(RunConfig(mode="dp-sgd", seed=1, data={"name": "digits"}, dp={"epsilon": 8}, evaluate={"every": 20}))
    assert len(result.rounds) == 20
    assert (result.claimed.epsilon or 9.0) <= 8.0
    assert (result.test_accuracy or 0.0) > 0.85  # five seeds: 91% or more; six rounds at 0.5 came to 28%


def test_a_client_that_sits_out_spends_nothing() -> None:
    result = run(config(federate={"clients": 6, "per_round": 2, "rounds": 2, "minimum_clients": 1}))
    assert result.claimed.epsilon is not None
    assert result.claimed.epsilon < 3.0  # nobody took part in every round, or the noise was for one that does
    assert "as low as 0" in result.claimed.notes[0]


def test_both_levels_are_reported_and_neither_stands_for_the_other(tmp_path: Path) -> None:
    result = run(config(mode="dp", out=tmp_path / "run", dp={"epsilon": None, "noise": 2.0}, dpsgd={"epsilon": 1.5}))
    example = result.example_privacy
    assert example is not None
    assert (result.claimed.unit, example.unit) == ("client", "example")
    sole = accountant.epsilon(uniform_run(noise_multiplier=2.0, rounds=3), 1e-5).epsilon
    assert result.claimed.epsilon == pytest.approx(sole, rel=1e-9)
    assert 1.49 < (example.epsilon or 0.0) <= 1.5
    assert any("the other epsilon" in note for note in result.claimed.notes)
    assert any("the other epsilon" in note for note in example.notes)
    assert result.rounds[-1].epsilon == result.claimed.epsilon
    assert result.rounds[-1].example_epsilon == example.epsilon
    told = ledger_of(tmp_path / "run")
    assert told.claim is not None
    assert told.example_claim is not None
    assert (told.claim.unit, told.example_claim.unit) == ("client", "example")
    assert told.example_lines[-1].epsilon == pytest.approx(example.epsilon)
    assert Result.read(tmp_path / "run" / "result.json").example_privacy == example


def test_a_budget_stops_the_run() -> None:
    result = run(config(dp={"epsilon": None, "noise": 1.0}, dpsgd={"max_epsilon": 9.0}, federate={"rounds": 40}))
    assert 0 < len(result.rounds) < 40
    assert (result.claimed.epsilon or 99.0) <= 9.0
    assert "over the budget of 9" in result.notes[-1]
    with pytest.raises(BudgetError, match="Not one round fits"):
        run(config(dp={"epsilon": None, "noise": 0.5}, dpsgd={"max_epsilon": 0.1}))


def test_noise_differs_between_clients_rounds_and_runs() -> None:
    one, same = run(config()), run(config())
    assert one.test_loss == same.test_loss
    assert run(config(seed=2)).test_loss != one.test_loss


def test_resuming_ends_in_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"optimizer": {"momentum": 0.9}, "dp": {"epsilon": None, "noise": 1.0}}
    for make, name in ((config, "federated"), (alone, "alone")):
        whole, broken = tmp_path / f"{name}-whole", tmp_path / f"{name}-broken"
        finished = run(make(out=whole, **settings))
        _interrupt(monkeypatch, 2)
        with pytest.raises(KeyboardInterrupt):
            run(make(out=broken, **settings))
        monkeypatch.undo()
        monkeypatch.chdir(tmp_path)
        resumed = resume(broken)
        assert (whole / "model.safetensors").read_bytes() == (broken / "model.safetensors").read_bytes()
        assert len(resumed.rounds) == len(finished.rounds)
        # The interrupted round was charged twice: once for each time it was begun.
        charged = [record for record in records(broken) if record["type"] == "attempt"]
        assert len(charged) == len(finished.rounds) + 1


def test_a_round_that_was_begun_twice_may_break_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _interrupt(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        run(config(out=tmp_path / "run"))
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    result = resume(tmp_path / "run")
    assert len(result.rounds) == 2  # the noise was for three rounds, and three were begun
    assert "over the budget of 3" in result.notes[-1]
    assert (result.claimed.epsilon or 9.0) <= 3.0


def _interrupt(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    from tacit.runs.runner import Runner

    evaluate, calls = Runner._evaluate, [0]

    def stop(self: Any, *arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == after:
            raise KeyboardInterrupt
        return evaluate(self, *arguments, **options)

    monkeypatch.setattr(Runner, "_evaluate", stop)


def test_alone_takes_the_steps_it_is_asked_for(tmp_path: Path) -> None:
    result = run(alone(out=tmp_path / "run"))
    assert (result.engine, result.clients) == ("in-process", 1)
    assert [record.steps for record in result.rounds] == [7, 15, 22, 30]
    expected = accountant.epsilon(
        uniform_run(noise_multiplier=_noise(tmp_path / "run"), rounds=30, rate=100 / 456), 1e-3
    ).epsilon
    assert result.claimed.epsilon == pytest.approx(expected, rel=1e-6)
    assert 0.999 < (result.claimed.epsilon or 0.0) <= 1.0
    assert result.claimed.unit == "example"
    assert "whoever sees the model" in (result.claimed.against or "")
    assert result.bytes_up == 0
    told = ledger_of(tmp_path / "run")
    assert [line.epsilon for line in told.lines] == pytest.approx([record.epsilon for record in result.rounds])


def _noise(folder: Path) -> float:
    group = next(record for record in records(folder) if record["type"] == "attempt")["example_charges"][0]
    return float(group["event"]["event"]["event"]["noise_multiplier"])


def test_alone_has_no_more_stretches_than_steps() -> None:
    result = run(alone(dpsgd={"steps": 2}))
    assert [record.steps for record in result.rounds] == [1, 2]


def test_alone_learns() -> None:
    result = run(alone(dpsgd={"steps": 300, "batch_size": None}, optimizer={"lr": 0.1}))
    assert (result.test_accuracy or 0.0) > 0.9


def test_stretches_change_nothing(tmp_path: Path) -> None:
    for stretches in (1, 5):
        out = tmp_path / str(stretches)
        run(alone(out=out, federate={"rounds": stretches}, optimizer={"momentum": 0.9}))
    one, five = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("1", "5"))
    assert one == five


@pytest.mark.parametrize("way", ["advanced-composition", "advanced-composition-exact"])
def test_the_labs_budget_is_used_and_told_beside_the_tight_one(tmp_path: Path, way: str) -> None:
    settings = {"budget_by": way, "steps": 100, "batch_size": None}
    result = run(alone(out=tmp_path / "run", dpsgd=settings))
    noise = _noise(tmp_path / "run")
    assert noise == pytest.approx(242.9 if way == "advanced-composition" else 242.6, abs=0.6)
    assert (result.claimed.epsilon or 1.0) < 0.1  # what was spent is told by the tight accounting
    assert any("needs 25.74" in note and "by the exact root" in note for note in result.claimed.notes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dp": {"noise": 1.0}}, "both was given"),
        ({"dp": {"delta": 1.0}}, "dp.delta=1.0 does not work"),
        ({"dpsgd": {"delta": 1.5}}, "dpsgd.delta=1.5 does not work"),
        ({"dpsgd": {"batch_size": 5000}}, "larger than the data: client 0 holds"),
        ({"dp": {"clip": "adaptive"}}, "adaptive is for mode 'dp'"),
        ({"dp": {"denoise": "james-stein"}}, "dp.denoise has no effect in mode 'dp-sgd'"),
        ({"dpsgd": {"batch_size": None}, "train": {"batch_size": 32}}, "Set dpsgd.batch_size"),
        ({"federate": {"weighting": "examples"}}, "reveals how many examples"),
        ({"mode": "plain", "dp": {"epsilon": None}}, "dpsgd.batch_size has no effect in mode 'plain'"),
        ({"mode": "dp"}, "needs dpsgd.epsilon or dpsgd.noise"),
        ({"single_holder": True}, "single_holder=true is one data holder"),
        ({"single_holder": True, "mode": "dp", "federate": {"clients": 1}}, "expected mode=dp-sgd"),
        ({"single_holder": True, "federate": {"clients": 1}, "engine": "flower"}, "Leave out engine=flower"),
    ],
)
def test_mistakes_are_sentences(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        run(config(**changes))


def test_a_users_model_with_batch_norm_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    data = [(np.eye(2), np.array([0, 1]))] * 2
    federation = tacit.Federation(model=model, clients=data, mode="dp-sgd", dp={"noise": 1.0}, seed=1)
    with pytest.raises(ConfigError, match=r"tacit\.fix"):
        federation.fit(rounds=1)


def test_hooks_would_see_single_batches() -> None:
    data = [(np.eye(2), np.array([0, 1]))] * 2
    federation = tacit.Federation(model=nn.Linear(2, 2), clients=data, mode="dp-sgd", dp={"noise": 1.0}, seed=1)
    federation.register("on_batch_end", lambda context: None)
    with pytest.raises(ConfigError, match="Hooks see single batches"):
        federation.fit(rounds=1)


def test_a_users_federation_trains_with_dp_sgd(tmp_path: Path) -> None:
    data = [(torch.randn(40, 3), torch.randint(0, 2, (40,)))] * 3
    federation = tacit.Federation(
        model=nn.Linear(3, 2), clients=data, mode="dp-sgd", dp={"epsilon": 2.0}, seed=1, dpsgd={"batch_size": 10}
    )
    assert 1.99 < (federation.fit(rounds=2, out=tmp_path / "run").claimed.epsilon or 0.0) <= 2.0
    kept = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (kept["optimizer"]["lr"], kept["federate"]["rounds"]) == (2.0, 2)  # the mode's rate, the caller's rounds


def test_a_model_that_diverges_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"Lower .*optimizer\.lr"):
        run(unchecked(alone(out=tmp_path / "run"), optimizer={"lr": 1e38}))


def test_the_plain_default_has_a_server_optimiser_of_its_own() -> None:
    from tacit.modes.catalogue import plan_of, resolve

    assert plan_of(resolve(config()), 4).optimizer == ServerOptimizer()
