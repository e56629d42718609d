"""Canaries in a run: the bound is in everything that is told, and what real clients are promised stays as it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.audit import cases
from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError, RunError
from tacit.federated.plan import Everyone
from tacit.mechanisms.gaussian import GaussianMechanism
from tacit.modes.catalogue import plan_of, resolve
from tacit.randomness import Randomness
from tacit.report.run.page import run_page
from tacit.report.run.summary import ending
from tacit.runs import history
from tacit.runs.canaries import ClientCanaries, ExampleCanaries, Flock
from tacit.runs.folder import CONFIG, JOURNAL
from tacit.runs.result import Result
from tacit.runs.run import resume, run
from tacit.runs.runner import Runner
from tacit.training.private.steps import StepNoise
from tests.runs.common import digits, lines, weights

CANARIES = 300


def private(**changes: Any) -> RunConfig:
    return digits(**{"mode": "dp", "dp": {"epsilon": 8.0, "clip": 0.5}, "audit": {"canaries": CANARIES}} | changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("canaries") / "run"
    run(private(out=out), quiet=True)
    return out


def test_the_bound_is_in_result_journal_page_and_terminal(folder: Path) -> None:
    found = Result.read(folder / "result.json").audit
    assert found is not None
    assert found.epsilon == pytest.approx(8.0)
    assert 2.0 < found.bound <= 8.0
    assert not found.refuted
    (written,) = [line for line in lines(folder / JOURNAL) if line["type"] == "audit"]
    assert written["bound"] == found.bound
    page = run_page(history.read(folder)).html()
    assert "Claimed and shown" in page
    assert f"Of {CANARIES} canaries {found.inside} were in the training" in page
    assert any("canaries" in str(part) for part in ending(Result.read(folder / "result.json")))
    assert any("Canaries are in the training" in note for note in Result.read(folder / "result.json").notes)


def test_claim_sizes_and_bytes_are_those_of_a_run_without_canaries(folder: Path) -> None:
    own, other = Result.read(folder / "result.json"), run(private(audit={"canaries": None}), quiet=True)
    assert other.audit is None
    assert own.claimed == other.claimed
    for name in ("clients", "per_round", "bytes_up", "bytes_down"):
        assert getattr(own, name) == getattr(other, name)
    assert own.rounds[0].clients_expected == other.rounds[0].clients_expected


def test_an_interrupted_run_finds_the_same(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, out = Runner._save, tmp_path / "run"

    def dies(own: Runner, after: Any) -> None:
        real(own, after)
        if after.round_number == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Runner, "_save", dies)
    with pytest.raises(KeyboardInterrupt):
        run(private(out=out), quiet=True)
    monkeypatch.undo()
    settings = (out / CONFIG).read_text()
    (out / CONFIG).write_text(settings.replace(f"canaries: {CANARIES}", "canaries: 200"))
    with pytest.raises(RunError, match="300 canaries"):
        resume(out, quiet=True)
    (out / CONFIG).write_text(settings)
    again = resume(out, quiet=True)
    assert again.audit == Result.read(folder / "result.json").audit
    assert weights(out) == weights(folder)


def test_half_the_noise_is_found_in_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    real = GaussianMechanism._stds
    monkeypatch.setattr(GaussianMechanism, "_stds", lambda own: real(own) / 2.0)
    found = run(private(), quiet=True).audit
    assert found is not None
    assert found.refuted
    assert found.bound > 8.0


def alone(**changes: Any) -> RunConfig:
    """Return a data holder's training with DP-SGD, all examples in every step."""
    steps = {"noise": 1.0, "steps": 4, "batch_size": 1442}
    return private(
        **{"mode": "dp-sgd", "single_holder": True, "dp": {}, "dpsgd": steps, "federate": {"clients": 1}} | changes
    )


def test_canary_examples_show_much_of_the_claim_and_leave_the_model_as_it_is(tmp_path: Path) -> None:
    found = run(alone(out=tmp_path / "with"), quiet=True).audit
    run(alone(out=tmp_path / "without", audit={"canaries": None}), quiet=True)
    assert found is not None
    assert (found.unit, found.final) == ("example", None)
    assert 0.6 * found.epsilon < found.bound <= found.epsilon
    assert weights(tmp_path / "with") == weights(tmp_path / "without")


def test_half_the_noise_of_steps_is_found_in_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    real = StepNoise.add

    def halved(own: StepNoise, *given: Any, **named: Any) -> None:
        own._std /= 2.0
        real(own, *given, **named)
        own._std *= 2.0

    monkeypatch.setattr(StepNoise, "add", halved)
    found = run(alone(), quiet=True).audit
    assert found is not None
    assert found.refuted


def test_canary_examples_are_drawn_as_often_as_others() -> None:
    plan = plan_of(resolve(alone(dpsgd={"noise": 0.5, "batch_size": 100})), 1)
    assert plan.examples is not None
    canaries = ExampleCanaries(
        plan=plan, examples=plan.examples.fitted([400]), count=1000, randomness=Randomness.of(seed=1)
    )
    drawn = [np.count_nonzero(canaries.added(step)) for step in range(20)]
    inside = canaries.flock.inside.sum()
    assert np.mean(drawn) == pytest.approx(0.25 * inside, rel=0.05)
    assert np.abs(canaries.added(1)).max() == plan.examples.clip


def test_the_replay_of_such_a_run_has_no_canaries(folder: Path) -> None:
    (subject,) = cases.of_run(folder, randomness=Randomness.of(seed=1))
    assert subject.pairs[0].worlds[0](2).shape[0] == 2


def test_canaries_share_no_coordinate_and_stand_out_by_one() -> None:
    plan = plan_of(resolve(RunConfig(mode="dp", dp={"noise": 1.0, "clip": 0.5})), 5)
    assert isinstance(plan.mechanism, GaussianMechanism)
    flock = Flock.of(7, 100, Randomness.of(seed=1))
    assert np.bincount(flock.owner).tolist() == [15, 15, 14, 14, 14, 14, 14]
    quiet = replace(plan, mechanism=replace(plan.mechanism, noise_multiplier=0.0), sampler=Everyone(population=5))
    canaries = ClientCanaries(plan=quiet, count=7, first=np.zeros(100, np.float32), randomness=Randomness.of(seed=1))
    assert canaries.flock.inside.tolist() == flock.inside.tolist()
    updates: dict[int, np.ndarray] = {}
    canaries._clients._trainer.train(
        np.zeros(100, np.float32),
        range(7),
        np.zeros(7, np.int64),
        1,
        lambda who, update, _: updates.update({who: update}),
    )
    for who, update in updates.items():
        seen = flock.along(update / np.linalg.norm(update))
        assert seen == pytest.approx(np.eye(7)[who], abs=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": "plain", "dp": {}},
        {"mode": "local-dp"},
        {"dp": {"epsilon": 8.0, "clip": "adaptive"}, "federate": {"rounds": 2, "clients": 100}},
        {"dp": {"epsilon": 8.0, "per_layer": True}},
        {"dp": {"epsilon": 8.0, "denoise": "james-stein"}},
        {
            "dp": {"noise": 1.0},
            "federate": {"rounds": 2, "clients": 20, "per_round": 5, "sampling": "fixed"},
        },
        {"federate": {"rounds": 4, "clients": 20, "separation": 2}},
        {"audit": {"canaries": 10_000}},
        {"audit": {"canaries": 99}},
    ],
)
def test_where_scores_would_mean_something_else_canaries_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"audit\.canaries"):
        run(private(**changes), quiet=True)
