"""The two jobs that all sides are given; standard library only, so that whoever asks needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Job:
    """One federated training job on MNIST's 60,000 examples, split evenly and at random, one local epoch."""

    name: str
    title: str
    clients: int
    cohort: int
    batch: int
    lr: float
    momentum: float

    def words(self, examples: int) -> str:
        """Return what a round is, given how many examples there are.

        >>> JOBS["device"].words(60_000)
        '100 of 1,000 clients per round, 60 examples each, batches of 10, one epoch'
        """
        who = f"{self.cohort:,} of {self.clients:,}" if self.cohort < self.clients else f"{self.clients:,}"
        return (
            f"{who} clients per round, {examples // self.clients:,} examples each, batches of {self.batch}, one epoch"
        )


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a side reports of its rounds."""

    version: str
    seconds: Sequence[float]  # of each round, the first included
    notes: str
    around_training: float | None = None  # the share of a round that is not training, where a side knows it


JOBS = {
    job.name: job
    for job in (
        Job(name="device", title="cross-device", clients=1000, cohort=100, batch=10, lr=0.05, momentum=0.0),
        Job(name="silo", title="cross-silo", clients=10, cohort=10, batch=64, lr=0.01, momentum=0.5),
    )
}
