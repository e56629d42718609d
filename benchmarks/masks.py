"""What sums under masks cost, beside Flower's SecAgg+, Paillier and TenSEAL's CKKS.

    python benchmarks/masks.py [--quick] [--part rounds]... [--peers-python .bench/tenseal/bin/python]

Results go to benchmarks/results/masks.json, part by part; those that were not asked for stay as they are there. All of
them take a quarter of an hour on a quiet core. --quick tries whether it runs, and writes nothing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tacit_labs.bench.documented.common import keep
from tacit_labs.bench.documented.masks import PARTS, measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--peers-python", action="append", default=[])
    options = parser.parse_args()
    path = Path(__file__).parent / "results" / "masks.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    for part in options.part or PARTS:
        known |= measure(quick=options.quick, parts=[part], pythons=options.peers_python)
        print(part, known[part], flush=True)
        if not options.quick:
            keep(known, path)


if __name__ == "__main__":
    main()
