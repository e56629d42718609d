"""The default run on MNIST, seed by seed, and what server rates other than the default give on three splits.

    python benchmarks/defaults.py [--seeds 5] [--splits]

Results go to benchmarks/results/defaults.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tacit_labs.bench.documented.common import keep
from tacit_labs.bench.documented.defaults import measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--splits", action="store_true", help="also compare server rates on three splits")
    options = parser.parse_args()
    found = measure(seeds=options.seeds, splits=options.splits)
    keep(found, Path(__file__).parent / "results" / "defaults.json")


if __name__ == "__main__":
    main()
