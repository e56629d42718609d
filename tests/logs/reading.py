"""Logs read back with the readers of their own packages."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def _events(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return events


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return step and value of every scalar below a run's folder."""
    events = _events(folder)
    return {
        tag: [(event.step, round(event.value, 6)) for event in events.Scalars(tag)]  # they are single precision
        for tag in events.Tags()["scalars"]
    }


def texts(folder: Path) -> dict[str, str]:
    events = _events(folder)
    return {tag: events.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in events.Tags()["tensors"]}


def mlflow_runs(store: Path) -> tuple[Any, list[Any]]:
    """Return MLflow's client for a store, and the runs in its experiment."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=store.resolve().as_uri())
    experiment = client.get_experiment_by_name("tacit")
    assert experiment is not None
    return client, list(client.search_runs([experiment.experiment_id]))


def history(client: Any, run: Any, name: str) -> list[tuple[int, float]]:
    return [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name)]
