from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError
from tacit.logs import choice
from tacit.logs.log import About, Ending, Step
from tacit.runs import run as start
from tacit.runs.federation import Federation
from tacit.runs.logged import about_of, ending_of, values_of
from tacit.runs.result import RoundRecord
from tests.logs.reading import history, mlflow_runs, scalars, texts
from tests.runs.common import Watching, digits
from tests.runs.results import CENTRAL, LOCAL, record, result


class Stop(Watching):
    """Interrupts a run after a round."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._after = after

    def round_done(self, record: RoundRecord) -> None:
        super().round_done(record)
        if record.round == self._after:
            raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def local(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")


def test_an_interrupted_and_resumed_run_has_every_round_once_in_both_logs(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "a"
    config = digits(out=out, federate={"rounds": 4}, mode="dp", dp={"noise": 1.0}, log="tensorboard, MLflow")
    assert config.log == ("tensorboard", "mlflow")
    with pytest.raises(KeyboardInterrupt):
        start.run(config, observer=Stop(after=2))
    watching = Watching()
    final = start.resume(out, observer=watching)
    assert watching.notes == []
    expected = {number: record.test_accuracy for number, record in enumerate(final.rounds, start=1)}
    board = scalars(out)
    client, (run,) = mlflow_runs(tmp_path / "runs" / "mlruns")
    assert [pair[0] for pair in board["accuracy/test"]] == [1, 2, 3, 4]
    assert dict(board["accuracy/test"]) == pytest.approx(expected, abs=1e-5)
    assert dict(history(client, run, "accuracy/test")) == pytest.approx(expected)
    assert [step for step, _ in history(client, run, "accuracy/test")] == [1, 2, 3, 4]
    assert dict(board["privacy/epsilon"])[4] == pytest.approx(final.claimed.epsilon, abs=1e-5)
    assert board.keys() >= {"bytes/up", "bytes/down", "seconds/train", "seconds/evaluate", "loss/test"}
    assert "epsilon" in texts(out)["privacy"]
    assert "unit: client" in run.data.tags["privacy"]
    assert (run.data.tags["mode"], run.data.tags["simulation"]) == ("dp", "yes")
    path = client.download_artifacts(run.info.run_id, "result.json", str(tmp_path))
    assert json.loads(Path(path).read_text())["test_accuracy"] == final.test_accuracy


def test_no_log_holds_a_key_or_a_place(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "a"
    start.run(digits(out=out, data={"folder": str(tmp_path / "secret-place")}, log=["tensorboard", "mlflow"]))
    key = json.loads((out / "journal.jsonl").read_text().splitlines()[0])["key"]
    logs = [*(out / "tensorboard").rglob("*"), *(tmp_path / "runs" / "mlruns").rglob("*")]
    held = b"".join(path.read_bytes() for path in logs if path.is_file())
    assert b"accuracy" in held
    assert key.encode() not in held
    assert b"secret-place" not in held


def test_a_log_that_fails_is_one_note_and_the_run_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def begin(self, about: About, done: list[Step]) -> None:
            raise OSError("nobody answers")

        def step(self, step: Step) -> None:
            raise AssertionError("a log that failed is left alone")

        def end(self, ending: Ending) -> None:
            raise AssertionError("a log that failed is left alone")

    monkeypatch.setattr(choice, "_log", lambda *_: Broken())
    watching = Watching()
    logged = start.run(digits(log=["mlflow"]), observer=watching)
    (note,) = watching.notes
    assert note == (
        "The log to mlflow is not complete: it failed with OSError: nobody answers. The run is not affected."
    )
    assert logged.test_accuracy == start.run(digits()).test_accuracy
    assert len(watching.records) == 2
    assert watching.result is logged


def test_a_missing_package_is_said_before_anything_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "a"
    start.run(digits(out=tmp_path / "b", log=["tensorboard"]))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'tacit\[tensorboard\]'"):
        start.run(digits(out=out, log=["tensorboard"]))
    assert not out.exists()
    federation = Federation(model=nn.Linear(2, 2), clients=[(np.eye(2), np.array([0, 1]))], log=["mlflow"])
    with pytest.raises(ConfigError, match=r"tacit\[mlflow\]"):
        federation.fit(rounds=1)
    (tmp_path / "b" / "result.json").unlink()
    with pytest.raises(ConfigError, match=r"tacit\[tensorboard\]"):
        start.resume(tmp_path / "b")


def test_a_run_that_is_replaced_leaves_no_log_of_the_old_one(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "a"
    start.run(digits(out=out, federate={"rounds": 3}, log=["tensorboard", "mlflow"]))
    start.run(digits(out=out, log=["mlflow"]), force=True)
    assert list((out / "tensorboard").iterdir()) == []
    _, runs = mlflow_runs(tmp_path / "runs" / "mlruns")
    assert len(runs) == 2  # MLflow keeps the old one; the new one is another


@pytest.mark.parametrize("value", [["wandb"], "tensorboard,wandb", 3, [1]])
def test_an_unknown_log_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="log"):
        RunConfig(log=value)


def test_the_numbers_of_a_round() -> None:
    values = values_of(record(1, None, train_loss=None, epsilon=2.0, example_epsilon=1.0))
    assert "accuracy/test" not in values
    assert "loss/train" not in values
    assert (values["privacy/epsilon"], values["privacy/example_epsilon"]) == (2.0, 1.0)
    assert (values["seconds/train"], values["seconds/round"], values["bytes/up"]) == (0.2, 0.5, 200.0)


def test_what_is_told_first_and_last() -> None:
    about = about_of(digits(mode="nbafl", out=Path("runs/x"), nbafl={"smallest": 3}), "Digits")
    assert about.name == "x"
    assert about.tags["engine"] == "in-process"
    assert about.settings["federate.rounds"] == "2"
    assert not {"out", "paillier.key", "nbafl.smallest"} & set(about.settings)
    ending = ending_of(result(privacy=CENTRAL, example_privacy=LOCAL))
    assert "unit: client" in ending.texts["privacy"]
    assert "unit: example" in ending.texts["privacy"]
    assert ending.values["final/test_accuracy"] == 0.8
