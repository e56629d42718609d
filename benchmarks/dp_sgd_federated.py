"""Mode dp-sgd with nothing set but a budget, on MNIST: what the defaults learn at epsilon 1, 3 and 8.

    python benchmarks/dp_sgd_federated.py [--gpu 0] [--seeds 3] [--epsilon 3] [--split iid] [--model cnn]
                                          [--data-dir DIR]

Results go to benchmarks/results/dp_sgd_federated.json. Only `--epsilon`, `--split` and `--model` can be given several
times; every combination is run.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import tacit

RESULTS = Path(__file__).parent / "results" / "dp_sgd_federated.json"


def measure(epsilon: float, split: str, model: str, *, seeds: int, gpu: int, folder: Path | None) -> dict[str, Any]:
    """Run the defaults once a seed and return the last accuracies."""
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
        spent.append(result.privacy.epsilon)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", type=int, default=-1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilon", type=float, action="append")
    parser.add_argument("--split", action="append")
    parser.add_argument("--model", action="append")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = []
    chosen = (options.epsilon or [1.0, 3.0, 8.0], options.split or ["iid"], options.model or ["cnn"])
    for epsilon, split, model in itertools.product(*chosen):
        rows.append(measure(epsilon, split, model, seeds=options.seeds, gpu=options.gpu, folder=options.data_dir))
        options.results.parent.mkdir(exist_ok=True)
        options.results.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
