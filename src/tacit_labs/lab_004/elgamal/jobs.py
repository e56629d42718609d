"""The ElGamal lab's timings, one job each, for the backend that this process was told to use.

Figures are the processor's seconds of one thread, the best of several, but for safe primes: how long a search
takes is a matter of luck, so several are averaged and scaled to the mean number of candidates.
"""

from __future__ import annotations

import functools
import time
from typing import Any

from tacit.crypto import elgamal, groups
from tacit.crypto.backend import describe
from tacit.crypto.elgamal import Exponents, PrivateKey, PublicKey
from tacit.crypto.groups import Group
from tacit.crypto.primes import safe_prime
from tacit.randomness import system_below
from tacit_labs.baselines.elgamal import TextbookElGamal, expected_candidates, safe_prime_seconds
from tacit_labs.bench.worker import Jobs, serve
from tacit_labs.harness.measuring import best, each

_WARM = 128  # powers after which every backend has built its table


@functools.cache
def group(bits: int) -> Group:
    """Return a named group where one is long enough to have a name, else one of a new safe prime."""
    name = f"ffdhe{bits}"
    return groups.named(name) if name in groups.NAMES else groups.generate(bits, insecure_key_size=True)


@functools.cache
def keys(bits: int, exponents: Exponents) -> tuple[PublicKey, PrivateKey]:
    """Return a pair with its tables made."""
    public, private = elgamal.generate(group(bits), exponents=exponents, insecure_key_size=True)
    public.encrypt_many([1] * _WARM, workers=1)
    return public, private


@functools.cache
def textbook(bits: int) -> TextbookElGamal:
    """Return a textbook's key in the same group."""
    return TextbookElGamal.generate(group(bits).p, group(bits).g)


def which() -> dict[str, Any]:
    """Return the backend of this process."""
    return {"backend": describe().backend.name, "reason": describe().reason}


def prime(*, bits: int, searches: int) -> dict[str, Any]:
    """Return what Tacit needs for a safe prime, scaled to the mean number of candidates."""
    tested, expected = 0, 0.0
    start = time.process_time()
    for _ in range(searches):
        last = 0

        def look(done: int, mean: float) -> None:
            nonlocal last, expected
            last, expected = done, mean

        safe_prime(bits, workers=1, progress=look)
        tested += last
    spent = time.process_time() - start
    return {
        "seconds": spent / tested * expected,
        "as_it_went": spent / searches,
        "candidates": tested / searches,
        "expected_candidates": expected,
        "searches": searches,
    }


def textbook_prime(*, bits: int, sample: int) -> dict[str, Any]:
    """Return what teaching code needs for a safe prime, extrapolated from some of its candidates."""
    return {
        "seconds": safe_prime_seconds(bits, sample=sample),
        "sample": sample,
        "expected_candidates": expected_candidates(bits),
    }


def stages(*, bits: int, exponents: Exponents, count: int, repeats: int) -> dict[str, Any]:
    """Return the seconds of a pair in a group that is given, one encryption, one decryption and one product."""
    public, private = keys(bits, exponents)
    message = 1 + system_below(public.group.q)
    left, right = public.encrypt(message), public.encrypt(7)
    assert private.decrypt(left) == message
    pair = functools.partial(elgamal.generate, public.group, exponents=exponents, insecure_key_size=True)
    return {
        "pair": each(pair, count=max(1, count // 10), repeats=repeats),
        "encrypt": each(lambda: public.encrypt(message), count=count, repeats=repeats),
        "decrypt": each(lambda: private.decrypt(left), count=count, repeats=repeats),
        "multiply": each(lambda: left * right, count=10 * count, repeats=repeats),
        "exponent_bits": elgamal.exponent_bits(public.group, exponents),
    }


def textbook_stages(*, bits: int, count: int, repeats: int) -> dict[str, Any]:
    """Return the same for Python's integers."""
    key = textbook(bits)
    message = 1 + system_below(key.p - 1)
    left, right = key.encrypt(message), key.encrypt(7)
    assert key.decrypt(left) == message
    return {
        "pair": each(lambda: TextbookElGamal.generate(key.p, key.g), count=count, repeats=repeats),
        "encrypt": each(lambda: key.encrypt(message), count=count, repeats=repeats),
        "decrypt": each(lambda: key.decrypt(left), count=count, repeats=repeats),
        "multiply": each(lambda: key.multiply(left, right), count=100 * count, repeats=repeats),
        "exponent_bits": bits,
    }


def batch(*, bits: int, size: int, repeats: int) -> dict[str, Any]:
    """Return the seconds a number of a whole batch, encrypted, multiplied and decrypted at once."""
    public, private = keys(bits, "short")
    messages = [1 + system_below(public.group.q) for _ in range(size)]
    made = public.encrypt_many(messages, workers=1)
    assert private.decrypt_many(made, workers=1) == messages
    return {
        "encrypt": best(lambda: public.encrypt_many(messages, workers=1), repeats=repeats) / size,
        "decrypt": best(lambda: private.decrypt_many(made, workers=1), repeats=repeats) / size,
        "multiply": best(lambda: elgamal.product([made, made], workers=1), repeats=repeats) / size,
    }


def by_hand(*, bits: int, count: int, repeats: int) -> dict[str, Any]:
    """Return what a product costs whoever has the key and no homomorphism: two decryptions and an encryption."""
    public, private = keys(bits, "short")
    left, right = public.encrypt(6), public.encrypt(7)
    assert private.decrypt(left * right) == 42
    seconds = each(lambda: public.encrypt(private.decrypt(left) * private.decrypt(right)), count=count, repeats=repeats)
    return {"seconds": seconds}


JOBS: Jobs = {
    "which": which,
    "prime": prime,
    "textbook prime": textbook_prime,
    "stages": stages,
    "textbook stages": textbook_stages,
    "batch": batch,
    "by hand": by_hand,
}

if __name__ == "__main__":
    serve(JOBS)
