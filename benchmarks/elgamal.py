"""Safe primes and ElGamal, against OpenSSL, Python integers and the way safe primes are found in teaching code.

    python benchmarks/elgamal.py [--quick]

Results go to benchmarks/results/elgamal.json; the quick form writes nothing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tacit_labs.bench.documented.common import keep
from tacit_labs.bench.documented.elgamal import measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller samples, under a minute; writes nothing")
    options = parser.parse_args()
    found = measure(quick=options.quick)
    print(json.dumps(found, indent=2))
    if not options.quick:
        keep(found, Path(__file__).parent / "results" / "elgamal.json")


if __name__ == "__main__":
    main()
