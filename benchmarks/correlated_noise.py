"""Accuracy under correlated noise beside independent noise and secret sampling, on scattering features of MNIST.

    python benchmarks/correlated_noise.py measure [--seeds 3]    # settings on held-out training images, then tests
    python benchmarks/correlated_noise.py draw                   # docs/figures/frontier-correlated-noise.png

Results go to benchmarks/results/correlated_noise.json; what is there already is not computed again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tacit_labs.bench.documented import correlated_noise

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "draw"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results" / "correlated_noise.json")
    options = parser.parse_args()
    if options.what == "measure":
        correlated_noise.measure(options.results, seeds=range(1, options.seeds + 1))
    else:
        correlated_noise.draw(options.results, ROOT / "docs" / "figures")


if __name__ == "__main__":
    main()
