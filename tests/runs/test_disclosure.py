"""What is told of a run: nothing that epsilon does not cover, unless it says so."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError, RunError
from tacit.federated.plan import Poisson
from tacit.flow import ClientId
from tacit.logs.log import Step
from tacit.modes.catalogue import plan_of, resolve
from tacit.report.live import TerminalObserver
from tacit.report.run.page import run_page
from tacit.runs import remarks
from tacit.runs.history import read
from tacit.runs.logged import Logged
from tacit.runs.result import RoundRecord
from tacit.runs.run import resume, run
from tests.runs.common import Watching, digits, weights
from tests.runs.results import record

CLIENTS, MEAN, ROUNDS = 12, 6, 3
POISSON: dict[str, Any] = {
    "mode": "dp",
    "dp": {"noise": 1.0, "clip": 1.0},
    "federate": {"clients": CLIENTS, "per_round": MEAN, "rounds": ROUNDS},
}
LEARNED = {"test_loss", "test_accuracy", "at_chance"}  # of the released models: they may differ
WHEN = {"time", "key", "environment", "seconds", "setup_seconds", "stage_seconds", "folder", "seed"}
Cohorts = Callable[[Poisson, int, np.random.Generator], list[ClientId]]


def nobody(self: Poisson, round_number: int, generator: np.random.Generator) -> list[ClientId]:
    return []


def everybody(self: Poisson, round_number: int, generator: np.random.Generator) -> list[ClientId]:
    return list(range(self.population))


def told(monkeypatch: pytest.MonkeyPatch, out: Path, cohorts: Cohorts, **changes: Any) -> dict[str, Any]:
    """Return all that a run with these cohorts tells, less what its models are and how long it took as a whole."""
    monkeypatch.setattr(Poisson, "cohort", cohorts)
    settings: dict[str, Any] = POISSON | changes
    watching, screen = Watching(), io.StringIO()
    result = run(digits(**settings, out=out), observer=watching)
    observer = TerminalObserver(Console(file=screen, width=200))
    observer.started(title="t", rounds=ROUNDS, done=())
    for one in result.rounds:
        observer.round_done(one)
    journal = [json.loads(line) for line in (out / "journal.jsonl").read_text().splitlines()]
    page = run_page(read(out), full=True).html()
    lines = screen.getvalue().splitlines()[1:]
    return {
        "result": _without(result.to_dict(), LEARNED | WHEN),
        "journal": [_without(line, LEARNED | WHEN) for line in journal if line["type"] != "secret"],
        "notes": watching.notes,
        "progress": watching.progressed,
        "screen": [line.split("  test loss")[0] + line.split("  up ")[1] for line in lines],
        "page": "about 6" in page and not any(f"{size} of {size}" in page for size in (0, CLIENTS)),
        "logged": [_without(told, {"loss/test", "accuracy/test"}) for told in _logged(result.rounds)],
    }


def _without(values: Any, keys: set[str]) -> Any:
    if isinstance(values, dict):
        return {key: _without(value, keys) for key, value in values.items() if key not in keys}
    return [_without(value, keys) for value in values] if isinstance(values, list) else values


class _Log:
    def __init__(self) -> None:
        self.steps: list[Step] = []

    def begin(self, about: Any, done: Any) -> None:
        self.steps += done

    def step(self, step: Step) -> None:
        self.steps.append(step)

    def failure(self) -> None:
        return None


def _logged(rounds: tuple[RoundRecord, ...], done: int = 0) -> list[dict[str, Any]]:
    log: Any = _Log()
    watching = Logged(RunConfig(), Watching(), [log])
    watching.started(title="t", rounds=len(rounds), done=rounds[:done])
    for one in rounds[done:]:
        watching.round_done(one)
    first = log.steps[0].at
    return [{"number": step.number, "apart": round(step.at - first, 3), **step.values} for step in log.steps]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"federate": POISSON["federate"] | {"drop": 0.5}},
        {"dpsgd": {"noise": 1.0}},
        {"dp": {"noise": 0.5, "clip": "adaptive"}},
    ],
    ids=["poisson", "with drop-outs", "both levels", "adaptive"],
)
def test_who_takes_part_changes_nothing_that_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Cohorts of nobody and of everybody are told alike: sizes, bytes, notes, journal, page, logs and screen."""
    none = told(monkeypatch, tmp_path / "none", nobody, **changes)
    whole = told(monkeypatch, tmp_path / "all", everybody, **changes)
    for part, said in none.items():
        assert said == whole[part], part
    assert none["page"]
    assert none["progress"] == []
    assert [one["clients/expected"] for one in none["logged"]] == [6.0] * ROUNDS
    assert [one["apart"] for one in none["logged"]] == [0.0, 1.0, 2.0]
    assert "clients about 6" in none["screen"][0]


