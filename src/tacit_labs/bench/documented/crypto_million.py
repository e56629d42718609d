"""Large jobs on all cores with the backend of this process: a million floats, and the sum of a hundred vectors.

A 2048-bit key, floats of 24 bits, wall seconds, best of three.
"""

from __future__ import annotations

import os
from typing import Any

from tacit.crypto import paillier
from tacit.crypto.backend import backend
from tacit.randomness import Randomness
from tacit_labs.bench.documented.common import best


def measure() -> dict[str, Any]:
    """Return the seconds of all jobs."""
    public, private = paillier.generate(bits=2048)
    values = 0.1 * Randomness.of(seed=0).stream("values").normal(size=1_000_000)
    public.encrypt(values[:1000])  # builds the tables
    encrypted = public.encrypt(values)
    frames = [public.encrypt(values[:21_840]).to_bytes() for _ in range(100)]

    def summed(*, at_the_sum: bool) -> None:
        vectors = [paillier.CiphertextVector.from_bytes(data, public, units=not at_the_sum) for data in frames]
        paillier.total(vectors, check_units=at_the_sum)

    return {
        "backend": backend().name,
        "cores": os.cpu_count(),
        "encrypt a million": best(lambda: public.encrypt(values), 3),
        "decrypt a million": best(lambda: private.decrypt(encrypted), 3),
        "sum of 100, each vector validated": best(lambda: summed(at_the_sum=False), 3),
        "sum of 100, units validated at the sum": best(lambda: summed(at_the_sum=True), 3),
    }
