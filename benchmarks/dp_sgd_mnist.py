"""Accuracy of DP-SGD on MNIST: every recipe in examples/dp-sgd, three seeds each.

    python benchmarks/dp_sgd_mnist.py [--gpu 0] [--seeds 3] [--only mnist-epsilon-3]

Results go to benchmarks/results/dp_sgd_mnist.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from dp_mnist import ROOT, measure

RESULTS = ROOT / "benchmarks" / "results" / "dp_sgd_mnist.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", type=int, default=-1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", action="append")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = []
    for path in sorted((ROOT / "examples" / "dp-sgd").glob("*.yaml")):
        if options.only and path.stem not in options.only:
            continue
        rows.append(measure(path, options.seeds, gpu=options.gpu))
        options.results.parent.mkdir(exist_ok=True)
        options.results.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
