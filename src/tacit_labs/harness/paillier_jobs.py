"""Timings of Paillier, one job each, for the backend that this process was told to use, and for the textbooks.

Figures are the processor's seconds of one thread; keys and tables are made beforehand.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tacit.crypto import paillier
from tacit.crypto.backend import describe
from tacit.crypto.paillier import Layout, PrivateKey, PublicKey
from tacit.randomness import system_below
from tacit_labs.baselines.paillier import ARITHMETICS, TextbookPaillier
from tacit_labs.bench.worker import Jobs, serve
from tacit_labs.harness.measuring import best, each

MODES = ("enc_add", "enc_add_const", "enc_mul_const")  # the reports' names
TACIT = "tacit"  # beside the names of the textbooks' arithmetics


class Scheme(NamedTuple):
    """The five operations, whoever computes them; results are residues modulo n."""

    n: int
    enc: Callable[[int], Any]
    dec: Callable[[Any], int]
    enc_add: Callable[[Any, Any], Any]
    enc_add_const: Callable[[Any, int], Any]
    enc_mul_const: Callable[[Any, int], Any]


@functools.cache
def keys(bits: int) -> tuple[PublicKey, PrivateKey]:
    """Return a pair with its tables made."""
    public, private = paillier.generate(bits=bits, insecure_key_size=True)
    public.take(1)
    private.take(1)
    return public, private


@functools.cache
def scheme(bits: int, by: str, number: int = 0) -> Scheme:  # noqa: ARG001 - part of the job's key: one scheme per number
    """Return Tacit's operations or a textbook's, with one key for each ``number``."""
    if by == TACIT:
        public, private = keys(bits)
        return Scheme(
            n=public.n,
            enc=public.encrypt,
            dec=lambda text: private.decrypt(text) % public.n,
            enc_add=lambda left, right: left + right,
            enc_add_const=lambda text, constant: text + constant,
            enc_mul_const=lambda text, constant: text * constant,
        )
    key = TextbookPaillier.generate(bits, ARITHMETICS[by])
    return Scheme(
        n=key.n,
        enc=key.enc,
        dec=key.dec,
        enc_add=key.enc_add,
        enc_add_const=key.enc_add_const,
        enc_mul_const=key.enc_mul_const,
    )


def number(bits: int) -> int:
    """Return a random integer of exactly so many bits."""
    return 1 << (bits - 1) | system_below(1 << (bits - 1))


def which() -> dict[str, Any]:
    """Return the backend of this process."""
    return {"backend": describe().backend.name, "reason": describe().reason}


def panel(*, key_bits: int, lengths: list[int], by: str, experiment: int) -> dict[str, Any]:
    """Return, for each operation and length, the seconds of two encryptions and it, and of the decryption.

    Every point is measured once, as in the report; ``wrong`` counts results that are not those of integers modulo n.
    """
    key, wrong = scheme(key_bits, by, experiment), 0
    key.dec(key.enc(1))  # whatever happens the first time
    seconds: dict[str, dict[str, list[float]]] = {mode: {"encryption": [], "decryption": []} for mode in MODES}
    for bits in lengths:
        for mode in MODES:
            a, b, c = number(bits), number(bits), number(bits)
            start = time.process_time()
            left, right = key.enc(a), key.enc(b)
            text = _operate(key, mode, left, right, c)
            middle = time.process_time()
            plain = key.dec(text)
            end = time.process_time()
            seconds[mode]["encryption"].append(middle - start)
            seconds[mode]["decryption"].append(end - middle)
            wrong += plain != _truth(mode, a, b, c) % key.n
    return {"seconds": seconds, "wrong": wrong}


def settled(*, key_bits: int, lengths: list[int], by: str, repeats: int) -> dict[str, Any]:
    """Return the median seconds of a decryption by the length of the number, lengths in turn so that all share luck."""
    key = scheme(key_bits, by)
    texts = [key.enc_add(key.enc(number(bits)), key.enc(number(bits))) for bits in lengths]
    found: list[list[float]] = [[] for _ in lengths]
    for _ in range(repeats):
        for place, text in enumerate(texts):
            start = time.process_time()
            key.dec(text)
            found[place].append(time.process_time() - start)
    return {"seconds": [statistics.median(times) for times in found]}


def exercise(*, key_bits: int, lengths: list[int], count: int, by: str) -> dict[str, Any]:
    """Return, by operation and length, the seconds of ``count`` times 003's operations, and how many were wrong.

    ``enc_add`` is two encryptions, the sum and its decryption; ``enc_add_const`` one encryption, the sum with a known
    number and its decryption. Each is on other integers, and lengths and operations take turns, so that all share luck.
    """
    key = scheme(key_bits, by)
    operations: dict[str, Callable[[int, int], int]] = {
        "enc_add": lambda a, b: key.dec(key.enc_add(key.enc(a), key.enc(b))),
        "enc_add_const": lambda a, b: key.dec(key.enc_add_const(key.enc(a), b)),
    }
    key.dec(key.enc(1))
    seconds = {mode: [0.0] * len(lengths) for mode in operations}
    wrong = {mode: [0] * len(lengths) for mode in operations}
    for _ in range(count):
        for place, bits in enumerate(lengths):
            for mode, operate in operations.items():
                a, b = number(bits), number(bits)
                start = time.process_time()
                result = operate(a, b)
                seconds[mode][place] += time.process_time() - start
                wrong[mode][place] += result != (a + b) % key.n
    return {"seconds": seconds, "wrong": wrong}


def one_by_one(*, key_bits: int, count: int, by: str) -> dict[str, Any]:
    """Return the seconds of one number of an update in a ciphertext of its own, as both reports did it."""
    layout = _layout(1, key_bits)
    code = round(0.25 / layout.step) if layout.step else 0  # what a float of an update becomes
    key = scheme(key_bits, by)
    text = key.enc(code)
    return {
        "encrypt": each(lambda: key.enc(code), count=count, repeats=2),
        "decrypt": each(lambda: key.dec(text), count=count, repeats=2),
        "bytes": 2 * key_bits // 8,
    }


def packed(*, key_bits: int, length: int, repeats: int) -> dict[str, Any]:
    """Return the seconds of a whole update, packed, and what it weighs."""
    public, private = keys(key_bits)
    layout, values = _layout(length, key_bits), np.sin(np.arange(length) ** 1.5)
    encrypted = public.encrypt(values, layout, workers=1)
    assert np.abs(private.decrypt(encrypted, workers=1) - values).max() <= layout.error(1)
    return {
        "encrypt": best(lambda: public.encrypt(values, layout, workers=1), repeats=repeats),
        "decrypt": best(lambda: private.decrypt(encrypted, workers=1), repeats=repeats),
        "bytes": len(encrypted.to_bytes()) / length,
    }


def _operate(key: Scheme, mode: str, left: Any, right: Any, constant: int) -> Any:
    if mode == "enc_add":
        return key.enc_add(left, right)
    return (key.enc_add_const if mode == "enc_add_const" else key.enc_mul_const)(left, constant)


def _truth(mode: str, a: int, b: int, c: int) -> int:
    return {"enc_add": a + b, "enc_add_const": a + c, "enc_mul_const": a * c}[mode]


def _layout(length: int, key_bits: int) -> Layout:
    return Layout.floats(length=length, clip=1.0, bits=24, summands=128, key_bits=key_bits)


JOBS: Jobs = {
    "which": which,
    "panel": panel,
    "settled": settled,
    "exercise": exercise,
    "one by one": one_by_one,
    "packed": packed,
}

if __name__ == "__main__":
    serve(JOBS)
