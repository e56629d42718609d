"""What every peer trains: the two jobs, the CNN, the clients' data and the line of JSON printed at the end.

The name is deliberately not ``common``: workers started by a peer import this module by name, and a generic
name could resolve to something else there.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Job:
    """One federated training job on MNIST's 60,000 examples, split evenly and at random, one local epoch."""

    name: str
    clients: int
    cohort: int
    batch: int
    lr: float
    momentum: float


JOBS = {
    "device": Job("device", clients=1000, cohort=100, batch=10, lr=0.05, momentum=0.0),
    "silo": Job("silo", clients=10, cohort=10, batch=64, lr=0.01, momentum=0.5),
}


class CNN(nn.Module):
    """The 21,840-parameter network of PyTorch's old MNIST example."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, 5)
        self.conv2 = nn.Conv2d(10, 20, 5)
        self.drop2d = nn.Dropout2d()
        self.fc1 = nn.Linear(320, 50)
        self.drop = nn.Dropout()
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.drop2d(self.conv2(x)), 2))
        x = F.relu(self.fc1(x.flatten(1)))
        logits: Tensor = self.fc2(self.drop(x))
        return logits


@cache
def client_data(path: str, clients: int) -> tuple[Tensor, Tensor]:
    """Normalised images (clients, examples, 1, 28, 28) and labels (clients, examples), read once."""
    with np.load(path) as arrays:
        images, labels = arrays["xtr"], arrays["ytr"]
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(images)))
    x = torch.from_numpy(images)[order].float().div_(255).sub_(0.1307).div_(0.3081)
    y = torch.from_numpy(labels)[order].long()
    return x.reshape(clients, -1, 1, 28, 28), y.reshape(clients, -1)


def train_epoch(model: nn.Module, x: Tensor, y: Tensor, job: Job) -> None:
    """One epoch of SGD over tensors already in memory, in a fresh random order: no DataLoader in the way."""
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=job.lr, momentum=job.momentum)
    order = torch.randperm(len(x))
    for start in range(0, len(x), job.batch):
        batch = order[start : start + job.batch]
        optimizer.zero_grad()
        F.cross_entropy(model(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def cores() -> int:
    """Cores this process may use, so that every peer is given the same."""
    return len(os.sched_getaffinity(0))


def arguments(description: str | None, jobs: Sequence[str] = tuple(JOBS)) -> argparse.Namespace:
    """The command line every peer's script takes: --job, --rounds, --data."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--job", choices=jobs, default=jobs[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, required=True, help="npz with uint8 xtr (60000, 28, 28) and ytr")
    options = parser.parse_args()
    options.data = str(options.data.resolve())  # workers may run in another folder
    return options


def report(peer: str, version: str, job: Job, seconds: Sequence[float], notes: str) -> None:
    """Print the result as one JSON object, the last line of standard output."""
    line = {
        "peer": peer,
        "version": version,
        "job": job.name,
        "clients_per_round": job.cohort,
        "seconds": [round(value, 4) for value in seconds],
        "notes": notes,
    }
    print(json.dumps(line), flush=True)
