"""What every side trains: the CNN, the clients' data, and an epoch over tensors that are in memory."""

from __future__ import annotations

import os
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit_labs.bench.simulation.peers.jobs import Job


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
        """Return the logits."""
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.drop2d(self.conv2(x)), 2))
        x = F.relu(self.fc1(x.flatten(1)))
        logits: Tensor = self.fc2(self.drop(x))
        return logits


@cache
def client_data(path: str, clients: int) -> tuple[Tensor, Tensor]:
    """Return normalised images (clients, examples, 1, 28, 28) and labels (clients, examples), read once."""
    with np.load(path) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(images)))
    x = torch.from_numpy(images)[order].float().div_(255).sub_(0.1307).div_(0.3081)
    y = torch.from_numpy(labels)[order].long()
    return x.reshape(clients, -1, 1, 28, 28), y.reshape(clients, -1)


def train_epoch(model: nn.Module, x: Tensor, y: Tensor, job: Job) -> None:
    """Run one epoch of SGD over tensors already in memory, in a fresh random order: no DataLoader in the way."""
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=job.lr, momentum=job.momentum)
    order = torch.randperm(len(x))
    for start in range(0, len(x), job.batch):
        batch = order[start : start + job.batch]
        optimizer.zero_grad()
        F.cross_entropy(model(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]  # torch gives it no types
        optimizer.step()


def cores() -> int:
    """Return how many cores this process may use, so that every side is given the same."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
