"""Time the native core against gmpy2, operation by operation, in one run.

Moduli are squares, as Paillier's are: 4096 bits are n^2 of a 2048-bit key, and encryption with the public key takes
exponents of a quarter of that; 2048 bits are p^2 of the same key, whose holder encrypts and decrypts, once for each
of two primes, with exponents of half that length. Every figure is the best of several turns, and the backends take
turns, so that a busy machine hurts both. Times of one thread are the processor's, times of all threads the clock's.
gmpy2 multiplies in one thread whatever it is given.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from tacit.crypto import native
from tacit.crypto.gmp import GmpBackend
from tacit.crypto.native import NativeBackend
from tacit.crypto.primes import random_prime
from tacit.crypto.ring import Backend, random_below
from tacit.errors import DeviceError
from tacit.limits import cores
from tacit_labs.bench import machine

SIZES = [2048, 3072, 4096, 6144]
ROWS = 336  # 42 groups of eight; the MNIST network's vector is 331 ciphertexts
TURNS = 5
_HEADS = ("gmpy2", "native", "ratio", "gmpy2, all", "native, all", "ratio")

Job = Callable[[], object]


def _jobs(backend: Backend, root: int) -> dict[str, tuple[int, Job]]:
    """Return for every operation how many rows it makes, and the operation."""
    ring, bits = backend.ring(root * root), root.bit_length()
    few = 40  # powers are slow with gmpy2
    left, right = (random_below(root * root, ROWS) for _ in range(2))
    messages = random_below(root, ROWS)
    multiples = ring.affine([(messages, root)], 0)
    short, long = random_below(1 << (bits // 2), ROWS), random_below(1 << bits, ROWS)
    vectors = [random_below(root * root, ROWS) for _ in range(4)] * 25
    public, holder = ring.table(3, bits=bits // 2), ring.table(3, bits=bits)
    return {
        "parse and write": (ROWS, lambda: ring.product([left])),
        "multiply": (ROWS, lambda: ring.multiply(left, right)),
        "product of 100 vectors": (100 * ROWS, lambda: ring.product(vectors)),
        "(1 + m n) times noise": (ROWS, lambda: ring.affine([(messages, root)], 1, times=left)),
        "inverse": (ROWS, lambda: ring.inverse(left)),
        "table, exponents of 1/4 length": (ROWS, lambda: public.powers(short)),
        "table, exponents of 1/2 length": (ROWS, lambda: holder.powers(long)),
        "power, secret exponent of 1/2 length": (few, lambda: ring.power(left[:few], root - 1, secret=True)),
        "exact quotient": (ROWS, lambda: backend.quotient(multiples, root)),
    }


def _best(jobs: list[Job], clock: Callable[[], float]) -> list[float]:
    """Return each job's best time, the jobs taking turns."""
    best = [float("inf")] * len(jobs)
    for _ in range(TURNS):
        for place, job in enumerate(jobs):
            start = clock()
            job()
            best[place] = min(best[place], clock() - start)
    return best


def _rows(size: int) -> list[dict[str, Any]]:
    """Return every operation modulo a square of ``size`` bits."""
    root = random_prime(size // 2)
    everywhere = os.sched_getaffinity(0)
    jobs = {name: _jobs(backend, root) for name, backend in (("gmpy2", GmpBackend()), ("native", NativeBackend()))}
    found = []
    for operation, (rows, _) in jobs["native"].items():
        pair = [jobs[name][operation][1] for name in ("gmpy2", "native")]
        try:
            os.sched_setaffinity(0, {min(everywhere)})
            one = _best(pair, time.process_time)
        finally:
            os.sched_setaffinity(0, everywhere)
        every = _best(pair, time.perf_counter)
        found.append(
            {
                "bits": size,
                "operation": operation,
                "gmpy2_us": round(one[0] / rows * 1e6, 3),
                "native_us": round(one[1] / rows * 1e6, 3),
                "ratio": round(one[0] / one[1], 2),
                "gmpy2_all_cores_us": round(every[0] / rows * 1e6, 3),
                "native_all_cores_us": round(every[1] / rows * 1e6, 3),
                "ratio_all_cores": round(every[0] / every[1], 2),
            }
        )
    return found


def measure(*, quick: bool) -> dict[str, Any]:
    """Return the machine and, for every size and operation, the microseconds per row; quick is 4096 bits alone."""
    if obstacle := native.why_not():
        raise DeviceError(f"The native backend can't run: {obstacle}.")
    rows = [row for size in ([4096] if quick else SIZES) for row in _rows(size)]
    here = {"processor": machine.describe().processor, "cores": cores(), "load": round(os.getloadavg()[0], 1)}
    return {"machine": here, "rows_a_vector": ROWS, "results": rows}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows for the terminal: microseconds per row on one thread, and on all cores."""
    lines = [f"{'bits':>4}  {'operation':38}" + "".join(f"{head:>12}" for head in _HEADS)]
    for row in rows:
        bits, operation, *figures = row.values()
        lines.append(f"{bits:>4}  {operation:38}" + "".join(f"{figure:>12}" for figure in figures))
    return "\n".join(lines)
