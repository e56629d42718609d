"""A DP-SGD step beside a plain step and Opacus's modes: the 21,840-parameter CNN, batch 256, all in one process.

    python benchmarks/dp_sgd.py [--device cuda] [--threads 1] [--batch 256] [--rounds 40] [--results FILE]

Ratios, each the best of interleaved repetitions. Opacus is not a dependency of Tacit: without it its lines are
missing and that is said. To have them, run this file with an environment that has both (see below); it imports the
working tree's `src` where Tacit itself is not installed there:

    python -m venv .bench/opacus
    .bench/opacus/bin/pip install --constraint constraints.txt torch==2.13.0
    .bench/opacus/bin/pip install --constraint constraints.txt opacus
    .bench/opacus/bin/python benchmarks/dp_sgd.py
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from tacit_labs.bench.documented.common import keep  # noqa: E402 - after the path is set
from tacit_labs.bench.documented.dp_sgd import measure  # noqa: E402 - after the path is set

RESULTS = {"cpu": "dp_sgd.json", "cuda": "dp_sgd_gpu.json"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=list(RESULTS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    found = measure(device=options.device, threads=options.threads, batch=options.batch, rounds=options.rounds)
    keep(found, options.results or ROOT / "benchmarks" / "results" / RESULTS[options.device])


if __name__ == "__main__":
    main()
