"""Large jobs on all cores with the backend of this process: a million floats, and the sum of a hundred vectors.

    [TACIT_CRYPTO_BACKEND=gmpy2|native] python benchmarks/crypto_million.py

A 2048-bit key, floats of 24 bits, wall seconds, best of three. Results go to benchmarks/results/crypto_million.json.
"""

from __future__ import annotations

import json
from pathlib import Path

from tacit_labs.bench.documented.common import keep
from tacit_labs.bench.documented.crypto_million import measure


def main() -> None:
    found = measure()
    print(json.dumps(found, indent=2))
    keep(found, Path(__file__).parent / "results" / "crypto_million.json")


if __name__ == "__main__":
    main()
