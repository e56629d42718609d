from __future__ import annotations

import json
from pathlib import Path

import pytest

from tacit.logs.log import About, Ending, Step
from tacit.logs.mlflow import RECORD, MlflowLog
from tests.logs.reading import history, mlflow_runs

MANY = {f"key.{number}": str(number) for number in range(120)}  # more than MLflow takes in one call
ABOUT = About(name="a", title="Digits", settings=MANY, config="seed: 1", tags={"mode": "dp"}, folder=None)
END = Ending(
    status="finished",
    values={"final/test_accuracy": 0.9},
    texts={"privacy": "epsilon 8", "who sees what": "x"},
    result="{}",
)


@pytest.fixture(autouse=True)
def local(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # undone afterwards, also where the log set it
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")


def step(number: int, **values: float) -> Step:
    return Step(number=number, at=1000.0 + number, values=values)


def test_a_run_is_read_back_from_the_store_beside_it(tmp_path: Path) -> None:
    log = MlflowLog(tmp_path / "runs" / "a")
    log.begin(ABOUT, ())
    log.step(step(1, loss=0.5))
    log.step(step(2, loss=0.25))
    log.end(END)
    client, (run,) = mlflow_runs(tmp_path / "runs" / "mlruns")
    assert run.info.run_name == "a"
    assert run.info.status == "FINISHED"
    assert run.data.params == MANY
    assert run.data.tags["mode"] == "dp"
    assert run.data.tags["privacy"] == "epsilon 8"
    assert history(client, run, "loss") == [(1, 0.5), (2, 0.25)]
    assert run.data.metrics["final/test_accuracy"] == 0.9
    artefacts = {artefact.path for artefact in client.list_artifacts(run.info.run_id)}
    assert artefacts == {"config.yaml", "privacy.txt", "result.json", "who-sees-what.txt"}


def test_a_second_session_goes_on_in_the_same_run(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    first = MlflowLog(folder)
    first.begin(ABOUT, ())
    first.step(step(1, loss=0.5, seconds=1.0))
    first.step(step(2, loss=0.4))  # killed in the middle of the round's values
    second = MlflowLog(folder)
    done = [step(1, loss=0.5, seconds=1.0), step(2, loss=0.4, seconds=1.0), step(3, loss=0.3, seconds=1.0)]
    second.begin(ABOUT, done)
    second.step(step(4, loss=0.2, seconds=1.0))
    second.end(END)
    client, (run,) = mlflow_runs(tmp_path / "runs" / "mlruns")
    assert history(client, run, "loss") == [(1, 0.5), (2, 0.4), (3, 0.3), (4, 0.2)]
    assert history(client, run, "seconds") == [(number, 1.0) for number in (1, 2, 3, 4)]
    assert run.info.status == "FINISHED"


def test_the_environment_chooses_store_and_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "elsewhere").as_uri())
    folder = tmp_path / "runs" / "a"
    log = MlflowLog(folder)
    log.begin(ABOUT, ())
    log.end(Ending(status="stopped", values={}, texts={}))
    assert not (tmp_path / "runs" / "mlruns").exists()
    _, (run,) = mlflow_runs(tmp_path / "elsewhere")
    assert run.info.status == "KILLED"
    assert json.loads((folder / RECORD).read_text())["run"] == run.info.run_id
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    again = MlflowLog(folder)  # another store: the run is not there, so it is a new one
    again.begin(ABOUT, ())
    again.end(END)
    assert len(mlflow_runs(tmp_path / "runs" / "mlruns")[1]) == 1


def test_without_a_folder_the_store_is_below_runs(tmp_path: Path) -> None:
    log = MlflowLog(None)
    log.begin(ABOUT, ())
    log.end(END)
    assert len(mlflow_runs(tmp_path / "runs" / "mlruns")[1]) == 1
