"""The report's first figures of Paillier: does every operation give the right integer, small ones and large ones?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from tacit.crypto.paillier import Ciphertext, PublicKey
from tacit.randomness import system_below
from tacit_labs.harness.checks import Check, judge, short

OPERATIONS = ("encrypt, decrypt", "add", "add constant", "multiply by constant")


class Decrypts(Protocol):
    """Whoever has the private key."""

    def decrypt(self, ciphertext: Ciphertext) -> int:
        """Return the integer."""


def check(public: PublicKey, private: Decrypts, *, random: int) -> tuple[Check, ...]:
    """Try all operations on small and on large integers, signs and the ends of the range among them.

    Args:
        public: encrypts and computes.
        private: decrypts.
        random: how many random pairs of each kind, beside the fixed ones.
    """
    checks = []
    for name, pairs in kinds(public.n, random=random):
        for operation in OPERATIONS:
            cases = list(_cases(operation, public, private, pairs))
            checks.append(judge(operation, name, cases))
    return tuple(checks)


def kinds(n: int, *, random: int) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Yield pairs of small and of large integers for a modulus, by name."""
    small = [(0, 0), (1, 0), (0, 1), (7, 5), (-3, 4), (12, -12), (-1, -1)]
    small += [(system_below(1 << 11) - (1 << 10), system_below(1 << 11) - (1 << 10)) for _ in range(random)]
    yield "small, up to 10 bits", small
    top = (n - 1) // 2  # the largest that fits; its sums wrap around
    length = n.bit_length() - 24
    large = [(top, 0), (-top, 0), (top, -top), (top, 1), (-top, -1), (top, top), (1 << length, -1)]
    for _ in range(random):
        left, right = (1 << (length - 1) | system_below(1 << (length - 1)) for _ in range(2))
        large.append((left, right))
    yield f"large, {length} bits and the ends of the range", large


def centred(number: int, n: int) -> int:
    """Return the signed integer that a result stands for: beyond n/2 it wraps around, and nobody can see it.

    >>> centred(5, 11), centred(6, 11), centred(-6, 11)
    (5, -5, 5)
    """
    residue = number % n
    return residue - n if 2 * residue > n else residue


def _cases(
    operation: str, public: PublicKey, private: Decrypts, pairs: Sequence[tuple[int, int]]
) -> Iterator[tuple[str, int, int]]:
    apply, right, sign = _MEANING[operation]
    for left, other in pairs:
        result = private.decrypt(apply(public, left, other))
        words = short(left) if not sign else f"{short(left)} {sign} {short(other, brackets=True)}"
        yield words, result, centred(right(left, other), public.n)


_MEANING: dict[str, tuple[Callable[[PublicKey, int, int], Ciphertext], Callable[[int, int], int], str]] = {
    "encrypt, decrypt": (lambda key, a, _: key.encrypt(a), lambda a, _: a, ""),
    "add": (lambda key, a, b: key.encrypt(a) + key.encrypt(b), lambda a, b: a + b, "+"),
    "add constant": (lambda key, a, b: key.encrypt(a) + b, lambda a, b: a + b, "+"),
    "multiply by constant": (lambda key, a, b: key.encrypt(a) * b, lambda a, b: a * b, "×"),
}
