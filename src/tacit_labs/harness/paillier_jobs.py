"""The Paillier lab's timings, one job each, for the backend that this process was told to use.

Figures are the processor's seconds of one thread, the best of several; keys and tables are made beforehand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tacit.crypto import paillier
from tacit.crypto.backend import describe
from tacit.crypto.paillier import Ciphertext, Layout, PrivateKey, PublicKey
from tacit.randomness import system_below
from tacit_labs.baselines.paillier import TextbookPaillier
from tacit_labs.bench.worker import Jobs, clocked, serve
from tacit_labs.harness.measuring import best, each

OPERATIONS = (
    "encrypt",
    "encrypt, key holder",
    "decrypt",
    "add",
    "add constant",
    "multiply by constant",
    "subtract",
    "re-randomise",
    "exercise",
)
EXERCISE = "two encryptions, their sum, its decryption"


@functools.cache
def keys(bits: int) -> tuple[PublicKey, PrivateKey]:
    """Return a pair with its tables made."""
    public, private = paillier.generate(bits=bits, insecure_key_size=True)
    public.take(1)
    private.take(1)
    return public, private


@functools.cache
def textbook(bits: int) -> TextbookPaillier:
    """Return a textbook's key."""
    return TextbookPaillier.generate(bits)


def number(bits: int) -> int:
    """Return a random integer of exactly so many bits."""
    return 1 << (bits - 1) | system_below(1 << (bits - 1))


def which() -> dict[str, Any]:
    """Return the backend of this process."""
    return {"backend": describe().backend.name, "reason": describe().reason}


def operations(*, key_bits: int, bits: int, count: int, repeats: int) -> dict[str, Any]:
    """Return the seconds of each of Tacit's operations on integers of one length."""
    public, private = keys(key_bits)
    a, b = number(bits), number(bits)
    left, right = public.encrypt(a), public.encrypt(b)
    actions: dict[str, Callable[[], Ciphertext | int]] = {
        "encrypt": lambda: public.encrypt(a),
        "encrypt, key holder": lambda: private.encrypt(a),
        "decrypt": lambda: private.decrypt(left),
        "add": lambda: left + right,
        "add constant": lambda: left + b,
        "multiply by constant": lambda: left * b,
        "subtract": lambda: left - right,
        "re-randomise": left.rerandomised,
        "exercise": lambda: private.decrypt(public.encrypt(a) + public.encrypt(b)),
    }
    return {"seconds": {name: each(actions[name], count=count, repeats=repeats) for name in OPERATIONS}}


def textbook_operations(*, key_bits: int, bits: int, count: int, repeats: int) -> dict[str, Any]:
    """Return the same for Python's integers; there is no faster way for a key holder there."""
    key, a, b = textbook(key_bits), number(bits), number(bits)
    left, right = key.enc(a), key.enc(b)
    actions: dict[str, Callable[[], int]] = {
        "encrypt": lambda: key.enc(a),
        "decrypt": lambda: key.dec(left),
        "add": lambda: key.enc_add(left, right),
        "add constant": lambda: key.enc_add_const(left, b),
        "multiply by constant": lambda: key.enc_mul_const(left, b),
        "exercise": lambda: key.dec(key.enc_add(key.enc(a), key.enc(b))),
    }
    return {"seconds": {name: each(action, count=count, repeats=repeats) for name, action in actions.items()}}


def exercise(*, key_bits: int, bits: int, count: int, repeats: int, by: str) -> dict[str, Any]:
    """Return the seconds of ``count`` exercises of the lab, each on other integers, and how many gave a wrong sum."""
    wrong = 0

    def tacit_way(a: int, b: int) -> int:
        return private.decrypt(public.encrypt(a) + public.encrypt(b))

    def textbook_way(a: int, b: int) -> int:
        return key.dec(key.enc_add(key.enc(a), key.enc(b)))

    if by == "textbook":
        key, way = textbook(key_bits), textbook_way
    else:
        (public, private), way = keys(key_bits), tacit_way
    found = []
    for _ in range(repeats):
        numbers = [(number(bits), number(bits)) for _ in range(count)]
        sums: list[int] = []
        found.append(clocked(lambda: sums.extend(way(a, b) for a, b in numbers))["seconds"])  # noqa: B023
        wrong += sum(total != a + b for total, (a, b) in zip(sums, numbers, strict=True))
    return {"seconds": min(found), "count": count, "wrong": wrong}


def one_by_one(*, key_bits: int, count: int, repeats: int, by: str) -> dict[str, Any]:
    """Return the seconds of one number of an update in a ciphertext of its own, as the lab did it, and its bytes."""
    layout = _layout(1, key_bits)
    code = round(0.25 / layout.step) if layout.step else 0  # what a float of an update becomes
    if by == "textbook":
        key = textbook(key_bits)
        made = key.enc(code)
        encrypt: Callable[[], object] = lambda: key.enc(code)  # noqa: E731
        decrypt: Callable[[], object] = lambda: key.dec(made)  # noqa: E731
    else:
        public, private = keys(key_bits)
        encrypted = public.encrypt(code)
        encrypt = lambda: public.encrypt(code)  # noqa: E731
        decrypt = lambda: private.decrypt(encrypted)  # noqa: E731
    return {
        "encrypt": each(encrypt, count=count, repeats=repeats),
        "decrypt": each(decrypt, count=count, repeats=repeats),
        "count": count,
        "bytes": 2 * key_bits // 8,
    }


def packed(*, key_bits: int, length: int, repeats: int, holder: bool) -> dict[str, Any]:
    """Return the seconds of a whole update, packed, and what it weighs."""
    public, private = keys(key_bits)
    layout, values = _layout(length, key_bits), np.sin(np.arange(length) ** 1.5)
    source = private if holder else public
    encrypted = public.encrypt(values, layout, noise=source, workers=1)
    if not holder:  # there is one way to decrypt
        assert np.abs(private.decrypt(encrypted, workers=1) - values).max() <= layout.error(1)
    return {
        "encrypt": best(lambda: public.encrypt(values, layout, noise=source, workers=1), repeats=repeats),
        "decrypt": None if holder else best(lambda: private.decrypt(encrypted, workers=1), repeats=repeats),
        "ciphertexts": layout.rows,
        "bytes": len(encrypted.to_bytes()) / length,
    }


def _layout(length: int, key_bits: int) -> Layout:
    return Layout.floats(length=length, clip=1.0, bits=24, summands=128, key_bits=key_bits)


JOBS: Jobs = {
    "which": which,
    "operations": operations,
    "textbook operations": textbook_operations,
    "exercise": exercise,
    "one by one": one_by_one,
    "packed": packed,
}

if __name__ == "__main__":
    serve(JOBS)