def test_bytes_are_those_of_the_expected_cohort(tmp_path: Path) -> None:
    result = run(digits(**POISSON))
    up, down = 20 + 4 * 650, 20 + 4 + 4 + 8 + 4 * 650  # of a logistic model; tasks have the clip bound
    assert {(one.bytes_up, one.bytes_down) for one in result.rounds} == {(6 * up, 6 * down)}
    assert (result.bytes_up, result.bytes_down) == (ROUNDS * 6 * up, ROUNDS * 6 * down)


def test_seconds_are_those_of_the_whole_run_and_carry_their_note(tmp_path: Path) -> None:
    result = run(digits(**POISSON, out=tmp_path / "run"))
    assert [(one.seconds, one.wall_seconds) for one in result.rounds] == [({}, None)] * ROUNDS
    assert result.stage_seconds["train"] > 0
    assert result.seconds >= sum(result.stage_seconds.values()) - 0.01
    assert remarks.ON_SECONDS in result.notes
    assert remarks.ON_COHORTS in result.notes


def test_true_sizes_are_told_where_the_run_pays_for_them() -> None:
    hidden, shown = (
        plan_of(resolve(digits(**POISSON | {"dp": {"epsilon": 2.0, "amplification": amplification}})), CLIENTS)
        for amplification in (True, False)
    )
    assert (hidden.claim and hidden.claim.rate, shown.claim and shown.claim.rate) == (0.5, 1.0)
    assert shown.claim is not None
    assert shown.claim.neighbours == "zero-out"
    assert shown.mechanism.noise_multiplier > 1.5 * hidden.mechanism.noise_multiplier  # type: ignore[attr-defined]
    amplified = run(digits(**POISSON))
    paying = run(digits(**POISSON | {"dp": {"noise": 1.0, "clip": 1.0, "amplification": False}}))
    assert (paying.claimed.epsilon or 0) > (amplified.claimed.epsilon or 0)
    assert len({one.clients_asked for one in paying.rounds}) > 1
    assert all(one.clients_replied == one.clients_asked for one in paying.rounds)
    assert all(one.wall_seconds for one in paying.rounds)
    assert any("no amplification by sampling" in note for note in paying.claimed.notes)
    assert remarks.ON_SECONDS in paying.notes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dp": {"noise": 1.0, "amplification": False, "neighbours": "add-remove"}}, "Use zero-out or replace-one"),
        ({"federate": {"clients": CLIENTS, "minimum_clients": 2}}, "minimum_clients=2 does not work in mode 'dp'"),
        ({"federate": {"clients": 9, "per_round": 3, "sampling": "fixed", "minimum_clients": 3}}, "every round is rel"),
        (
            {"mode": "local-dp", "dp": {"noise": 1.0, "amplification": False}},
            "dp.amplification has no effect",
        ),
        ({"mode": "plain", "dp": {"amplification": False}}, "dp.amplification has no effect in mode 'plain'"),
    ],
)
def test_what_can_not_hold_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan_of(resolve(digits(**POISSON | changes)), CLIENTS)


