"""What it costs that clients prove what they know: beside encryption at a client, beside opening at a key holder.

For both backends of the arithmetic, each in a process of its own: a vector of 21,840 numbers under a key of 3072 bits
is encrypted with and without a proof; ten clients' proofs are checked together; and a part of a decryption is computed,
by a power as long as a share of 3 of 5 (without the search for safe primes). Processor time of one thread, best of
several.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit_labs.bench.documented.common import in_a_child, keep, processor

_MODULE = "tacit_labs.bench.documented.proofs"
LENGTH, BITS, CLIENTS, HOLDERS, REPEATS = 21_840, 3072, 10, 5, 7


def _best(action: Callable[[], object]) -> float:
    return min(processor(action) for _ in range(REPEATS))


def costs() -> dict[str, Any]:
    """Return seconds of one thread, each the best of a few."""
    from tacit.crypto import paillier
    from tacit.crypto.paillier import Layout, knowledge
    from tacit.crypto.ring import random_below, to_integers
    from tacit.crypto.threshold.public import lift

    key, _ = paillier.generate(bits=BITS)
    layout = Layout.floats(length=LENGTH, clip=1.0, bits=24, summands=128, key_bits=BITS)
    packed = layout.packed(random_below(1000, LENGTH)[:, -1].astype("int64"), 1)
    noise = knowledge.KnownNoise(key=key)
    made = [knowledge.encrypted(key, packed, b"", noise=noise, workers=1) for _ in range(CLIENTS)]
    claims = [knowledge.Claim(rows=rows, context=b"", proof=proof) for rows, proof in made]
    share = to_integers(random_below(key.n, 1))[0] | 1 << (BITS - 2)
    exponent = 2 * math.factorial(HOLDERS) * share * lift(HOLDERS)
    bases = key.residues.affine([(claims[0].rows, 1)], 0)
    assert knowledge.unproved(key, claims) == []
    return {
        "ciphertexts": layout.rows,
        "proof_bytes": knowledge.proof_bytes(key),
        "encrypt": _best(lambda: key.encrypt_rows(packed, workers=1)),
        "encrypt_and_prove": _best(lambda: knowledge.encrypted(key, packed, b"", noise=noise, workers=1)),
        "check": _best(lambda: knowledge.unproved(key, claims, known=set(), workers=1)),
        "open": _best(lambda: key.residues.power(bases, exponent, secret=True, workers=1)),
    }


def measure(results: Path) -> None:
    """Measure both backends, keep what was found, and print it."""
    found: dict[str, Any] = {}
    for backend in ("native", "gmpy2"):
        found[backend] = once = in_a_child(_MODULE, settings={"TACIT_CRYPTO_BACKEND": backend, "OMP_NUM_THREADS": "1"})
        keep(found, results)
        print(
            f"{backend}: a proof takes {once['encrypt_and_prove'] / once['encrypt'] - 1:.1%} of encrypting "
            f"{once['ciphertexts']} ciphertexts ({once['encrypt']:.3f} s) and {once['proof_bytes']} bytes; to check "
            f"those of {CLIENTS} clients takes {once['check']:.3f} s, {once['check'] / once['open']:.0%} of a part of "
            f"a decryption ({once['open']:.3f} s)"
        )


if __name__ == "__main__":
    json.dump(costs(), sys.stdout)
