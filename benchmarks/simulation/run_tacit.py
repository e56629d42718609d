"""Tacit on the benchmark's jobs: whole rounds with wire, journal and checkpoints, without evaluation."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from peer_common import CNN, JOBS, client_data

import tacit
from tacit.runs.observer import Silent
from tacit.runs.result import RoundRecord


class Clock(Silent):
    """Notes when each round is done, its journal and checkpoint on disk."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def started(self, *, title: str, rounds: int, done: tuple[RoundRecord, ...]) -> None:
        self.times.append(time.perf_counter())

    def round_done(self, record: RoundRecord) -> None:
        self.times.append(time.perf_counter())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", choices=list(JOBS), required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--form", default="auto")
    parser.add_argument("--gpu", type=int, default=-1)
    options = parser.parse_args()
    job = JOBS[options.job]
    torch.manual_seed(0)
    images, labels = client_data(options.data, job.clients)
    federation = tacit.Federation(
        model=CNN(),
        clients=list(zip(images, labels, strict=True)),
        seed=1,
        gpu=options.gpu,
        federate={"per_round": job.cohort},
        train={"batch_size": job.batch, "form": options.form},
        optimizer={"lr": job.lr, "momentum": job.momentum},
        evaluate={"train": False},
    )
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock()
        result = federation.fit(rounds=options.rounds, out=Path(folder) / "run", observer=clock)
    training = [record.seconds["train"] for record in result.rounds]
    wall = [end - start for start, end in pairwise(clock.times)]
    around = float(
        np.median([(whole - train) / whole for whole, train in zip(wall, training, strict=True)][1:] or [0.0])
    )
    print(
        json.dumps(
            {
                "peer": "tacit" if options.gpu < 0 else "tacit (GPU)",
                "version": tacit.__version__,
                "job": options.job,
                "clients_per_round": job.cohort,
                "seconds": wall,
                "train_seconds": training,
                "around_training": around,
                "notes": f"form {result.form}",
            }
        )
    )


if __name__ == "__main__":
    main()
