"""Mode dp-sgd with nothing set but a budget, on MNIST: what the defaults learn at epsilon 1, 3 and 8."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tacit
from tacit_labs.bench.documented.common import keep


def _row(epsilon: float, split: str, model: str, *, seeds: int, gpu: int, folder: Path | None) -> dict[str, Any]:
    """Run the defaults once per seed and return the last accuracies."""
    accuracies, spent, seconds = [], [], []
    for seed in range(1, seeds + 1):
        result = tacit.run(
            tacit.RunConfig(
                mode="dp-sgd",
                seed=seed,
                gpu=gpu,
                data={"name": "mnist", "split": split, "folder": folder},
                model={"name": model},
                evaluate={"train": False},
                dp={"epsilon": epsilon},
            )
        )
        accuracies.append(result.test_accuracy or 0.0)
        spent.append(result.claimed.epsilon)
        seconds.append(round(result.seconds, 1))
    mean = sum(accuracies) / seeds
    each = ", ".join(f"{100 * value:.1f}" for value in accuracies)
    print(f"epsilon {epsilon:g}, {split}, {model}: mean {100 * mean:.1f}%  ({each})  {min(seconds):.0f} s", flush=True)
    return {
        "epsilon": epsilon,
        "split": split,
        "model": model,
        "rounds": len(result.rounds),
        "mean": mean,
        "accuracy": accuracies,
        "spent": spent,
        "seconds": seconds,
    }


def measure(
    *,
    epsilons: Sequence[float],
    splits: Sequence[str],
    models: Sequence[str],
    seeds: int,
    gpu: int,
    folder: Path | None,
    results: Path,
) -> None:
    """Run every combination and keep each row as soon as it is there."""
    rows = []
    for epsilon, split, model in itertools.product(epsilons, splits, models):
        rows.append(_row(epsilon, split, model, seeds=seeds, gpu=gpu, folder=folder))
        keep(rows, results)
