"""Paillier and ElGamal side by side with phe, lightphe, pypaillier, TenSEAL, OpenSSL and Python integers.

    python benchmarks/crypto.py [--quick] [--json] [--peers-python .bench/peers/bin/python]

The Paillier part is what `tacit bench crypto` runs; ElGamal and safe primes (elgamal.py) come with the full form.
Results go to benchmarks/results/crypto.json and crypto.png; the quick form writes nothing. Peers are those of
`pip install tacit[bench]`, here or in the environment of --peers-python; absent ones are left out and named.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from tacit_labs.bench.crypto.run import measure
from tacit_labs.bench.crypto.table import table
from tacit_labs.bench.documented import elgamal
from tacit_labs.bench.files import write

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller samples, under a minute; writes nothing")
    parser.add_argument("--json", action="store_true", help="print the figures instead of the table")
    parser.add_argument("--peers-python", help="the interpreter of an environment that has the peers")
    options = parser.parse_args()
    results = measure(
        quick=options.quick,
        peers_python=options.peers_python,
        progress=lambda what: print(what, file=sys.stderr, flush=True),
    )
    if not options.quick:
        print("ElGamal and safe primes", file=sys.stderr, flush=True)
        results = replace(results, elgamal=elgamal.measure(quick=False))
        write([results], RESULTS, page=False)
    print(json.dumps(results.to_dict(), indent=2) if options.json else table(results))
    if results.elgamal is not None and not options.json:
        print("\nElGamal and safe primes\n" + json.dumps(results.elgamal, indent=2))


if __name__ == "__main__":
    main()
