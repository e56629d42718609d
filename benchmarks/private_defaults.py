"""What private modes reach on MNIST when they are told nothing else, and how long they take.

    python benchmarks/private_defaults.py [--seeds 3] [dp "paillier --dp" local-dp dp-sgd signds]

Results go to benchmarks/results/private_defaults.json. Seconds are by the clock and include the features where they are
not in the cache yet.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tacit_labs.bench.documented.private_defaults import MODES, measure

RESULTS = Path(__file__).parent / "results" / "private_defaults.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modes", nargs="*", metavar="MODE", help=", ".join(MODES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    measure(options.modes, seeds=options.seeds, results=options.results)


if __name__ == "__main__":
    main()
