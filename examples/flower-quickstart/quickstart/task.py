"""The model, the data, and what training means; nothing here knows of a federation."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

TEST = 5  # every fifth image is for testing


def build() -> nn.Module:
    """Return the model, the same at first for everybody."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def load(partition: int, partitions: int) -> tuple[TensorDataset, TensorDataset]:
    """Return a client's images of digits, to train on and to test on."""
    digits = load_digits()
    features = torch.tensor(digits.data / 16.0, dtype=torch.float32)[partition::partitions]
    labels = torch.tensor(digits.target)[partition::partitions]
    test = torch.arange(len(labels)) % TEST == 0
    return TensorDataset(features[~test], labels[~test]), TensorDataset(features[test], labels[test])


def fit(model: nn.Module, data: TensorDataset, *, epochs: int, rate: float) -> float:
    """Train the model and return the mean loss of the last pass."""
    optimiser = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    loader = DataLoader(data, batch_size=16, shuffle=True)
    total = 0.0
    for _ in range(epochs):
        total = 0.0
        for features, labels in loader:
            optimiser.zero_grad()
            loss = F.cross_entropy(model(features), labels)
            loss.backward()
            optimiser.step()
            total += loss.item() * len(labels)
    return total / len(data)


def score(model: nn.Module, data: TensorDataset) -> tuple[float, float]:
    """Return the mean loss and the accuracy."""
    features: Tensor
    labels: Tensor
    features, labels = data.tensors
    with torch.no_grad():
        guesses = model(features)
    return F.cross_entropy(guesses, labels).item(), (guesses.argmax(1) == labels).float().mean().item()
