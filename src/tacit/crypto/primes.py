r"""Random primes, and the test of primality.

A prime is drawn by rejection: candidates are uniform numbers of the wanted length and residue class from the operating
system, and the first that is prime is taken. So every prime of the class is equally likely. (Searching upwards from a
random start is faster by a little, and prefers primes after long gaps.) Trial division by all small primes at once,
as one greatest common divisor with their product, and one Fermat test in front keep the full test rare.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import gmpy2
import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError
from tacit.randomness import system_below

_SMALLEST = 8  # bits
_LARGEST_DIVISOR = 1 << 16
_OWN_ROUNDS = 8  # for candidates nobody could choose; see random_prime


def is_prime(number: int, *, rounds: int = 40) -> bool:
    r"""Return whether ``number`` is prime, for numbers that an adversary may have chosen.

    The test of Baillie, Pomerance, Selfridge and Wagstaff, for which no composite is known that passes, and
    ``rounds`` Miller-Rabin tests with bases from the operating system: whoever chose a composite without knowing
    them sees it pass with probability at most :math:`4^{-rounds}` (Rabin 1980).

    >>> is_prime(2**127 - 1), is_prime(3825123056546413051)  # the latter fools the bases 2 to 23
    (True, False)
    """
    if number < 4:
        return number in (2, 3)
    candidate = gmpy2.mpz(number)
    if not gmpy2.is_prime(candidate, 24):  # up to 24 means trial division and the test of the four
        return False
    return all(gmpy2.is_strong_prp(candidate, 2 + system_below(number - 3)) for _ in range(rounds))


def random_prime(bits: int, *, congruent: tuple[int, int] | None = None) -> int:
    r"""Return a uniform prime of ``bits`` bits whose two highest bits are one, from the operating system's randomness.

    Two such primes have a product of exactly twice as many bits. ``congruent=(r, m)`` asks for a prime that is r
    modulo m; m may be large, such as twice a prime that is to divide p - 1.

    The candidate is random, so few rounds leave little doubt: a composite of 1024 bits passes these with
    probability below :math:`2^{-150}`, one of 512 bits below :math:`2^{-100}` (Damgård, Landrock, Pomerance 1993).

    >>> prime = random_prime(64, congruent=(3, 4))
    >>> prime.bit_length(), prime >> 62, prime % 4, is_prime(prime)
    (64, 3, 3, True)
    """
    if bits < _SMALLEST:
        raise ConfigError(f"Expected a prime of bits={bits} >= {_SMALLEST} bits. Keys need 1024 and more.")
    residue, modulus = _odd_class(congruent or (1, 2))
    low, high = 3 << (bits - 2), 1 << bits
    start = low + (residue - low) % modulus  # the first of the class
    count = -((start - high) // modulus)
    if count < bits:  # about one in bits * ln(2) / 2 is prime
        raise ConfigError(
            f"Expected congruent={congruent} to leave many numbers of {bits} bits, it leaves {count}. "
            "Take a smaller modulus or a longer prime."
        )
    divisors = product_of_primes(min(_LARGEST_DIVISOR, 1 << (bits // 2)))
    for _ in range(1000 * bits):  # a class without primes must not turn into an endless loop
        candidate = start + modulus * system_below(count)
        if may_be_prime(candidate, divisors) and is_prime(candidate, rounds=_OWN_ROUNDS):
            return candidate
    raise ConfigError(f"No prime of {bits} bits in the class {congruent} was met in {1000 * bits} draws.")


def may_be_prime(candidate: int, divisors: Any) -> bool:
    """Return False for nearly every composite: trial division by the factors of ``divisors``, then Fermat's test."""
    number = gmpy2.mpz(candidate)
    return bool(gmpy2.gcd(divisors, number) == 1 and gmpy2.powmod(2, number - 1, number) == 1)


def small_primes(limit: int) -> NDArray[np.int64]:
    """Return all primes below ``limit`` (the sieve of Eratosthenes over odd numbers).

    >>> small_primes(20).tolist()
    [2, 3, 5, 7, 11, 13, 17, 19]
    """
    odd = np.ones(max(limit // 2, 1), np.bool_)  # odd[i] stands for 2i + 1
    for half in range(1, (math.isqrt(max(limit - 1, 0)) + 1) // 2):
        if odd[half]:
            odd[2 * half * (half + 1) :: 2 * half + 1] = False
    odd[0] = False
    primes = np.concatenate([[2], 2 * np.flatnonzero(odd) + 1]).astype(np.int64)
    return primes[primes < limit]


@functools.lru_cache(maxsize=4)
def product_of_primes(limit: int) -> Any:
    """Return the product of all primes below ``limit``, as gmpy2 knows it."""
    return gmpy2.primorial(limit - 1)


def _odd_class(congruent: tuple[int, int]) -> tuple[int, int]:
    """Return the class narrowed to odd numbers."""
    residue, modulus = congruent
    if modulus < 1 or math.gcd(residue, modulus) != 1:
        raise ConfigError(
            f"Expected congruent=(r, m) with m >= 1 and no divisor in common, got {congruent}: "
            "that class holds at most one prime."
        )
    residue %= modulus
    if modulus % 2:
        return (residue if residue % 2 else residue + modulus), 2 * modulus
    return residue, modulus
