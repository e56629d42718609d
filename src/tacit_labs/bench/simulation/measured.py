"""What the comparison of simulations measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from tacit_labs.bench.machine import Machine


@dataclass(frozen=True, kw_only=True)
class Row:
    """One side's rounds of one job."""

    peer: str
    title: str
    version: str
    job: str
    cohort: int  # clients per round
    seconds: float  # of the best warm round
    best_of_each_process: Sequence[float]
    notes: str
    faster_by: float  # how many times as fast Tacit is, in the same run
    around_training: float | None = None  # the share of a round that is not training, of Tacit's own

    @property
    def is_ours(self) -> bool:
        """Whether this is Tacit's side."""
        return self.peer == "tacit"

    @property
    def rounds_per_second(self) -> float:
        """How many rounds a second has."""
        return 1 / self.seconds

    @property
    def clients_per_second(self) -> float:
        """How many clients are trained in a second."""
        return self.cohort / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        row = {
            "peer": self.peer,
            "title": self.title,
            "version": self.version,
            "job": self.job,
            "seconds": self.seconds,
            "rounds_a_second": self.rounds_per_second,
            "clients_a_second": self.clients_per_second,
            "best_of_each_process": list(self.best_of_each_process),
            "notes": self.notes,
            "tacit_is_faster_by": self.faster_by,
        }
        return row if self.around_training is None else row | {"around_training": self.around_training}


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything."""

    name: ClassVar[str] = "simulation"

    machine: Machine
    two_processes_against_one: float
    quick: bool
    repeats: int
    rounds: Mapping[str, int]  # per process, by job
    absent: Mapping[str, str]
    rows: Sequence[Row]

    def ordered(self, job: str) -> list[Row]:
        """Return the rows of a job, the fastest first."""
        return sorted((row for row in self.rows if row.job == job), key=lambda row: row.seconds)

    def to_dict(self) -> dict[str, Any]:
        """Return plain containers for JSON."""
        return {
            "machine": asdict(self.machine) | {"two_processes_against_one": self.two_processes_against_one},
            "quick": self.quick,
            "repeats": self.repeats,
            "rounds": dict(self.rounds),
            "absent": dict(self.absent),
            "rows": [row.to_dict() for row in self.rows],
        }
