"""What Flower's engine costs: rounds without training, and the same job in one process and on Flower's simulation.

    python benchmarks/flower.py [--quick] [--only start|overhead|job]

Results: benchmarks/results/flower.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tacit_labs.bench.documented.common import keep
from tacit_labs.bench.documented.flower import measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=["start", "overhead", "job"])
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results" / "flower.json")
    options = parser.parse_args()
    keep(measure(quick=options.quick, only=options.only), options.results)


if __name__ == "__main__":
    main()
