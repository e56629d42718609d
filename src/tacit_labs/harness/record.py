"""Under which circumstances a reproduction was made."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import tacit
from tacit_labs.bench import machine
from tacit_labs.harness.experiment import Experiment, Progress, Reproduction, Settings, silent


@dataclass(frozen=True, kw_only=True)
class Record:
    """Version, machine, seed and duration."""

    version: str
    quick: bool
    seed: int
    device: str
    machine: str
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self) | {"seconds": round(self.seconds, 3)}


def recorded(settings: Settings, seconds: float) -> Record:
    """Return the circumstances of a run that took ``seconds``."""
    found = machine.describe()
    return Record(
        version=tacit.__version__,
        quick=settings.quick,
        seed=settings.seed,
        device="CPU" if settings.gpu < 0 else f"GPU {settings.gpu}",
        machine=f"{found.processor}, {found.cores} cores",
        seconds=seconds,
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
    start = time.perf_counter()
    reproduction = experiment.run(settings, progress)
    seconds = time.perf_counter() - start
    return Outcome(experiment=experiment, reproduction=reproduction, record=recorded(settings, seconds))
