"""Skellam noise from the clients against Gaussian noise from a trusted server: accuracy on MNIST at the same epsilon.

    python benchmarks/encrypted_dp.py [--gpu 0] [--seeds 3] [--epsilon 8] [--rounds 10] [--jobs 1]

Results go to benchmarks/results/encrypted_dp.json. On two cores a run takes three minutes with Gaussian noise and ten
with Skellam noise, because every client makes its own.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tacit_labs.bench.documented.encrypted_dp import SIDES, Case, measure

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "encrypted_dp.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", type=int, default=-1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilon", type=float, action="append", help="3 and 8 if left out")
    parser.add_argument("--rounds", type=int, help="fewer than the recipe's, for a first look")
    parser.add_argument("--smallest", type=int, help="the smallest cohort; all clients if left out")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--folder", help="where the data are")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    cases = [
        Case(
            side=side,
            recipes=ROOT / "examples" / "dp-mnist",
            epsilon=epsilon,
            seed=seed,
            gpu=options.gpu,
            rounds=options.rounds,
            smallest=options.smallest,
            folder=options.folder,
        )
        for side in reversed(SIDES)  # the longer ones first
        for epsilon in options.epsilon or [3.0, 8.0]
        for seed in range(1, options.seeds + 1)
    ]
    measure(cases, at_once=options.jobs, results=options.results)


if __name__ == "__main__":
    main()
