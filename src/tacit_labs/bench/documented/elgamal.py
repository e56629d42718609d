"""Safe primes and ElGamal, against OpenSSL, Python integers and the way safe primes are found in teaching code.

Seconds are of one thread's processor time where nothing else is said, so
that a busy machine changes them little; `wall` is by the clock. The teaching code (random odd q, trial division by
the primes below 1000, Miller-Rabin in Python integers until q and 2q + 1 pass) would take minutes: candidates are timed
as a sample and scaled by the number it needs on average (Hardy and Littlewood's density). The scheme in Python integers
is two built-in `pow` with exponents below p. Ours uses `short` exponents of 256 bits by default; the rows with equal
exponents are there as well.
"""

from __future__ import annotations

import json
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tacit.crypto import elgamal, native
from tacit.crypto.backend import VARIABLE
from tacit.crypto.elgamal.counts import DiscreteLog, powers
from tacit.crypto.groups import named
from tacit.crypto.primes import safe_prime
from tacit.limits import cores
from tacit.randomness import system_below
from tacit_labs.baselines.elgamal import safe_prime_seconds
from tacit_labs.bench.documented.common import in_a_child, processor, wall

_MODULE = "tacit_labs.bench.documented.elgamal"


def _children(action: Callable[[], object]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    action()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def openssl_safe_prime(bits: int, *, rounds: int) -> dict[str, float] | None:
    """Return the mean seconds of OpenSSL's command, or None where it is not installed."""
    if shutil.which("openssl") is None:
        return None
    command = ["openssl", "prime", "-generate", "-safe", "-bits", str(bits)]
    walls: list[float] = []

    def all_rounds() -> None:
        walls.extend(wall(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(rounds))

    spent = _children(all_rounds)
    return {"seconds": spent / rounds, "wall": statistics.mean(walls)}


def our_safe_prime(bits: int, *, rounds: int, workers: int | None) -> dict[str, float]:
    """Return the mean seconds of ours, and what they would be with the mean number of candidates."""
    tested: list[int] = []
    expected = [0.0]

    def one() -> int:
        last = [0]

        def look(done: int, mean: float) -> None:
            last[0], expected[0] = done, mean

        safe_prime(bits, workers=workers, progress=look)
        return last[0]

    start = time.perf_counter()
    spent = processor(lambda: tested.extend(one() for _ in range(rounds)))
    lasted = time.perf_counter() - start
    scale = expected[0] / sum(tested)
    return {
        "seconds": spent / rounds,
        "wall": lasted / rounds,
        "candidates": sum(tested) / rounds,
        "expected_candidates": expected[0],
        "seconds_at_expected": spent * scale,
        "wall_at_expected": lasted * scale,
    }


def safe_primes(*, bits: int = 1024, rounds: int = 20, sample: int = 2000) -> dict[str, Any]:
    """Compare the ways to a safe prime."""
    result: dict[str, Any] = {"bits": bits, "rounds": rounds}
    result["ours_one_thread"] = our_safe_prime(bits, rounds=rounds, workers=1)
    result["ours_all_cores"] = our_safe_prime(bits, rounds=rounds, workers=None)
    result["openssl"] = openssl_safe_prime(bits, rounds=rounds)
    result["teaching_code_scaled"] = safe_prime_seconds(bits, sample=sample)
    ours = result["ours_one_thread"]["seconds"]
    result["faster_than_teaching_code"] = result["teaching_code_scaled"] / ours
    if result["openssl"] is not None:
        result["faster_than_openssl"] = result["openssl"]["seconds"] / ours
        result["faster_than_openssl_wall_all_cores"] = result["openssl"]["wall"] / result["ours_all_cores"]["wall"]
    return result


def python_integers(bits: int, *, count: int, exponent_bits: int | None = None) -> dict[str, float]:
    """Return the seconds of one encryption and one decryption with `pow` of Python integers."""
    group = named(f"ffdhe{bits}")
    p, g = group.p, group.g
    bound = 1 << exponent_bits if exponent_bits else p - 1
    x = system_below(bound)
    y = pow(g, x, p)
    ciphertexts: list[tuple[int, int]] = []

    def encrypt() -> None:
        for _ in range(count):
            r = system_below(bound)
            ciphertexts.append((pow(g, r, p), 12345 * pow(y, r, p) % p))

    def decrypt() -> None:
        for first, second in ciphertexts:
            assert second * pow(pow(first, x, p), -1, p) % p == 12345

    return {"encrypt": processor(encrypt) / count, "decrypt": processor(decrypt) / count}


def scheme(bits: int, *, exponents: elgamal.Exponents, count: int, decrypted: int) -> dict[str, float]:
    """Return the seconds an operation of ours takes in a batch, on one thread; the table is built before."""
    public, private = elgamal.generate(f"ffdhe{bits}", exponents=exponents)
    messages = [1 + system_below(public.group.q) for _ in range(count)]
    single = processor(lambda: public.encrypt(messages[0]))
    tables = processor(lambda: public.encrypt_many(messages[:128], workers=1))
    made: list[elgamal.Ciphertext] = []
    encrypt = processor(lambda: made.append(public.encrypt_many(messages, workers=1)))
    (ciphertext,) = made
    part = elgamal.Ciphertext(key=public, first=ciphertext.first[:decrypted], second=ciphertext.second[:decrypted])
    opened: list[list[int]] = []
    decrypt = processor(lambda: opened.append(private.decrypt_many(part, workers=1)))
    assert opened[0] == messages[:decrypted]
    content = ciphertext.to_bytes()
    return {
        "exponent_bits": elgamal.exponent_bits(public.group, exponents),
        "encrypt_one_without_tables": single,
        "tables_once": tables,
        "encrypt": encrypt / count,
        "decrypt": decrypt / decrypted,
        "multiply": processor(lambda: ciphertext * ciphertext) / count,
        "rerandomise": processor(lambda: ciphertext.rerandomised(workers=1)) / count,
        "parse": processor(lambda: public.parse(content)) / count,
        "bytes": len(content) / count,
    }


def counts(*, bits: int = 2048, bounds: tuple[int, ...] = (24, 32, 40)) -> dict[str, dict[str, float]]:
    """Return the seconds of baby steps (once) and giant steps (a value): the mean and the worst case."""
    group = named(f"ffdhe{bits}")
    result = {}
    for size in bounds:
        made: list[DiscreteLog] = []
        table = processor(lambda size=size, made=made: made.append(DiscreteLog(group=group, bound=1 << size)))  # type: ignore[misc]  # a lambda's defaults have no types
        (search,) = made
        rows = powers(np.array([1 << size, 1 << (size - 1)]), group)
        search.find(powers([1], group))
        times = [processor(partial(search.find, rows[row : row + 1])) for row in (0, 1)]
        result[f"2^{size}"] = {"table_once": table, "worst": times[0], "mean": times[1]}
    return result


def ours(*, quick: bool) -> dict[str, Any]:
    """Return the figures of this process's backend."""
    few = {"count": 500, "decrypted": 50} if quick else {"count": 4000, "decrypted": 500}
    return {
        "ffdhe2048 short": scheme(2048, exponents="short", **few),
        "ffdhe2048 full": scheme(2048, exponents="full", **few),
        "ffdhe3072 short": scheme(3072, exponents="short", **few),
        "counts 2048": counts(bounds=(24, 32) if quick else (24, 32, 40)),
    }


def measure(*, quick: bool) -> dict[str, Any]:
    """Return all figures."""
    python = python_integers(2048, count=3 if quick else 20)
    python_short = python_integers(2048, count=10 if quick else 50, exponent_bits=256)
    obstacle = native.why_not()
    result: dict[str, Any] = {
        "cores": cores(),
        "native backend": obstacle or "runs",
        "safe primes": safe_primes(rounds=5 if quick else 20, sample=500 if quick else 4000),
        "python integers 2048": {"full exponents": python, "256-bit exponents": python_short},
    }
    for name in ("gmpy2",) if obstacle else ("gmpy2", "native"):
        figures = in_a_child(_MODULE, *(["--quick"] if quick else []), settings={VARIABLE: name})
        short, full = figures["ffdhe2048 short"], figures["ffdhe2048 full"]
        figures["times faster than python integers at 2048"] = {
            f"{operation}, {what}": one[operation] / other[operation]
            for operation in ("encrypt", "decrypt")
            for what, one, other in (
                ("ours short, python full", python, short),
                ("both 256-bit", python_short, short),
                ("both full", python, full),
            )
        }
        result[name] = figures
    return result


if __name__ == "__main__":  # in a child, with the backend that its environment names
    print(json.dumps(ours(quick="--quick" in sys.argv)))
