"""Paillier as textbooks and teaching labs write it, on gmpy2's integers or on Python's own. For comparison only.

No packing, no tables, no Chinese remainders, powers whose time depends on secret exponents: all that Tacit's own scheme
in :mod:`tacit.crypto.paillier` does otherwise. The five operations are those of the source documents
``000_040aa826a603186f.txt`` and ``003_80a3edf6a6b18d18.txt``, under their names.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import gmpy2

from tacit.crypto.primes import random_prime
from tacit.randomness import system_below


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """Integers and their powers modulo something: the only part in which the two versions differ."""

    name: str
    number: Callable[[int], int]  # the same number as this library's integer
    power: Callable[[int, int, int], int]


PYTHON = Arithmetic(name="textbook, Python", number=int, power=pow)
GMPY2 = Arithmetic(name="textbook, gmpy2", number=gmpy2.mpz, power=gmpy2.powmod)
ARITHMETICS = {one.name: one for one in (GMPY2, PYTHON)}


@dataclass(frozen=True, kw_only=True)
class TextbookPaillier:
    r"""Encrypts m as :math:`g^m r^n \bmod n^2` and decrypts with Carmichael's function (Paillier 1999).

    Numbers are residues modulo n, from 0 to n - 1. The generator is a random one, so the message costs a power that
    grows with its length.

    >>> key = TextbookPaillier.generate(256)
    >>> key.dec(key.enc_add(key.enc(2021), key.enc(2000))), key.dec(key.enc_mul_const(key.enc(2021), 4))
    (4021, 8084)
    """

    n: int
    g: int
    square: int  # n^2, the modulus of ciphertexts
    order: int = field(repr=False)  # lcm(p - 1, q - 1)
    scale: int = field(repr=False)  # the inverse of L(g^order) modulo n
    power: Callable[[int, int, int], int] = field(repr=False)

    @classmethod
    def generate(cls, bits: int, arithmetic: Arithmetic = PYTHON) -> TextbookPaillier:
        """Return a key with two random primes and a random generator."""
        p = q = random_prime(bits // 2)
        while q == p:
            q = random_prime(bits // 2)
        n, order = p * q, math.lcm(p - 1, q - 1)
        while True:
            g = 2 + system_below(n * n - 2)
            residue = (pow(g, order, n * n) - 1) // n
            if math.gcd(g, n) == 1 and math.gcd(residue, n) == 1:
                scale, number = pow(residue, -1, n), arithmetic.number
                return cls(
                    n=number(n),
                    g=number(g),
                    square=number(n * n),
                    order=number(order),
                    scale=number(scale),
                    power=arithmetic.power,
                )

    def enc(self, message: int) -> int:
        """Encrypt a number that is not negative."""
        return self.power(self.g, message, self.square) * self.noise() % self.square

    def noise(self) -> int:
        """Return an encryption of zero: the n-th power of a number without a common divisor with n."""
        while True:
            r = 1 + system_below(int(self.n) - 1)
            if math.gcd(r, self.n) == 1:
                return self.power(r, self.n, self.square)

    def dec(self, ciphertext: int) -> int:
        """Return the number modulo n."""
        return (self.power(ciphertext, self.order, self.square) - 1) // self.n * self.scale % self.n

    def enc_add(self, left: int, right: int) -> int:
        """Return a ciphertext of the sum of two encrypted numbers."""
        return left * right % self.square

    def enc_add_const(self, ciphertext: int, number: int) -> int:
        """Return a ciphertext of the sum with a known number."""
        return ciphertext * self.power(self.g, number, self.square) % self.square

    def enc_mul_const(self, ciphertext: int, number: int) -> int:
        """Return a ciphertext of the product with a known number."""
        return self.power(ciphertext, number, self.square)
