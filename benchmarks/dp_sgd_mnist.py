"""Accuracy of DP-SGD on MNIST: every recipe in examples/dp-sgd, three seeds each.

    python benchmarks/dp_sgd_mnist.py [--gpu 0] [--seeds 3] [--only mnist-epsilon-3]

Results go to benchmarks/results/dp_sgd_mnist.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tacit_labs.bench.documented.recipes import measure

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", type=int, default=-1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results" / "dp_sgd_mnist.json")
    options = parser.parse_args()
    recipes = ROOT / "examples" / "dp-sgd"
    measure(recipes, seeds=options.seeds, gpu=options.gpu, only=options.only, results=options.results)


if __name__ == "__main__":
    main()
