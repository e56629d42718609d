"""A log for MLflow: params, metrics by round, tags, the privacy statement and ``result.json``.

The store is that of ``MLFLOW_TRACKING_URI``, or the folder ``mlruns`` beside the run's folder. MLflow has put such
folders behind ``MLFLOW_ALLOW_FILE_STORE``; they are the one local store that needs no database.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tacit import foreign
from tacit.errors import StorageError, WireError
from tacit.logs.log import About, Ending, Step
from tacit.storage import write_atomically

try:
    import fcntl
except ImportError:  # Windows: two runs that open a new store at the same moment may both create the experiment
    fcntl = None  # type: ignore[assignment]  # Windows has no such module

RECORD = "mlflow.json"  # in the run's folder: which MLflow run it is
STORE = "mlruns"
EXPERIMENT = "tacit"
_PARAMS = 100  # MLflow takes so many in one call
_TAG = 5000  # letters of a tag
# Its modules import each other in a circle, which two threads at once break; and a run that is resumed while the thread
# of its first session still begins, on a slow machine, is to find what that one creates.
_BEGINNING = threading.Lock()
_STATUS = {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}


class MlflowLog:
    """Writes to an MLflow store; a run that is resumed goes on in the same MLflow run."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._client: Any = None
        self._run = ""

    def begin(self, about: About, done: Sequence[Step]) -> None:
        """Find the run of an earlier session, or create one, and add the rounds it lacks."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # a run tells nobody that it was
        uri, store = self._store()
        if store is not None:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        with _BEGINNING:
            from mlflow.entities import Param, RunTag
            from mlflow.tracking import MlflowClient

            with _alone(store):
                self._client = MlflowClient(tracking_uri=uri)
                known = self._known(uri)
                self._run = known or self._created(about, uri)
        if known:
            self._client.update_run(known, status="RUNNING")
        else:
            params = [Param(key, value) for key, value in about.settings.items()]
            for first in range(0, len(params), _PARAMS):
                self._client.log_batch(self._run, params=params[first : first + _PARAMS])
            self._client.log_text(self._run, about.config, "config.yaml")
        self._client.log_batch(self._run, tags=[RunTag(key, value[:_TAG]) for key, value in about.tags.items()])
        self._add_missing(done)

    def step(self, step: Step) -> None:
        """Write one round in one call."""
        from mlflow.entities import Metric

        at = round(1000 * step.at)
        self._client.log_batch(
            self._run, metrics=[Metric(name, value, at, step.number) for name, value in step.values.items()]
        )

    def end(self, ending: Ending) -> None:
        """Write the texts and the result, and close the run."""
        if not self._run:
            return
        from mlflow.entities import RunTag

        for name, text in ending.texts.items():
            self._client.log_text(self._run, text + "\n", f"{name.replace(' ', '-')}.txt")
        if "privacy" in ending.texts:
            self._client.log_batch(self._run, tags=[RunTag("privacy", ending.texts["privacy"][:_TAG])])
        if ending.values:
            self._client.log_batch(self._run, metrics=_finals(ending))
        if ending.result is not None:
            self._client.log_text(self._run, ending.result, "result.json")
        self._client.set_terminated(self._run, status=_STATUS[ending.status])

    def _store(self) -> tuple[str, Path | None]:
        """Return the store's address, and its folder where it is the default one."""
        given = os.environ.get("MLFLOW_TRACKING_URI")
        if given:
            return given, None
        beside = Path("runs") if self._folder is None else self._folder.parent
        store = (beside / STORE).resolve()
        return store.as_uri(), store

    def _known(self, uri: str) -> str | None:
        """Return the MLflow run of an earlier session, if it is still there."""
        if self._folder is None or not (self._folder / RECORD).exists():
            return None
        try:
            record = foreign.json_object(foreign.read_plain(self._folder / RECORD, largest=foreign.LARGEST))
            if record["uri"] != uri:
                return None
            run = str(record["run"])
        except (OSError, KeyError, WireError) as error:
            raise StorageError(
                f"{self._folder / RECORD} does not tell which MLflow run goes on: {error}. Remove it to begin another."
            ) from error
        self._client.get_run(run)
        return run

    def _created(self, about: About, uri: str) -> str:
        """Create a run, and note which it is before anything else."""
        run = str(self._client.create_run(self._experiment(), run_name=about.name).info.run_id)
        if self._folder is not None:
            record = json.dumps({"uri": uri, "run": run}, indent=2)
            write_atomically(self._folder / RECORD, record.encode() + b"\n")
        return run

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id if found is not None else self._client.create_experiment(name))

    def _add_missing(self, done: Sequence[Step]) -> None:
        names = {name for step in done for name in step.values}
        there = {
            name: {metric.step for metric in self._client.get_metric_history(self._run, name)}
            for name in names & set(self._client.get_run(self._run).data.metrics)
        }
        for step in done:
            lacking = {name: value for name, value in step.values.items() if step.number not in there.get(name, ())}
            if lacking:
                self.step(Step(number=step.number, at=step.at, values=lacking))


def _finals(ending: Ending) -> list[Any]:
    import time

    from mlflow.entities import Metric

    return [Metric(name, value, round(1000 * time.time()), 0) for name, value in ending.values.items()]


@contextmanager
def _alone(store: Path | None) -> Iterator[None]:
    """Keep other runs from creating the store and the experiment at the same moment."""
    if store is None or fcntl is None:
        yield
        return
    store.mkdir(parents=True, exist_ok=True)
    with (store.parent / f".{STORE}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
