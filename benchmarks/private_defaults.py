"""What private modes reach on MNIST when they are told nothing else, and how long they take.

    python benchmarks/private_defaults.py [--seeds 3] [dp "paillier --dp" local-dp dp-sgd signds]
    python benchmarks/private_defaults.py --quick    # one round of each, writes nothing
    python benchmarks/private_defaults.py --page-only    # only the table, from the results that are there

Results go to benchmarks/results/private-defaults.json, row by row, and from there into the table of docs/features.md,
which a test compares with them. Seconds are by the clock; a mode's first run computes its features, later
ones find them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tacit.errors import TacitError
from tacit_labs.bench.documented.private_defaults import MODES, measure, rewrite, table

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modes", nargs="*", metavar="MODE", help=", ".join(MODES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results" / "private-defaults.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "features.md")
    parser.add_argument("--quick", action="store_true", help="one round and one seed; writes nothing")
    parser.add_argument("--page-only", action="store_true", help="run nothing")
    options = parser.parse_args()
    try:
        if options.quick:
            print(table(measure(options.modes, seeds=1, results=None, rounds=1)))
            return
        if not options.page_only:
            measure(options.modes, seeds=options.seeds, results=options.results)
        rewrite(options.page, options.results)
    except TacitError as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
