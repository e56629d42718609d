"""Accuracy of private learning on scattering features of MNIST: every recipe in examples/dp-features, three seeds each.

    python benchmarks/dp_features.py [--gpu 0] [--seeds 3] [--only iid-epsilon-8]

Results go to benchmarks/results/dp_features.json. On a GPU a federation takes some 80 seconds, one data holder five.
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
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results" / "dp_features.json")
    options = parser.parse_args()
    recipes = ROOT / "examples" / "dp-features"
    measure(recipes, seeds=options.seeds, gpu=options.gpu, only=options.only, results=options.results)


if __name__ == "__main__":
    main()
