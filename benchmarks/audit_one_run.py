"""Canaries in one run: their bound against a truth that is known, and what they cost the default private run.

    python benchmarks/audit_one_run.py [--runs 200] [--many 10000] [--seeds 5]

Results go to benchmarks/results/audit_one_run.json; runs that are there already are kept.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tacit_labs.bench.documented.audit_one_run import measure

RESULTS = Path(__file__).parent / "results" / "audit_one_run.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--many", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    measure(runs=asked.runs, many=asked.many, seeds=asked.seeds, results=RESULTS)


if __name__ == "__main__":
    main()