def test_of_a_fixed_cohort_the_size_is_told_and_not_who_replied(tmp_path: Path) -> None:
    federate = POISSON["federate"] | {"sampling": "fixed", "drop": 0.5}
    watching = Watching()
    result = run(digits(**POISSON | {"federate": federate}, out=tmp_path / "run"), observer=watching)
    assert {(one.clients_asked, one.clients_replied) for one in result.rounds} == {(MEAN, None)}
    assert (watching.notes, watching.progressed) == ([], [])
    assert '"asked"' not in (tmp_path / "run" / "journal.jsonl").read_text()


def test_every_round_is_released_with_few_clients_too() -> None:
    """Small cohorts that are empty now and then, here three in ten, once stopped a run after hundreds of rounds."""
    federate = {"clients": 4, "per_round": 1, "rounds": 20}
    result = run(digits(mode="dp", dp={"noise": 1.0}, federate=federate, evaluate={"every": 20}))
    assert len(result.rounds) == 20
    assert {one.attempts for one in result.rounds} == {1}


def test_a_killed_run_goes_on_to_the_bit_without_knowing_who_took_part(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    first = run(digits(**POISSON, out=whole))
    with pytest.raises(KeyboardInterrupt):
        run(digits(**POISSON, out=cut), observer=_Impatient())
    again = resume(cut)
    assert weights(cut) == weights(whole)
    assert again.privacy == first.privacy
    assert again.rounds == first.rounds
    assert again.stage_seconds["train"] > 0


class _Impatient(Watching):
    def round_done(self, record: RoundRecord) -> None:
        if record.round == 2:
            raise KeyboardInterrupt


def test_the_journal_is_the_servers_own(tmp_path: Path) -> None:
    run(digits(**POISSON, out=tmp_path / "run"))
    assert (tmp_path / "run" / "journal.jsonl").stat().st_mode & 0o777 == 0o600
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    (tmp_path / "again" / "journal.jsonl").chmod(0o644)
    run(digits(**POISSON, out=tmp_path / "again"), force=True)
    assert (tmp_path / "again" / "journal.jsonl").stat().st_mode & 0o777 == 0o600


PRIVATE: dict[str, dict[str, Any]] = {
    "dp": {"dp": {"noise": 1.0}},
    "local-dp": {"dp": {"noise": 1.0}},
    "dp-sgd": {"dp": {"noise": 1.0}},
    "paillier": {
        "dp": {"noise": 1.0},
        "paillier": {"dp": True, "bits": 256, "insecure_key_size": True},
    },
    "signds": {},
    "nbafl": {},
}


@pytest.mark.parametrize("mode", PRIVATE)
def test_no_private_mode_tells_scores_on_training_data_by_itself(mode: str) -> None:
    settings = PRIVATE[mode] | {"mode": mode, "federate": {"clients": 4, "rounds": 1}}
    result = run(digits(**settings))
    assert result.train_accuracy is None
    assert [one.train_loss for one in result.rounds] == [None]
    assert [one.clipped for one in result.rounds] == [None]
    assert remarks.ON_SECONDS in result.notes
    assert remarks.ON_TRAINING not in result.notes


def test_scores_on_training_data_that_were_asked_for_carry_their_note(tmp_path: Path) -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=200)
    settings: dict[str, Any] = POISSON | {"evaluate": {"train": True}}
    result = run(digits(**settings, out=tmp_path / "run"), observer=TerminalObserver(console))
    assert result.train_accuracy is not None
    assert remarks.ON_TRAINING in json.loads((tmp_path / "run" / "result.json").read_text())["notes"]
    assert f"training data {result.train_accuracy:.2%}, which no noise protects" in screen.getvalue()
    assert "which no noise protects" in run_page(read(tmp_path / "run")).html()
    plain = run(digits())
    assert plain.train_accuracy is not None
    assert plain.notes == ()


def test_a_round_without_seconds_says_why() -> None:
    with pytest.raises(RunError, match=r"dp\.amplification=false"):
        _ = record(1, 0.5, wall_seconds=None).lasted
