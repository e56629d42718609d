"""Large jobs on all cores with the backend of this process: a million floats, and the sum of a hundred vectors.

    [TACIT_CRYPTO_BACKEND=gmpy2|native] python benchmarks/crypto_million.py

A 2048-bit key, floats of 24 bits, wall seconds, best of three. Results go to benchmarks/results/crypto_million.json.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tacit.crypto import paillier
from tacit.crypto.backend import backend

RESULTS = Path(__file__).parent / "results" / "crypto_million.json"


def best(action: Callable[[], object], repeats: int = 3) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    public, private = paillier.generate(bits=2048)
    values = np.random.default_rng(0).normal(size=1_000_000) * 0.1
    public.encrypt(values[:1000])  # builds the tables
    encrypted = public.encrypt(values)
    frames = [public.encrypt(values[:21_840]).to_bytes() for _ in range(100)]

    def summed(*, at_the_sum: bool) -> None:
        vectors = [paillier.CiphertextVector.from_bytes(data, public, units=not at_the_sum) for data in frames]
        paillier.total(vectors, check_units=at_the_sum)

    found = {
        "backend": backend().name,
        "cores": os.cpu_count(),
        "encrypt a million": best(lambda: public.encrypt(values)),
        "decrypt a million": best(lambda: private.decrypt(encrypted)),
        "sum of 100, each vector validated": best(lambda: summed(at_the_sum=False)),
        "sum of 100, units validated at the sum": best(lambda: summed(at_the_sum=True)),
    }
    print(json.dumps(found, indent=2))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
