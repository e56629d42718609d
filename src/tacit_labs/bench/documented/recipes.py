"""Accuracy of a folder of recipes, several seeds each: ``examples/dp-mnist`` and ``examples/dp-sgd``."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tacit
from tacit.config.run_config import from_yaml
from tacit_labs.bench.documented.common import keep


def _row(path: Path, seeds: int, gpu: int) -> dict[str, Any]:
    """Run a recipe with several seeds."""
    results = [tacit.run(tacit.RunConfig(**from_yaml(path) | {"gpu": gpu}, seed=seed)) for seed in range(1, seeds + 1)]
    accuracies = [result.test_accuracy or 0.0 for result in results]
    private = results[0].privacy is not None
    row: dict[str, Any] = {
        "recipe": path.stem,
        "epsilon": max(result.claimed.epsilon for result in results) if private else None,
        "delta": results[0].claimed.delta if private else None,
        "accountant": results[0].claimed.accountant if private else None,
        "neighbours": results[0].claimed.neighbours if private else None,
        "accuracy": accuracies,
        "mean": statistics.mean(accuracies),
        "rounds": len(results[0].rounds),
        "seconds": results[0].seconds,
        "device": results[0].device,
    }
    each = ", ".join(f"{100 * value:.2f}" for value in accuracies)
    epsilon = f"epsilon {row['epsilon']:.4f}" if private else "no privacy"
    print(f"{path.stem:18} {epsilon}  mean {100 * row['mean']:.2f}%  ({each})", flush=True)
    return row


def measure(folder: Path, *, seeds: int, gpu: int, only: Sequence[str], results: Path) -> None:
    """Run the recipes of a folder, or ``only`` those, and keep each row as soon as it is there."""
    rows = []
    for path in sorted(folder.glob("*.yaml")):
        if not only or path.stem in only:
            rows.append(_row(path, seeds, gpu))
            keep(rows, results)
