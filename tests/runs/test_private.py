"""Runs with differential privacy, from the configuration to the ledger on disk."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.accounting import accountant
from tacit.accounting.events import GaussianEvent, SampledEvent
from tacit.accounting.ledger import Charge, Ledger
from tacit.config.run_config import RunConfig
from tacit.errors import BudgetError, ConfigError
from tacit.federated.plan import Everyone, Poisson
from tacit.mechanisms.gaussian import GaussianMechanism, LocalGaussianMechanism
from tacit.modes.catalogue import plan_of, resolve
from tacit.runs.result import Result
from tacit.runs.run import resume, run


def private(**changes: Any) -> RunConfig:
    settings: dict[str, Any] = {
        "mode": "dp",
        "seed": 1,
        "data": {"name": "digits"},
        "model": {"name": "logistic"},
        "federate": {"clients": 20, "rounds": 3},
        "dp": {"noise": 2.0, "clip": 1.0},
    }
    for key, value in changes.items():
        settings[key] = settings[key] | value if isinstance(value, dict) and key in settings else value
    return RunConfig(**settings)


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


def test_full_participation_is_accounted_exactly() -> None:
    result = run(private())
    sole = Ledger().charged(GaussianEvent(noise_multiplier=2.0 / np.sqrt(3)), round_number=1)
    assert result.claimed.epsilon == pytest.approx(accountant.epsilon(sole, 1e-5).epsilon, rel=1e-9)
    assert (result.claimed.unit, result.claimed.neighbours) == ("client", "add-remove")
    assert (result.claimed.accountant, result.claimed.delta) == ("exact-gaussian", 1e-5)
    assert "clipped update" in result.sees["server"]
    spent = [record.epsilon or 0.0 for record in result.rounds]
    assert 0 < spent[0] < spent[1] < spent[2]
    assert spent[-1] == result.claimed.epsilon
    assert all(record.train_loss is None for record in result.rounds)  # losses would leak


def test_per_round_is_a_poisson_cohort_and_is_amplified() -> None:
    plan = plan_of(resolve(private(federate={"per_round": 5})), 20)
    assert plan.sampler == Poisson(population=20, rate=0.25)
    assert plan.claim is not None
    event = plan.claim.event(GaussianEvent(noise_multiplier=2.0))
    assert event == SampledEvent(event=GaussianEvent(noise_multiplier=2.0), rate=0.25, sampling="poisson")
    assert plan_of(resolve(private()), 20).sampler == Everyone(population=20)


def test_a_fixed_cohort_is_not_given_the_poisson_value() -> None:
    poisson, fixed = (
        run(private(federate={"per_round": 5, "sampling": sampling})) for sampling in ("poisson", "fixed")
    )
    assert poisson.claimed.epsilon is not None
    assert fixed.claimed.epsilon is not None
    assert fixed.claimed.neighbours == "replace-one"
    assert fixed.claimed.epsilon > poisson.claimed.epsilon


def test_the_noise_is_calibrated_to_the_budget() -> None:
    plan = plan_of(resolve(private(dp={"noise": None, "epsilon": 2.0})), 20)
    assert isinstance(plan.mechanism, GaussianMechanism)
    result = run(private(dp={"noise": None, "epsilon": 2.0}))
    assert result.claimed.epsilon is not None
    assert 2.0 * (1 - 1e-3) < result.claimed.epsilon <= 2.0
    assert len(result.rounds) == 3


def test_local_dp_is_against_the_server_and_twice_as_dear() -> None:
    config = private(mode="local-dp")
    plan = plan_of(resolve(config), 20)
    assert isinstance(plan.mechanism, LocalGaussianMechanism)
    local, central = run(config), run(private())
    assert local.claimed.neighbours == "replace-one"
    assert "server included" in str(local.claimed.against)
    doubled = Ledger(neighbours="replace-one").charged(GaussianEvent(noise_multiplier=2.0 / np.sqrt(3)), round_number=1)
    assert local.claimed.epsilon == pytest.approx(accountant.epsilon(doubled, 1e-5).epsilon, rel=1e-9)
    assert central.claimed.epsilon is not None
    assert local.claimed.epsilon is not None
    assert local.claimed.epsilon > central.claimed.epsilon


def test_it_stops_before_the_round_that_would_exceed_the_budget(tmp_path: Path) -> None:
    whole = run(private(federate={"rounds": 10}))
    limit = whole.rounds[3].epsilon
    assert limit is not None
    result = run(
        private(
            federate={"rounds": 10}, dp={"max_epsilon": limit * 1.001}, evaluate={"every": 100}, out=tmp_path / "run"
        )
    )
    assert len(result.rounds) == 4
    assert "Stopped after round 4 of 10" in result.notes[-1]
    assert result.test_accuracy is not None
    assert (tmp_path / "run" / "model.safetensors").is_file()
    assert [r["round"] for r in records(tmp_path / "run") if r["type"] == "attempt"] == [1, 2, 3, 4]
    assert resume(tmp_path / "run") == Result.read(tmp_path / "run" / "result.json")


def test_a_budget_too_small_for_one_round_is_an_error() -> None:
    with pytest.raises(BudgetError, match=r"Round 1 would bring epsilon to .* Not one round fits"):
        run(private(dp={"noise": 0.1, "max_epsilon": 0.5}))


def test_the_ledger_is_on_disk_before_each_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    original = GaussianMechanism.on_server

    def spying(self: GaussianMechanism, total: Any, randomness: Any, *, clients: int) -> Any:
        seen.append(sum(1 for record in records(tmp_path / "run") if record.get("charge")))
        return original(self, total, randomness, clients=clients)

    monkeypatch.setattr(GaussianMechanism, "on_server", spying)
    run(private(out=tmp_path / "run"))
    assert seen == [1, 2, 3]


def test_a_failed_round_stays_charged(tmp_path: Path) -> None:
    """In mode dp no round fails; where each client brings its own noise a minimum may be set, and fail a round."""
    federate = {"drop": 0.45, "minimum_clients": 11, "retries": 8, "rounds": 4}
    result = run(private(mode="local-dp", federate=federate, seed=3, out=tmp_path / "run"))
    tries = sum(record.attempts for record in result.rounds)
    assert tries > 4
    charges = [Charge.from_dict(r["charge"]) for r in records(tmp_path / "run") if r.get("charge")]
    assert len(charges) == tries
    assert result.claimed.epsilon == pytest.approx(
        accountant.epsilon(Ledger(neighbours="replace-one", charges=tuple(charges)), 1e-5).epsilon, rel=1e-9
    )


def test_resume_keeps_the_history(tmp_path: Path) -> None:
    whole = run(private(federate={"rounds": 4}, out=tmp_path / "whole"))
    run(private(federate={"rounds": 4}, out=tmp_path / "cut"))
    lines = (tmp_path / "cut" / "journal.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line)["type"] != "end"]
    (tmp_path / "cut" / "journal.jsonl").write_text("".join(kept))
    (tmp_path / "cut" / "result.json").unlink()
    again = resume(tmp_path / "cut")
    assert again.privacy == whole.privacy
    assert [r.epsilon for r in again.rounds] == [r.epsilon for r in whole.rounds]


def test_adaptive_clipping_survives_a_resume(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    changes: dict[str, Any] = {"federate": {"clients": 40, "rounds": 4}, "dp": {"noise": 0.5, "clip": "adaptive"}}
    run(private(**changes, out=tmp_path / "whole"))
    short = {**changes, "federate": {"clients": 40, "rounds": 4, "retries": 0}}
    run(private(**short, out=tmp_path / "cut"))
    bounds = {r["round"]: r for r in records(tmp_path / "cut") if r["type"] == "round"}
    assert len(bounds) == 4
    models = [load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut")]
    assert all(np.array_equal(models[0][key], models[1][key]) for key in models[0])
    events = [r["charge"]["event"]["kind"] for r in records(tmp_path / "cut") if r["type"] == "attempt"]
    assert events == ["composed"] * 4


def test_no_noise_is_no_guarantee() -> None:
    result = run(private(dp={"noise": 0.0}))
    assert result.claimed.epsilon == math.inf
    assert "There is no guarantee" in result.claimed.notes[0]
    assert json.loads(result.to_json())["privacy"]["epsilon"] == "infinite"
    assert {record["epsilon"] for record in result.to_dict()["rounds"]} == {"infinite"}


def test_without_a_seed_noise_comes_from_the_system() -> None:
    first, second = (run(private(seed=None)) for _ in range(2))
    assert not first.simulation
    assert first.test_loss != second.test_loss


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dp": {"noise": None}}, "neither was given"),
        ({"dp": {"epsilon": 2.0}}, "both was given"),
        ({"dp": {"noise": -1.0}}, "dp.noise"),
        ({"dp": {"noise": float("nan")}}, "dp.noise"),
        ({"dp": {"delta": 1.0}}, "dp.delta"),
        ({"dp": {"delta": 0.0}}, "dp.delta"),
        ({"dp": {"clip": 0.0}}, "dp.clip"),
        ({"federate": {"weighting": "examples"}}, "reveals how many examples"),
        ({"mode": "local-dp", "dp": {"clip": "adaptive"}}, "fixed clip bound"),
        ({"mode": "local-dp", "dp": {"denoise": "james-stein"}}, "no denoising"),
        ({"dp": {"clip": "adaptive", "noise": 5.0}}, "clipping bits alone"),
    ],
)
def test_bad_settings(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan_of(resolve(private(**changes)), 20)


def test_weights_may_be_capped() -> None:
    plan = plan_of(resolve(private(federate={"weighting": "examples"}, dp={"weight_cap": 50})), 20)
    assert isinstance(plan.mechanism, GaussianMechanism)
    assert plan.mechanism.weight_cap == 50


def test_local_dp_by_a_named_mechanism() -> None:
    base = {"noise": None, "epsilon": 3.0}
    noises = {
        name: plan_of(resolve(private(mode="local-dp", dp=base | {"mechanism": name})), 20).mechanism
        for name in ("classical", "analytic", "dp-opt", "zhao-1", "zhao-2", "extended")
    }
    values = {name: m.noise_multiplier for name, m in noises.items() if isinstance(m, LocalGaussianMechanism)}
    assert values["analytic"] == values["dp-opt"] < values["zhao-1"] < values["zhao-2"] < values["extended"]
    result = run(private(mode="local-dp", dp=base | {"mechanism": "zhao-2"}))
    assert result.claimed.epsilon is not None
    assert result.claimed.epsilon < 3.0  # the exact cost of the whole run is below the sum of its rounds' claims
    with pytest.raises(ConfigError, match="analytic"):
        plan_of(resolve(private(mode="local-dp", dp={"noise": None, "epsilon": 30.0, "mechanism": "classical"})), 20)


def test_layers_and_their_noise_in_a_run() -> None:
    result = run(private(dp={"per_layer": True, "noise_split": "variance-minimal"}))
    assert result.claimed.epsilon == run(private()).claimed.epsilon
