"""What encryption adds to a round: ten clients on this machine's cores, plain and encrypted rounds in turn.

    python benchmarks/encrypted.py [--quick] [--backend gmpy2|native]

Results go to benchmarks/results/encrypted.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tacit_labs.bench.documented.common import keep
from tacit_labs.bench.documented.encrypted import measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--backend", choices=["gmpy2", "native"], action="append")
    options = parser.parse_args()
    found = measure(quick=options.quick, backends=options.backend or ["gmpy2", "native"])
    keep(found, Path(__file__).parent / "results" / "encrypted.json")


if __name__ == "__main__":
    main()
