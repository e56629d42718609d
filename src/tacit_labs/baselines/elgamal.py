"""ElGamal as ``004_a69ec1a5888a3c07.txt`` has it, in Python's own integers. For comparison only.

Powers bit by bit, no tables, messages that are not encoded as squares, and two ways to a prime with a primitive root:
any prime p, for which p - 1 must be factored ("before"), or a safe prime ("after"). SymPy finds primes and factors, as
in the report; with ``SYMPY_GROUND_TYPES=python`` it computes with Python's integers too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tacit.crypto.primes import small_primes
from tacit.randomness import system_below

_TWIN_CONSTANT = 1.3203236316937391  # 2 C_2 (Hardy, Littlewood 1923)
_DIVISORS_BELOW = 1000

Pair = tuple[int, int]


def power(base: int, exponent: int, modulus: int) -> int:
    """Return a power modulo something, by squaring and multiplying, the lowest bit of the exponent first.

    >>> power(3, 200, 1009) == pow(3, 200, 1009), power(5, 0, 7)
    (True, 1)
    """
    result = 1
    while exponent:
        if exponent & 1:
            result = result * base % modulus
        base = base * base % modulus
        exponent >>= 1
    return result


@dataclass(frozen=True, kw_only=True)
class Modulus:
    """A prime, and a number whose powers are all numbers modulo it."""

    p: int
    g: int


def by_factoring(bits: int, *, curves: bool = True) -> Modulus:
    """Return any prime of so many bits: p - 1 is factored to know a primitive root, with or without elliptic curves."""
    import sympy

    p = int(sympy.randprime(1 << (bits - 1), 1 << bits))
    return Modulus(p=p, g=primitive_root(p, [int(factor) for factor in sympy.factorint(p - 1, use_ecm=curves)]))


def by_safe_prime(bits: int) -> Modulus:
    """Return a prime p = 2q + 1 with q prime, so that the factors of p - 1 are known; q is drawn until p is prime."""
    import sympy

    while True:
        q = int(sympy.randprime(1 << (bits - 2), 1 << (bits - 1)))
        if sympy.isprime(2 * q + 1):
            return Modulus(p=2 * q + 1, g=primitive_root(2 * q + 1, [2, q]))


def primitive_root(p: int, factors: Sequence[int]) -> int:
    """Return the least number whose powers are all numbers modulo p, given the prime factors of p - 1.

    >>> primitive_root(23, [2, 11]), primitive_root(41, [2, 5])
    (5, 6)
    """
    return next(g for g in range(2, p) if all(power(g, (p - 1) // factor, p) != 1 for factor in factors))


@dataclass(frozen=True, kw_only=True)
class TextbookElGamal:
    r"""Encrypts m as :math:`(g^r, m y^r) \bmod p` with exponents below p (ElGamal 1985)."""

    p: int
    g: int
    y: int
    x: int = field(repr=False)

    @classmethod
    def generate(cls, modulus: Modulus) -> TextbookElGamal:
        """Return a new key."""
        x = 1 + system_below(modulus.p - 2)
        return cls(p=modulus.p, g=modulus.g, y=power(modulus.g, x, modulus.p), x=x)

    def encrypt(self, message: int) -> Pair:
        """Encrypt a number from 1 to p - 1."""
        r = 1 + system_below(self.p - 2)
        return power(self.g, r, self.p), message * power(self.y, r, self.p) % self.p

    def decrypt(self, ciphertext: Pair) -> int:
        """Return the number."""
        import sympy

        first, second = ciphertext
        return second * int(sympy.mod_inverse(power(first, self.x, self.p), self.p)) % self.p

    def multiply(self, left: Pair, right: Pair) -> Pair:
        """Return a ciphertext of the product modulo p."""
        return left[0] * right[0] % self.p, left[1] * right[1] % self.p


def a_key_each(messages: Iterable[int], bits: int, modulus: Callable[[int], Modulus] = by_safe_prime) -> list[int]:
    """Encrypt and decrypt each message under a key of its own, which is what the report improved on."""
    found = []
    for message in messages:
        key = TextbookElGamal.generate(modulus(bits))
        found.append(key.decrypt(key.encrypt(message)))
    return found


def one_key(messages: Iterable[int], bits: int, modulus: Callable[[int], Modulus] = by_safe_prime) -> list[int]:
    """Encrypt all messages under one new key, then decrypt them all."""
    key = TextbookElGamal.generate(modulus(bits))
    made = [key.encrypt(message) for message in messages]
    return [key.decrypt(ciphertext) for ciphertext in made]


def expected_candidates(bits: int) -> float:
    r"""Return how many random odd q of ``bits - 1`` bits are tried in the mean until q and 2q + 1 are prime.

    About one number in :math:`\ln q \ln p / 1.32` will do (Hardy and Littlewood 1923), and half of them are even.

    >>> round(expected_candidates(1024))
    190597
    """
    return (bits - 1) * bits * math.log(2) ** 2 / _TWIN_CONSTANT / 2


def safe_prime_seconds(bits: int, *, sample: int) -> float:
    """Return what a safe prime costs on average by trial: random odd q, small divisors, Miller-Rabin on q and 2q + 1.

    A search takes minutes and its length is a matter of luck, so ``sample`` candidates are timed and scaled to the
    mean number that a search needs.
    """
    divisors = [int(prime) for prime in small_primes(_DIVISORS_BELOW) if prime > 2]
    top = 1 << (bits - 2)
    start = time.process_time()
    for _ in range(sample):
        q = top | system_below(top) | 1
        if all(q % prime or q == prime for prime in divisors) and passes_miller_rabin(q):
            passes_miller_rabin(2 * q + 1)
    return (time.process_time() - start) / sample * expected_candidates(bits)


def passes_miller_rabin(number: int) -> bool:
    """Return whether an odd number above 3 passes one Miller-Rabin test with a random base.

    >>> passes_miller_rabin(2**127 - 1)
    True
    """
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    power = pow(2 + system_below(number - 3), odd, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False
