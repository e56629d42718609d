"""Run one side of the simulation benchmark; the last line of standard output is its answer as JSON."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from tacit_labs.bench.simulation.peers.jobs import JOBS

SIDES = ("student", "flower", "pfl", "ours")


def main() -> None:
    """Parse, run, print.

    The side's module is imported by its name: what is defined in ``__main__`` would travel to Flower's actors by value
    with every message and arrive with empty caches.
    """
    parser = argparse.ArgumentParser(prog="python -m tacit_labs.bench.simulation.peers", description=__doc__)
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("--job", choices=list(JOBS), default="device")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, required=True, help="npz with uint8 images (n, 28, 28) and their labels")
    parser.add_argument("--gpu", type=int, help="train on this GPU; Tacit only")
    options = parser.parse_args()
    side = import_module(f"tacit_labs.bench.simulation.peers.{options.side}")
    # Workers may run in another folder. A worker of pfl that does not report answers None.
    device = {} if options.gpu is None else {"gpu": options.gpu}
    answer = side.run(JOBS[options.job], options.rounds, str(options.data.resolve()), **device)
    if answer is not None:
        rounded = [round(seconds, 4) for seconds in answer.seconds]
        print(json.dumps(asdict(answer) | {"seconds": rounded}), flush=True)


if __name__ == "__main__":
    main()
