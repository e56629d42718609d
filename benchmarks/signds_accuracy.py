"""Accuracy of SignDS on MNIST beside plain FedAvg with the same rounds and training.

    python benchmarks/signds_accuracy.py [--gpu 0] [--seeds 3] [--only documented] [--rounds 300]

Results go to benchmarks/results/signds_accuracy.json, a row as soon as it is there.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tacit_labs.bench.documented.sign_and_noise import measure, signds_jobs

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "signds_accuracy.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", type=int, default=-1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--set", action="append", default=[], help="section.key=value over every job, for trials")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    changes = [{"gpu": options.gpu}]
    changes += [{"federate": {"rounds": options.rounds}}] if options.rounds else []
    changes += [{"data": {"folder": options.data_dir}}] if options.data_dir else []
    changes += [{key: json.loads(value)} for key, _, value in (word.partition("=") for word in options.set)]
    measure(
        signds_jobs(ROOT / "examples" / "signds-mnist"),
        seeds=options.seeds,
        only=options.only,
        changes=changes,
        results=options.results or RESULTS,
    )


if __name__ == "__main__":
    main()
