"""Small runs on `digits` for the tests of this room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from tacit.config.run_config import RunConfig
from tacit.runs.folder import MODEL
from tacit.runs.journal import Start
from tacit.runs.result import Result, RoundRecord

STARTED = Start(key="0" * 32, simulation=True, dataset="digits", examples=9)  # a journal's first record


def digits(**changes: Any) -> RunConfig:
    """Return a run of two rounds with five clients; ``changes`` are sections over it."""
    values: dict[str, Any] = {
        "seed": 1,
        "data": {"name": "digits"},
        "model": {"name": "logistic"},
        "federate": {"rounds": 2, "clients": 5},
        "train": {"workers": 1},
    }
    for key, value in changes.items():
        values[key] = values[key] | value if isinstance(value, dict) and key in values else value
    return RunConfig(**values)


def lines(journal: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a journal as they are on disk."""
    *whole, _ = journal.read_bytes().split(b"\n")
    return [json.loads(line) for line in whole]


def unchecked(config: RunConfig, **changes: Any) -> RunConfig:
    """Return the run with values that no configuration takes, so that its numbers overflow."""
    sections = {key: getattr(config, key).model_copy(update=value) for key, value in changes.items()}
    return config.model_copy(update=sections)


def weights(folder: Path) -> dict[str, bytes]:
    """Return the bytes of the model in a run's folder."""
    return {name: tensor.tobytes() for name, tensor in load_file(folder / MODEL).items()}


def finite(folder: Path) -> bool:
    return all(np.isfinite(tensor).all() for tensor in load_file(folder / MODEL).values())


class Watching:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.done_things: list[str] = []
        self.computed: list[tuple[str, float]] = []
        self.title = ""
        self.rounds = 0
        self.done: tuple[RoundRecord, ...] = ()
        self.progressed: list[tuple[int, int]] = []
        self.records: list[RoundRecord] = []
        self.result: Result | None = None

    def note(self, text: str) -> None:
        self.notes.append(text)

    def doing(self, what: str, share: float | None = None) -> None:
        if share is None:
            self.done_things.append(what)
        else:
            self.computed.append((what, share))

    def started(self, *, title: str, rounds: int, done: tuple[RoundRecord, ...]) -> None:
        self.title, self.rounds, self.done = title, rounds, done

    def progress(self, *, replied: int, asked: int) -> None:
        self.progressed.append((replied, asked))

    def round_done(self, record: RoundRecord) -> None:
        self.records.append(record)

    def finished(self, result: Result) -> None:
        self.result = result
