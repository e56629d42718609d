"""Small data that can be learned at once: each class has its own bright rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tacit.errors import DataError
from tacit.tasks import catalogue
from tacit.tasks.data import DataSet, Examples


def images(count: int, classes: int, *, seed: int) -> Examples:
    generator = np.random.default_rng(seed)
    labels = np.arange(count, dtype=np.int64) % classes
    features = 0.1 * generator.standard_normal((count, 1, 28, 28)).astype(np.float32)
    for row, label in enumerate(labels):
        features[row, 0, 2 * int(label) : 2 * int(label) + 4] += 1.0
    return Examples(features=features, labels=labels)


def dataset(name: str) -> DataSet:
    """Return stand-ins: MNIST with ten classes, and FEMNIST by five writers."""
    names: tuple[str, ...] = ()
    if name == "mnist":
        train, groups = images(200, 10, seed=1), None
    else:
        train = images(100, 4, seed=2)
        groups, names = np.repeat(np.arange(5, dtype=np.int64), (40, 30, 20, 6, 4)), tuple("abcde")
    return DataSet(
        name=name,
        title=name,
        classes=10 if name == "mnist" else 62,
        train=train,
        test=images(40, 10 if name == "mnist" else 4, seed=3),
        origin="a test",
        licence="none",
        groups=groups,
        group_names=names,
    )


def stand_in(monkeypatch: pytest.MonkeyPatch, *, femnist: bool = True) -> None:
    """Let runs find the stand-ins; without ``femnist`` it is missing, as on most machines."""

    def load(name: str, *, folder: Path | None = None, download: bool = True) -> DataSet:
        del folder, download
        if name == "femnist" and not femnist:
            raise DataError("FEMNIST was not found. Make it with LEAF.")
        return dataset(name)

    monkeypatch.setattr(catalogue, "load", load)
    found = (None, None) if femnist else None
    monkeypatch.setattr("tacit.tasks.femnist.locate_femnist", lambda _folder: found)
