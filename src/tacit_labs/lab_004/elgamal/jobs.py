"""The timings of report 004 on ElGamal, one job each: by the report's own algorithms, and by Tacit.

Figures are the processor's seconds of one thread, every single one where luck decides how long it takes. The process
that runs the report's algorithms is told to keep SymPy to Python's integers.
"""

from __future__ import annotations

import functools
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

from tacit.crypto import elgamal, groups
from tacit.crypto.backend import describe
from tacit.crypto.elgamal import PrivateKey, PublicKey
from tacit.randomness import system_below
from tacit_labs.baselines.elgamal import (
    TextbookElGamal,
    a_key_each,
    by_factoring,
    by_safe_prime,
    one_key,
    power,
)
from tacit_labs.bench.machine import version_of
from tacit_labs.bench.worker import Jobs, serve

REPORT, TACIT = "report", "tacit"


class _Key(Protocol):
    """What both sides can do, one number at a time."""

    def encrypt(self, message: int) -> Any: ...

    def decrypt(self, ciphertext: Any) -> int: ...


class _Tacit:
    """A pair of Tacit's in a group of its own."""

    def __init__(self, bits: int) -> None:
        group = groups.generate(bits, workers=1, insecure_key_size=True)
        self.public: PublicKey
        self.private: PrivateKey
        self.public, self.private = elgamal.generate(group, insecure_key_size=True)

    def encrypt(self, message: int) -> elgamal.Ciphertext:
        return self.public.encrypt(message)

    def decrypt(self, ciphertext: elgamal.Ciphertext) -> int:
        return self.private.decrypt(ciphertext)


def which() -> dict[str, Any]:
    """Return what computes in this process."""
    return {"backend": describe().backend.name, "reason": describe().reason, "sympy": version_of("sympy")}


def stages(*, by: str, bits: int, repeats: int) -> dict[str, Any]:
    """Return the seconds of a new key, one encryption and one decryption under it, ``repeats`` times."""
    make: Callable[[], _Key] = (
        (lambda: TextbookElGamal.generate(by_safe_prime(bits))) if by == REPORT else (lambda: _Tacit(bits))
    )
    by_safe_prime(16), _Tacit(32)  # loads what is loaded once
    found: dict[str, list[float]] = {"key": [], "encrypt": [], "decrypt": []}
    for _ in range(repeats):
        message = 1 + system_below((1 << (bits - 2)) - 1)
        key = _timed(found["key"], make)
        made = _timed(found["encrypt"], functools.partial(key.encrypt, message))
        assert _timed(found["decrypt"], functools.partial(key.decrypt, made)) == message
    return found


def factoring(*, bits: int, repeats: int, limit: float, curves: bool = True) -> dict[str, Any]:
    """Return the seconds of key generation by factoring p - 1; one that takes longer than ``limit`` is given up."""
    by_factoring(16)
    seconds: list[float] = []
    given_up = 0
    for _ in range(repeats):
        try:
            made = functools.partial(_within, limit, functools.partial(_factored_key, bits, curves=curves))
            _timed(seconds, made, time.thread_time)  # while a timer runs, the process's clock moves by whole ticks
        except _TooLong:
            given_up += 1
    return {"seconds": seconds, "given_up": given_up}


def _factored_key(bits: int, *, curves: bool) -> TextbookElGamal:
    return TextbookElGamal.generate(by_factoring(bits, curves=curves))


def batch(*, by: str, bits: int, count: int, keys: str) -> dict[str, Any]:
    """Return the seconds per message of a batch, with a key each, with one key, or with one key and vector calls."""
    messages = [1 + system_below((1 << (bits - 2)) - 1) for _ in range(count)]
    ways: dict[tuple[str, str], Callable[[], list[int]]] = {
        (REPORT, "each"): lambda: a_key_each(messages, bits),
        (REPORT, "one"): lambda: one_key(messages, bits),
        (TACIT, "each"): lambda: [_round_trip(_Tacit(bits), message) for message in messages],
        (TACIT, "one"): lambda: _all_under(_Tacit(bits), messages),
        (TACIT, "vector"): lambda: _vector(_Tacit(bits), messages),
    }
    seconds: list[float] = []
    assert _timed(seconds, ways[by, keys]) == messages
    return {"seconds": seconds[0] / count}


def _round_trip(key: _Key, message: int) -> int:
    return key.decrypt(key.encrypt(message))


def _all_under(key: _Key, messages: list[int]) -> list[int]:
    made = [key.encrypt(message) for message in messages]
    return [key.decrypt(ciphertext) for ciphertext in made]


def _vector(key: _Tacit, messages: list[int]) -> list[int]:
    return key.private.decrypt_many(key.public.encrypt_many(messages, workers=1), workers=1)


def products(*, by: str, bits: int, left: int, right: int, repeats: int) -> dict[str, Any]:
    """Return the mean seconds of two decryptions and a product, and of a product of ciphertexts and one decryption."""
    if by == REPORT:
        book = TextbookElGamal.generate(by_safe_prime(bits))
        a, b = book.encrypt(left), book.encrypt(right)
        ways: tuple[Callable[[], int], ...] = (
            lambda: book.decrypt(a) * book.decrypt(b),
            lambda: book.decrypt(book.multiply(a, b)),
        )
    else:
        key = _Tacit(bits)
        c, d = key.encrypt(left), key.encrypt(right)
        ways = (lambda: key.decrypt(c) * key.decrypt(d), lambda: key.decrypt(c * d))
    found = []
    for way in ways:
        start = time.process_time()
        results = [way() for _ in range(repeats)]
        found.append((time.process_time() - start) / repeats)
        assert set(results) == {left * right}
    return {"two": found[0], "one": found[1], "result": left * right}


def powers(*, bits: int, repeats: int) -> dict[str, Any]:
    """Return the mean seconds of a power with a full exponent: bit by bit in Python, and by Python's own ``pow``."""
    modulus = groups.generate(bits, workers=1, insecure_key_size=True).p
    base, exponent = 2 + system_below(modulus - 3), 1 + system_below(modulus - 2)
    assert power(base, exponent, modulus) == pow(base, exponent, modulus)
    found = {}
    for name, way in (("bit by bit", power), ("pow", pow)):
        start = time.process_time()
        for _ in range(repeats):
            way(base, exponent, modulus)
        found[name] = (time.process_time() - start) / repeats
    return {"seconds": found}


def randomness(*, bits: int, message: int, count: int) -> dict[str, Any]:
    """Return ciphertexts of one number under one of the report's keys, as text."""
    key = TextbookElGamal.generate(by_safe_prime(bits))
    made = [key.encrypt(message) for _ in range(count)]
    assert {key.decrypt(pair) for pair in made} == {message}
    return {"ciphertexts": [[str(half) for half in pair] for pair in made]}


class _TooLong(Exception):  # noqa: N818 - an alarm, not an error
    """A factorisation took longer than it may."""


def _within(limit: float, action: Callable[[], object]) -> object:
    """Return what an action gives, or give up after so many seconds of the processor."""

    def give_up(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what a signal handler is given
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit)
    try:
        return action()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


def _timed(into: list[float], action: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> Any:
    start = clock()
    result = action()
    into.append(clock() - start)
    return result


JOBS: Jobs = {
    "which": which,
    "stages": stages,
    "factoring": factoring,
    "batch": batch,
    "products": products,
    "powers": powers,
    "randomness": randomness,
}

if __name__ == "__main__":
    serve(JOBS)
