"""How the cost of a run in one process grows with clients, parameters and rounds, and Flower's simulation on Ray.

    python benchmarks/scale.py [--case population|cohort|parameters|rounds|ray]...

Each case is measured in a process of its own. Results go to benchmarks/results/scale.json case by case, and the tables
of docs/scale.md are made anew; kinds that were not asked for stay as they are. All of it takes some five minutes on two
quiet cores.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tacit_labs.bench.documented.scale import CASES, all_of

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(CASES))
    options = parser.parse_args()
    results, page = ROOT / "benchmarks" / "results" / "scale.json", ROOT / "docs" / "scale.md"
    all_of(options.case or list(CASES), results=results, page=page)


if __name__ == "__main__":
    main()
