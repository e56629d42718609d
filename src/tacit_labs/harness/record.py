"""Under which circumstances a reproduction was made."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import tacit
from tacit.report.words import seconds_text
from tacit_labs.bench import machine
from tacit_labs.harness.experiment import Experiment, Progress, Reproduction, Settings, silent


@dataclass(frozen=True, kw_only=True)
class Record:
    """Version, machine, seed and duration.

    The clock's ``seconds`` are those of a quiet machine only where its ``load`` was low; processor time is less moved.
    """

    version: str
    quick: bool
    seed: int
    device: str
    machine: str
    seconds: float
    processor_seconds: float = 0.0  # of this process and those that it waited for
    load: float = 0.0  # how many processes wanted to run, in the mean of the last minutes

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self) | {
            "seconds": round(self.seconds, 3),
            "processor_seconds": round(self.processor_seconds, 3),
            "load": round(self.load, 1),
        }


def duration_words(record: Mapping[str, Any]) -> str:
    """Return how long a run took, from a record's plain values; earlier ones have the clock's seconds alone.

    >>> duration_words({"seconds": 600.0, "processor_seconds": 90.0, "load": 12.0})
    '10 min 0 s, 1 min 30 s of processor time at load 12'
    """
    said = seconds_text(record["seconds"])
    if record.get("processor_seconds"):
        said += f", {seconds_text(record['processor_seconds'])} of processor time at load {record['load']:.0f}"
    return said


def recorded(settings: Settings, seconds: float, processor_seconds: float = 0.0) -> Record:
    """Return the circumstances of a run that took ``seconds``."""
    found = machine.describe()
    return Record(
        version=tacit.__version__,
        quick=settings.quick,
        seed=settings.seed,
        device="CPU" if settings.gpu < 0 else f"GPU {settings.gpu}",
        machine=f"{found.processor}, {found.cores} cores",
        seconds=seconds,
        processor_seconds=processor_seconds,
        load=os.getloadavg()[2] if hasattr(os, "getloadavg") else 0.0,
    )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """An experiment, what it gave and how."""

    experiment: Experiment
    reproduction: Reproduction
    record: Record

    def to_dict(self) -> dict[str, Any]:
        """Return plain containers for JSON."""
        return {
            "name": self.experiment.name,
            "title": self.experiment.title,
            "source": self.experiment.source,
            "document": self.experiment.document,
            "parts": list(self.experiment.parts),
            "settings": self.reproduction.settings,
            "smaller": self.reproduction.smaller,
            "record": self.record.to_dict(),
            "findings": [asdict(found) for found in self.reproduction.findings],
            "data": dict(self.reproduction.data),
        }


def perform(experiment: Experiment, settings: Settings, progress: Progress = silent) -> Outcome:
    """Run an experiment and note how long it took."""
    start, used = time.perf_counter(), _processor()
    reproduction = experiment.run(settings, progress)
    seconds, used = time.perf_counter() - start, _processor() - used
    return Outcome(experiment=experiment, reproduction=reproduction, record=recorded(settings, seconds, used))


def _processor() -> float:
    """Return the processor time of this process and of those that have ended, in seconds."""
    return sum(os.times()[:4])
