"""Threshold keys of a fixed pair of safe primes, and what their dealer knew: tests only."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

from tacit.crypto import threshold
from tacit.crypto.threshold import KeyShare, ThresholdPublic

SMALL = (0xFBD70A27EFA7341D0E85896D7D5B8B2B, 0xD48FC000D2BB6CADAFADC273373188F7)  # a key of 256 bits
OTHER = (
    0xFE46889437B42AC997E356431E5109A9D923A53C1036FA4D6A42B521EB2FE047,
    0xC72CC6E3D14FF03B56455658E74BE3BACD80BF8D01BB4E16764A164215C9F1CB,
)  # a key of 512 bits
TINY = (0xE2DB1DC60EE9C943, 0xE6084E214DC38C3F)  # a key of 128 bits

Dealt = tuple[ThresholdPublic, tuple[KeyShare, ...]]


def bits_of(primes: tuple[int, int]) -> int:
    return (primes[0] * primes[1]).bit_length()


def order_of(primes: tuple[int, int]) -> int:
    """Return the order of the squares, which the dealer forgets."""
    return (primes[0] - 1) // 2 * ((primes[1] - 1) // 2)


def fresh(shares: int, needed: int, primes: tuple[int, int] = SMALL) -> Dealt:
    return threshold.generate(
        shares=shares, threshold=needed, bits=bits_of(primes), insecure_key_size=True, primes=primes
    )


@functools.cache
def dealt(shares: int = 5, needed: int = 3, primes: tuple[int, int] = SMALL) -> Dealt:
    return fresh(shares, needed, primes)


def at_zero(points: dict[int, int], modulus: int) -> int:
    """Interpolate at zero by the textbook, modulo the order that nobody knows."""
    total = Fraction(0)
    for i, value in points.items():
        total += value * math.prod((Fraction(j, j - i) for j in points if j != i), start=Fraction(1))
    return total.numerator * pow(total.denominator, -1, modulus) % modulus


def plain(ciphertext: int, primes: tuple[int, int]) -> int:
    """Decrypt by the textbook: L(c^lambda) / lambda."""
    p, q = primes
    n, order = p * q, math.lcm(p - 1, q - 1)
    return (pow(ciphertext, order, n * n) - 1) // n * pow(order, -1, n) % n
