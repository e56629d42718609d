"""The loop a student writes: a deep copy of the model per client, a DataLoader, an average of state dicts."""

from __future__ import annotations

import copy
import time

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tacit_labs.bench.simulation.peers.common import CNN, client_data
from tacit_labs.bench.simulation.peers.jobs import Answer, Job


def train_client(global_model: nn.Module, dataset: TensorDataset, job: Job) -> dict[str, Tensor]:
    """Return a client's weights after its epoch."""
    model = copy.deepcopy(global_model)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=job.lr, momentum=job.momentum)
    criterion = nn.CrossEntropyLoss()
    for x, y in DataLoader(dataset, batch_size=job.batch, shuffle=True):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    return model.state_dict()


def average(states: list[dict[str, Tensor]], weights: list[int]) -> dict[str, Tensor]:
    """Return the weighted average of the clients' weights."""
    pairs = list(zip(states, weights, strict=True))
    return {
        key: torch.stack([state[key] * weight for state, weight in pairs]).sum(0) / sum(weights) for key in states[0]
    }


def run(job: Job, rounds: int, data: str) -> Answer:
    """Time the rounds."""
    torch.manual_seed(0)
    rng = np.random.default_rng(1)
    images, labels = client_data(data, job.clients)
    datasets = [TensorDataset(x, y) for x, y in zip(images, labels, strict=True)]
    model = CNN()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        cohort = rng.choice(job.clients, job.cohort, replace=False)
        states = [train_client(model, datasets[client], job) for client in cohort]
        model.load_state_dict(average(states, [len(datasets[client]) for client in cohort]))
        seconds.append(time.perf_counter() - start)
    notes = f"one process, {torch.get_num_threads()} torch threads (the default); data in memory beforehand"
    return Answer(version=f"torch {torch.__version__}", seconds=seconds, notes=notes)
