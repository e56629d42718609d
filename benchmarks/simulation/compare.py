"""Seconds per round of Tacit, a student's loop, Flower and pfl-research, side by side on the same cores.

    python benchmarks/simulation/compare.py [--quick] [--repeats 3] [--job device] [--peer student]

What `tacit bench simulation` measures, with the peers' environments of environments.md where they are there. Results
go to benchmarks/results/simulation.json and simulation.png; the quick form writes nothing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tacit_labs.bench.files import write
from tacit_labs.bench.simulation.peers.jobs import JOBS
from tacit_labs.bench.simulation.run import PEERS, measure
from tacit_labs.bench.simulation.table import table

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, about a minute; writes nothing")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--job", action="append", choices=list(JOBS))
    parser.add_argument("--peer", action="append", choices=list(PEERS))
    options = parser.parse_args()
    results = measure(
        quick=options.quick,
        jobs=options.job or list(JOBS),
        peers=options.peer or list(PEERS),
        repeats=options.repeats,
        peers_python=[str(path) for path in sorted((ROOT / ".bench").glob("*/bin/python"))],
        progress=lambda what: print(what, file=sys.stderr, flush=True),
    )
    print(table(results))
    if not options.quick:
        for path in write([results], RESULTS, page=False):
            print(f"written to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
