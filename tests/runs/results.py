"""Results made by hand, for the tests of comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tacit.federated.plan import Privacy
from tacit.runs.result import Result, RoundRecord
from tacit.studies.results import Entry, Repeat

CENTRAL = Privacy(
    epsilon=8.0,
    delta=1e-5,
    unit="client",
    neighbours="add-remove",
    accountant="exact-gaussian",
    against="the public",
)
LOCAL = Privacy(
    epsilon=3.0,
    delta=1e-5,
    unit="example",
    neighbours="add-remove",
    accountant="pld",
    against="everyone but the client itself",
)


def record(number: int, accuracy: float | None, **changes: Any) -> RoundRecord:
    values: dict[str, Any] = {
        "round": number,
        "attempts": 1,
        "train_loss": 0.5,
        "test_loss": 0.4,
        "test_accuracy": accuracy,
        "clients_expected": 4.0,
        "clients_asked": 4,
        "clients_replied": 2,
        "bytes_up": 200,
        "bytes_down": 800,
        "epsilon": None,
        "seconds": {"train": 0.2, "protect": 0.1, "aggregate": 0.0, "recover": 0.0, "evaluate": 0.1},
        "wall_seconds": 0.5,
    }
    return RoundRecord(**values | changes)


def result(accuracies: Sequence[float | None] = (0.5, 0.8), **changes: Any) -> Result:
    values: dict[str, Any] = {
        "version": "0.1.0",
        "mode": "plain",
        "engine": "in-process",
        "device": "cpu",
        "dataset": "digits",
        "split": "iid",
        "model": "logistic",
        "parameters": 650,
        "clients": 4,
        "per_round": 4,
        "seed": 1,
        "simulation": True,
        "form": "lanes",
        "form_reason": "",
        "rounds": tuple(record(number, accuracy) for number, accuracy in enumerate(accuracies, start=1)),
        "test_accuracy": accuracies[-1],
        "train_accuracy": None,
        "test_loss": 0.4,
        "seconds": 1.0,
        "setup_seconds": 0.1,
        "stage_seconds": {"train": 0.4, "protect": 0.2, "evaluate": 0.2, "other": 0.2},
        "bytes_up": 400,
        "bytes_down": 1600,
        "privacy": None,
        "sees": {"server": "updates", "clients": "models", "outsider": "nothing"},
        "notes": (),
        "folder": None,
    }
    return Result(**values | changes)


def entry(name: str, *results: Result, failed: int = 0, **changes: Any) -> Entry:
    runs = [
        Repeat(name=f"{name}-seed-{own.seed}", folder=f"runs/{name}-{own.seed}", seed=own.seed, result=own)
        for own in results
    ]
    runs += [
        Repeat(name=f"{name}-broken-{number}", folder="runs/broken", seed=9, error="it broke <b>")
        for number in range(failed)
    ]
    return Entry(**{"name": name, "mode": name, "runs": tuple(runs)} | changes)
