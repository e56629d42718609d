"""What DP adds to a round: 200 of 1,000 clients, plain and private rounds in turn in one process.

    python benchmarks/dp_overhead.py

Results go to benchmarks/results/dp_overhead.json. Evaluation is left out; accounting, clipping and noise are in.
Amplification is off in the private rounds: with it the seconds of single rounds are not told.
"""

from __future__ import annotations

from pathlib import Path

from tacit_labs.bench.documented.common import keep
from tacit_labs.bench.documented.dp_overhead import measure


def main() -> None:
    keep(measure(), Path(__file__).parent / "results" / "dp_overhead.json")


if __name__ == "__main__":
    main()
