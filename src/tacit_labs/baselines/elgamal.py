"""ElGamal as textbooks and teaching labs write it, in Python's own integers. For comparison only.

No tables, powers whose time depends on secret exponents, messages that are not encoded as squares: all that Tacit's own
scheme in :mod:`tacit.crypto.elgamal` does otherwise.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from tacit.crypto.primes import small_primes
from tacit.randomness import system_below

_TWIN_CONSTANT = 1.3203236316937391  # 2 C_2 (Hardy, Littlewood 1923)
_DIVISORS_BELOW = 1000


@dataclass(frozen=True, kw_only=True)
class TextbookElGamal:
    r"""Encrypts m as :math:`(g^r, m y^r) \bmod p` with exponents below p (ElGamal 1985)."""

    p: int
    g: int
    y: int
    x: int = field(repr=False)

    @classmethod
    def generate(cls, p: int, g: int) -> TextbookElGamal:
        """Return a new key modulo a prime that is given."""
        x = 1 + system_below(p - 2)
        return cls(p=p, g=g, y=pow(g, x, p), x=x)

    def encrypt(self, message: int) -> tuple[int, int]:
        """Encrypt a number from 1 to p - 1."""
        r = 1 + system_below(self.p - 2)
        return pow(self.g, r, self.p), message * pow(self.y, r, self.p) % self.p

    def decrypt(self, ciphertext: tuple[int, int]) -> int:
        """Return the number."""
        first, second = ciphertext
        return second * pow(pow(first, self.x, self.p), -1, self.p) % self.p

    def multiply(self, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
        """Return a ciphertext of the product modulo p."""
        return left[0] * right[0] % self.p, left[1] * right[1] % self.p


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
