"""What private modes reach when they are told nothing: ``tacit run --mode dp`` and the like, several seeds each."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tacit
from tacit.runs.observer import Silent
from tacit_labs.bench.documented.common import keep

MODES: dict[str, dict[str, Any]] = {
    "dp": {"mode": "dp"},
    "paillier --dp": {"mode": "paillier", "paillier": {"dp": True}},
    "local-dp": {"mode": "local-dp"},
    "dp-sgd": {"mode": "dp-sgd"},
    "signds": {"mode": "signds"},
}


def measure(names: Sequence[str], *, seeds: int, results: Path) -> None:
    """Run the modes that are named, or all, and keep each row as soon as it is there."""
    rows: list[dict[str, Any]] = []
    for name in names or MODES:
        accuracies, seconds, epsilons = [], [], []
        for seed in range(1, seeds + 1):
            start = time.perf_counter()
            result = tacit.run(tacit.RunConfig(**MODES[name], seed=seed), observer=Silent())
            seconds.append(round(time.perf_counter() - start, 1))
            accuracies.append(result.test_accuracy or 0.0)
            epsilons.append(result.claimed.epsilon)
        row = {"mode": name, "epsilon": max(epsilons), "accuracy": accuracies, "mean": statistics.mean(accuracies)}
        rows.append(row | {"seconds": seconds})
        print(rows[-1], flush=True)
        keep(rows, results)
