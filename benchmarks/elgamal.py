"""Safe primes and ElGamal, against OpenSSL, Python integers and the way safe primes are found in teaching code.

    python benchmarks/elgamal.py [--quick]

Results go to benchmarks/results/elgamal.json. Seconds are of one thread's processor time where nothing else is said, so
that a busy machine changes them little; `wall` is by the clock. The teaching code (random odd q, trial division by
the primes below 1000, Miller-Rabin in Python integers until q and 2q + 1 pass) would take minutes: candidates are timed
as a sample and scaled by the number it needs on average (Hardy and Littlewood's density). The scheme in Python integers
is two built-in `pow` with exponents below p. Ours uses `short` exponents of 256 bits by default; the rows with equal
exponents are there as well.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import secrets
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tacit.crypto import elgamal, native
from tacit.crypto.backend import VARIABLE
from tacit.crypto.elgamal.discrete_log import DiscreteLog
from tacit.crypto.elgamal.exponential import powers
from tacit.crypto.gmp import cores
from tacit.crypto.groups import named
from tacit.crypto.primes import small_primes
from tacit.crypto.safe_primes import safe_prime

RESULTS = Path(__file__).parent / "results" / "elgamal.json"
TWIN_CONSTANT = 1.3203236316937391


def _processor(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def _wall(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _children(action: Callable[[], object]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    action()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _python_miller_rabin(number: int) -> bool:
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    power = pow(2 + secrets.randbelow(number - 3), odd, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False


def teaching_safe_prime(bits: int, *, sample: int) -> float:
    """Return the mean seconds of the teaching code for one safe prime, from a sample of its candidates."""
    divisors = [prime for prime in small_primes(1000).tolist() if prime > 2]

    def candidates() -> None:
        for _ in range(sample):
            q = secrets.randbits(bits - 1) | 1 | (1 << (bits - 2))
            if all(q % prime for prime in divisors) and _python_miller_rabin(q):
                _python_miller_rabin(2 * q + 1)

    needed = (bits - 1) * bits * math.log(2) ** 2 / TWIN_CONSTANT / 2  # of odd numbers
    return _processor(candidates) / sample * needed


def openssl_safe_prime(bits: int, *, rounds: int) -> dict[str, float] | None:
    """Return the mean seconds of OpenSSL's command, or None where it is not installed."""
    if shutil.which("openssl") is None:
        return None
    command = ["openssl", "prime", "-generate", "-safe", "-bits", str(bits)]
    walls: list[float] = []

    def all_rounds() -> None:
        walls.extend(_wall(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(rounds))

    processor = _children(all_rounds)
    return {"seconds": processor / rounds, "wall": statistics.mean(walls)}


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

    wall = time.perf_counter()
    processor = _processor(lambda: tested.extend(one() for _ in range(rounds)))
    wall = time.perf_counter() - wall
    scale = expected[0] / sum(tested)
    return {
        "seconds": processor / rounds,
        "wall": wall / rounds,
        "candidates": sum(tested) / rounds,
        "expected_candidates": expected[0],
        "seconds_at_expected": processor * scale,
        "wall_at_expected": wall * scale,
    }


def safe_primes(*, bits: int = 1024, rounds: int = 20, sample: int = 2000) -> dict[str, Any]:
    """Compare the ways to a safe prime."""
    result: dict[str, Any] = {"bits": bits, "rounds": rounds}
    result["ours_one_thread"] = our_safe_prime(bits, rounds=rounds, workers=1)
    result["ours_all_cores"] = our_safe_prime(bits, rounds=rounds, workers=None)
    result["openssl"] = openssl_safe_prime(bits, rounds=rounds)
    result["teaching_code_scaled"] = teaching_safe_prime(bits, sample=sample)
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
    x = secrets.randbelow(bound)
    y = pow(g, x, p)
    ciphertexts: list[tuple[int, int]] = []

    def encrypt() -> None:
        for _ in range(count):
            r = secrets.randbelow(bound)
            ciphertexts.append((pow(g, r, p), 12345 * pow(y, r, p) % p))

    def decrypt() -> None:
        for first, second in ciphertexts:
            assert second * pow(pow(first, x, p), -1, p) % p == 12345

    return {"encrypt": _processor(encrypt) / count, "decrypt": _processor(decrypt) / count}


def scheme(bits: int, *, exponents: elgamal.Exponents, count: int, decrypted: int) -> dict[str, float]:
    """Return the seconds an operation of ours takes in a batch, on one thread; the table is built before."""
    public, private = elgamal.generate(f"ffdhe{bits}", exponents=exponents)
    messages = [1 + secrets.randbelow(public.group.q) for _ in range(count)]
    single = _processor(lambda: public.encrypt(messages[0]))
    tables = _processor(lambda: public.encrypt_many(messages[:128], workers=1))
    made: list[elgamal.Ciphertext] = []
    encrypt = _processor(lambda: made.append(public.encrypt_many(messages, workers=1)))
    (ciphertext,) = made
    part = elgamal.Ciphertext(key=public, first=ciphertext.first[:decrypted], second=ciphertext.second[:decrypted])
    opened: list[list[int]] = []
    decrypt = _processor(lambda: opened.append(private.decrypt_many(part, workers=1)))
    assert opened[0] == messages[:decrypted]
    content = ciphertext.to_bytes()
    return {
        "exponent_bits": elgamal.exponent_bits(public.group, exponents),
        "encrypt_one_without_tables": single,
        "tables_once": tables,
        "encrypt": encrypt / count,
        "decrypt": decrypt / decrypted,
        "multiply": _processor(lambda: ciphertext * ciphertext) / count,
        "rerandomise": _processor(lambda: ciphertext.rerandomised(workers=1)) / count,
        "parse": _processor(lambda: public.parse(content)) / count,
        "bytes": len(content) / count,
    }


def counts(*, bits: int = 2048, bounds: tuple[int, ...] = (24, 32, 40)) -> dict[str, dict[str, float]]:
    """Return the seconds of baby steps (once) and giant steps (a value): the mean and the worst case."""
    group = named(f"ffdhe{bits}")
    result = {}
    for size in bounds:
        made: list[DiscreteLog] = []
        table = _processor(lambda size=size, made=made: made.append(DiscreteLog(group=group, bound=1 << size)))  # type: ignore[misc]
        (search,) = made
        rows = powers(np.array([1 << size, 1 << (size - 1)]), group)
        search.find(powers([1], group))
        times = [_processor(lambda row=row: search.find(rows[row : row + 1])) for row in (0, 1)]  # type: ignore[misc] # noqa: B023
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


def ours_in_a_child(name: str, *, quick: bool) -> dict[str, Any]:
    """Return the figures of one backend, from a process that is told to use it."""
    command = [sys.executable, __file__, "--ours", *(["--quick"] if quick else [])]
    done = subprocess.run(command, env=os.environ | {VARIABLE: name}, check=True, capture_output=True, text=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


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
        figures = ours_in_a_child(name, quick=quick)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller samples, under a minute; writes nothing")
    parser.add_argument("--ours", action="store_true", help="only our scheme, with the backend of this process")
    arguments = parser.parse_args()
    figures = json.dumps((ours if arguments.ours else measure)(quick=arguments.quick), indent=2)
    print(figures)
    if not arguments.quick and not arguments.ours:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(figures + "\n")


if __name__ == "__main__":
    main()
