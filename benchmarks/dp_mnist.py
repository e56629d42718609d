"""Accuracy of client-level DP on MNIST at epsilon 1 to 8: every recipe in examples/dp-mnist, three seeds each.

    python benchmarks/dp_mnist.py [--gpu 0] [--seeds 3] [--only iid-epsilon-8]

Results go to benchmarks/results/dp_mnist.json. On a GPU a run takes about ten seconds, on two cores about four minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import tacit
from tacit.runs.config import from_yaml

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "dp_mnist.json"


def measure(path: Path, seeds: int, **changes: Any) -> dict[str, Any]:
    """Run a recipe with several seeds."""
    results = [tacit.run(tacit.RunConfig(**from_yaml(path) | changes, seed=seed)) for seed in range(1, seeds + 1)]
    accuracies = [result.test_accuracy or 0.0 for result in results]
    row: dict[str, Any] = {
        "recipe": path.stem,
        "epsilon": max(result.privacy.epsilon or float("inf") for result in results),
        "delta": results[0].privacy.delta,
        "accountant": results[0].privacy.accountant,
        "neighbours": results[0].privacy.neighbours,
        "accuracy": accuracies,
        "mean": statistics.mean(accuracies),
        "rounds": len(results[0].rounds),
        "seconds": results[0].seconds,
        "device": results[0].device,
    }
    each = ", ".join(f"{100 * value:.2f}" for value in accuracies)
    print(f"{path.stem:18} epsilon {row['epsilon']:.4f}  mean {100 * row['mean']:.2f}%  ({each})", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", type=int, default=-1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", action="append")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    recipes = sorted((ROOT / "examples" / "dp-mnist").glob("*.yaml"))
    chosen = [path for path in recipes if not options.only or path.stem in options.only]
    rows = []
    for path in chosen:
        rows.append(measure(path, options.seeds, gpu=options.gpu))
        options.results.parent.mkdir(exist_ok=True)
        options.results.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
