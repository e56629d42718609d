"""Tacit on the benchmark's jobs: whole rounds with wire, journal and checkpoints, without evaluation."""

from __future__ import annotations

import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import torch

import tacit
from tacit.runs.observer import Silent
from tacit.runs.result import RoundRecord
from tacit_labs.bench.simulation.peers.common import CNN, client_data
from tacit_labs.bench.simulation.peers.jobs import Answer, Job


class Clock(Silent):
    """Notes when each round is done, its journal and checkpoint on disk."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def started(self, *, title: str, rounds: int, done: tuple[RoundRecord, ...]) -> None:
        """Note the beginning."""
        self.times.append(time.perf_counter())

    def round_done(self, record: RoundRecord) -> None:
        """Note the end of a round."""
        self.times.append(time.perf_counter())


def run(job: Job, rounds: int, data: str, *, form: str = "auto", gpu: int = -1) -> Answer:
    """Time the rounds."""
    torch.manual_seed(0)
    images, labels = client_data(data, job.clients)
    federation = tacit.Federation(
        model=CNN(),
        clients=list(zip(images, labels, strict=True)),
        seed=1,
        gpu=gpu,
        federate={"per_round": job.cohort},
        train={"batch_size": job.batch, "form": form},
        optimizer={"lr": job.lr, "momentum": job.momentum},
        evaluate={"train": False},
    )
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock()
        result = federation.fit(rounds=rounds, out=Path(folder) / "run", observer=clock)
    training = [record.seconds["train"] for record in result.rounds]
    wall = [end - start for start, end in pairwise(clock.times)]
    shares = [(whole - train) / whole for whole, train in zip(wall, training, strict=True)]
    around = statistics.median(shares[1:] or shares)
    return Answer(version=tacit.__version__, seconds=wall, notes=f"form {result.form}", around_training=around)
