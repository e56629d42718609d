"""The dealer: makes a threshold key, and forgets what nobody may know."""

from __future__ import annotations

import math

import gmpy2

from tacit.crypto.paillier import PublicKey
from tacit.crypto.paillier.generation import DEFAULT_BITS, check_bits
from tacit.crypto.primes import is_prime
from tacit.crypto.safe_primes import Progress, safe_prime
from tacit.crypto.threshold.public import ThresholdPublic, check_counts
from tacit.crypto.threshold.share import KeyShare
from tacit.errors import ConfigError, KeysError
from tacit.randomness import system_below

_CLOSE = 100  # primes whose difference is this many bits shorter than they are fall to Fermat's factoring


def generate(
    *,
    shares: int = 5,
    threshold: int = 3,
    bits: int = DEFAULT_BITS,
    insecure_key_size: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
    primes: tuple[int, int] | None = None,
) -> tuple[ThresholdPublic, tuple[KeyShare, ...]]:
    r"""Return a new threshold key from the operating system's randomness, as its dealer.

    With safe primes p = 2p'+1 and q = 2q'+1, m = p'q' is the order of the squares modulo n. The secret is
    :math:`1/n \bmod m`, the constant of a random polynomial f modulo m of degree t - 1 (Shamir 1979), and holder i gets
    :math:`f(i) \bmod m`, as in Shoup (2000). Nothing that is returned tells p, q or m. They are forgotten when this
    returns, but Python can't wipe memory: let the dealer's process end, on a machine without swap, before the key is
    used.

    Args:
        shares: how many holders there are, at most 100.
        threshold: how many of them decrypt together, more than half of all; fewer learn nothing.
        bits: the length of n; 3072 gives 128 bits of security, 2048 gives 112.
        insecure_key_size: allow keys of less than 2048 bits, for experiments.
        workers: threads for the search of primes; one a core where it is left out.
        progress: is called ten times a second with the candidates tested and the mean number a search takes, for
            each of the two primes.
        primes: two safe primes to use; nobody else may ever have seen them.
    """
    check_bits(bits, insecure_key_size=insecure_key_size)
    try:
        check_counts(shares, threshold)
    except KeysError as error:
        raise ConfigError(str(error)) from error
    p, q = _checked(primes, bits) if primes else _search(bits, workers, progress)
    n, order = p * q, (p // 2) * (q // 2)
    if min(p // 2, q // 2) <= shares:
        raise ConfigError(f"A key of {bits} bits is too short for {shares} shares. Use a longer one.")
    verifier = _square(n)
    polynomial = [int(gmpy2.invert(n, order)), *(system_below(order) for _ in range(threshold - 1))]
    secrets = [sum(a * index**power for power, a in enumerate(polynomial)) % order for index in range(1, shares + 1)]
    public = ThresholdPublic(
        key=PublicKey(n=n, h=int(gmpy2.powmod(-_square(n) % n, n, n * n))),
        shares=shares,
        threshold=threshold,
        verifier=verifier,
        verifiers=tuple(int(gmpy2.powmod_sec(verifier, secret, n)) for secret in secrets),
    )
    return public, tuple(KeyShare(public=public, index=index, secret=secret) for index, secret in enumerate(secrets, 1))


def _square(n: int) -> int:
    """Return a random generator of the squares: one that is not 1 modulo either of the safe primes."""
    while True:
        square = int(pow(system_below(n), 2, n))
        if gmpy2.gcd(square, n) == 1 and gmpy2.gcd(square - 1, n) == 1:
            return square


def _search(bits: int, workers: int | None, progress: Progress | None) -> tuple[int, int]:
    while True:
        p, q = (safe_prime(bits // 2, workers=workers, progress=progress) for _ in range(2))
        if not _unfit(p, q, bits):
            return p, q


def _checked(primes: tuple[int, int], bits: int) -> tuple[int, int]:
    p, q = primes
    for name, prime in (("first", p), ("second", q)):
        if prime < 7 or not is_prime(prime) or not is_prime(prime // 2):
            raise ConfigError(f"The {name} of the primes is no safe prime. Leave them out to have new ones made.")
    problem = _unfit(p, q, bits)
    if problem:
        raise ConfigError(f"The primes {problem}. Leave them out to have new ones made.")
    return p, q


def _unfit(p: int, q: int, bits: int) -> str:
    """Return why two safe primes make no good key, or nothing."""
    if (p * q).bit_length() != bits:
        return f"have a product of {(p * q).bit_length()} bits, expected {bits}"
    if p == q or (bits > 512 and abs(p - q).bit_length() < bits // 2 - _CLOSE):
        return "are equal or too close together, so that n can be factored"
    if math.gcd(p * q, (p - 1) * (q - 1)) != 1:
        return "divide each other's p - 1, so that n-th roots are not unique"
    return ""
