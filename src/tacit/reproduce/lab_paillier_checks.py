"""The Paillier lab's first table: does every operation give the right integer, small ones and large ones?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tacit.crypto.paillier import Ciphertext, PublicKey
from tacit.randomness import system_below

OPERATIONS = ("encrypt, decrypt", "add", "add constant", "multiply by constant")


class Decrypts(Protocol):
    """Whoever has the private key."""

    def decrypt(self, ciphertext: Ciphertext) -> int:
        """Return the integer."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One operation on one kind of integers: how often it was tried and how often it was wrong."""

    operation: str
    integers: str
    tried: int
    wrong: int
    example: str  # the first that was wrong, else the last that was right

    @property
    def passed(self) -> bool:
        """Whether all were right; nothing tried is nothing shown."""
        return self.tried > 0 and self.wrong == 0

    @property
    def verdict(self) -> str:
        """The result in a word."""
        return "PASS" if self.passed else "FAIL"


Case = tuple[str, int, int]  # what was done, the result, the result that is right


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


def judge(operation: str, integers: str, cases: Sequence[Case]) -> Check:
    """Count what is wrong."""
    wrong = [case for case in cases if case[1] != case[2]]
    shown = (wrong or list(cases))[0 if wrong else -1] if cases else ("nothing was tried", 0, 0)
    text = f"{shown[0]} = {short(shown[1])}" + (f", expected {short(shown[2])}" if wrong else "")
    return Check(operation=operation, integers=integers, tried=len(cases), wrong=len(wrong), example=text)


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


def short(number: int, *, brackets: bool = False) -> str:
    """Return an integer for a table, a long one by its first and last digits.

    >>> short(-42), short(10**40 + 7)
    ('-42', '10000…00007 (41 digits)')
    """
    digits = str(abs(number))
    text = digits if len(digits) <= 12 else f"{digits[:5]}…{digits[-5:]} ({len(digits)} digits)"
    text = f"-{text}" if number < 0 else text
    return f"({text})" if brackets and number < 0 else text
