"""What sums under masks cost, beside Flower's SecAgg+, Paillier and TenSEAL's CKKS.

    python benchmarks/masks.py [--quick] [--part rounds]... [--peers-python .bench/tenseal/bin/python]

Results go to benchmarks/results/masks.json; parts that were not asked for stay as they are there.
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
    keep(known | measure(quick=options.quick, parts=options.part or PARTS, pythons=options.peers_python), path)


if __name__ == "__main__":
    main()
