"""Tacit's side of the comparison of encryptions, for the backend this process was told to use.

Every job does its work once and says what it took; tables and keys are made before the clock starts. "One thread" is
``workers=1``.
"""

from __future__ import annotations

import functools
import math
import resource
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.crypto import paillier
from tacit.crypto.backend import describe
from tacit.crypto.paillier import CiphertextVector, Layout, NoisePool, PrivateKey, PublicKey
from tacit.crypto.paillier.public import Kind, Noise
from tacit.crypto.primes import random_prime
from tacit.crypto.ring import random_below
from tacit.randomness import system_below
from tacit_labs.bench.worker import clocked, serve


@functools.cache
def keys(kind: Kind = "standard", bits: int = 2048) -> tuple[PublicKey, PrivateKey]:
    """Return a pair with its tables made."""
    public, private = paillier.generate(bits=bits, kind=kind, insecure_key_size=True)
    public.take(1)
    private.take(1)
    return public, private


@functools.cache
def vector(length: int) -> NDArray[np.float64]:
    """Return numbers in [-1, 1] without a pattern that packing could use."""
    return np.asarray(np.sin(np.arange(length) ** 1.5), np.float64)


@functools.cache
def encrypted(kind: Kind, length: int) -> CiphertextVector:
    """Return the vector as the key holder encrypts it."""
    return keys(kind)[1].encrypt(vector(length), _layout(length))


@functools.cache
def clients(count: int, length: int) -> list[CiphertextVector]:
    """Return vectors of random units: adding them costs what adding clients' vectors costs."""
    public, _ = keys()
    layout = _layout(length)
    return [
        CiphertextVector(key=public, layout=layout, summands=1, rows=random_below(public.square, layout.rows))
        for _ in range(count)
    ]


def _layout(length: int) -> Layout:
    return Layout.floats(length=length, clip=1.0, bits=24, summands=128, key_bits=2048)


def which() -> dict[str, Any]:
    """Return the backend and why it is the one."""
    return {"backend": describe().backend.name, "reason": describe().reason}


def encrypt(*, kind: Kind, by: str, length: int, workers: int | None) -> dict[str, Any]:
    """Encrypt a vector with the public key, as the key holder, or with noise from a pool."""
    public, private = keys(kind)
    layout, values = _layout(length), vector(length)
    source: Noise = public if by == "public" else private
    if by == "pool":
        pool = NoisePool(private)
        pool.fill(layout.rows, wait=True)
        source = pool
    made: list[CiphertextVector] = []
    took = clocked(lambda: made.append(public.encrypt(values, layout, noise=source, workers=workers)))
    return {**took, "ciphertexts": layout.rows, "bytes": len(made[0].to_bytes()), "floats": length}


def decrypt(*, kind: Kind, length: int, workers: int | None) -> dict[str, Any]:
    """Decrypt a vector, and see that it is the one."""
    _, private = keys(kind)
    ciphertext = encrypted(kind, length)
    found: list[Any] = []
    took = clocked(lambda: found.append(private.decrypt(ciphertext, workers=workers)))
    assert np.abs(found[0] - vector(length)).max() <= ciphertext.layout.error(1)
    return {**took, "ciphertexts": ciphertext.layout.rows, "floats": length}


def powers(*, kind: Kind, length: int) -> dict[str, Any]:
    """Take decryption's two powers, in time that tells nothing of the exponent and in time that may."""
    _, private = keys(kind)
    rows = encrypted(kind, length).rows
    halves = [
        (ring, ring.affine([(rows, 1)], 0), order)
        for ring, order in zip(private.rings, (private.order_p, private.order_q), strict=True)
    ]

    def powers(secret: bool) -> None:
        for ring, base, order in halves:
            ring.power(base, order, secret=secret, workers=1)

    secret, plain = clocked(lambda: powers(True)), clocked(lambda: powers(False))
    return {"secret": secret["seconds"], "plain": plain["seconds"]}


def add(*, count: int, length: int) -> dict[str, Any]:
    """Add many clients' vectors."""
    vectors = clients(count, length)
    return {**clocked(lambda: paillier.total(vectors, workers=1)), "floats": length}


def parse(*, count: int, length: int) -> dict[str, Any]:
    """Read and validate many clients' vectors: common divisors with n are looked for in their sum, once."""
    public, _ = keys()
    received = [one.to_bytes() for one in clients(count, length)]
    added = paillier.total(clients(count, length), workers=1)
    read: list[CiphertextVector] = []
    took = clocked(lambda: read.extend(CiphertextVector.from_bytes(data, public, units=False) for data in received))
    units = clocked(added.check_units)
    each = clocked(lambda: [CiphertextVector.from_bytes(data, public) for data in received])
    return {"seconds": took["seconds"] + units["seconds"], "each": each["seconds"], "floats": length}


def memory(*, kind: Kind, length: int, workers: int | None) -> dict[str, Any]:
    """Return the largest memory of a process that encrypts a vector; ask a fresh side, as it is that of its life."""
    public, _ = paillier.generate(bits=2048, kind=kind)
    before = _peak()
    layout, values = _layout(length), vector(length)
    took = clocked(lambda: public.encrypt(values, layout, workers=workers))
    return {**took, "peak": _peak(), "before": before, "floats": length}


def _peak() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def labs(*, bits: int, repeats: int) -> dict[str, Any]:
    """Do the labs' exercise: two encryptions, their sum, its decryption, over and over, at 1024 bits."""
    public, private = keys("standard", 1024)
    numbers = [(system_below(1 << (bits - 1)), system_below(1 << (bits - 1))) for _ in range(repeats)]
    sums: list[int] = []

    def exercise() -> None:
        for a, b in numbers:
            sums.append(private.decrypt(public.encrypt(a) + public.encrypt(b)))

    took = clocked(exercise)
    assert sums == [a + b for a, b in numbers]
    return {**took, "repeats": repeats}


@functools.cache
def textbook(bits: int) -> tuple[int, int]:
    """Return a modulus and Carmichael's function of it."""
    p, q = random_prime(bits // 2), random_prime(bits // 2)
    return p * q, math.lcm(p - 1, q - 1)


def python_integers(*, job: str, sample: int) -> dict[str, Any]:
    """Encrypt, decrypt or add as a textbook says with Python's own integers, a ciphertext a float."""
    n, order = textbook(2048)
    square = n * n
    inverse = pow((pow(1 + n, order, square) - 1) // n, -1, n)

    def one(message: int) -> int:
        return (1 + message * n) * pow(system_below(n), n, square) % square

    if job == "encrypt":
        took = clocked(lambda: [one(message) for message in range(sample)])
    else:
        made = [one(message) for message in range(sample)]
        if job == "decrypt":
            took = clocked(lambda: [(pow(c, order, square) - 1) // n * inverse % n for c in made])
        else:
            sample *= 100
            took = clocked(lambda: [made[0] * made[-1] % square for _ in range(sample)])
    return {**took, "sample": sample, "bytes": (square.bit_length() + 7) // 8, "floats": 1}


if __name__ == "__main__":
    serve(
        {
            "which": which,
            "encrypt": encrypt,
            "decrypt": decrypt,
            "powers": powers,
            "add": add,
            "parse": parse,
            "memory": memory,
            "labs": labs,
            "python integers": python_integers,
        }
    )
