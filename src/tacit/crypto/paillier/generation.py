"""New key pairs."""

from __future__ import annotations

import gmpy2

from tacit.crypto.paillier.private import PrivateKey
from tacit.crypto.paillier.public import SAFE_BITS, SECURITY, SMALLEST_BITS, Exponents, Kind, PublicKey, exponent_bits
from tacit.crypto.primes import is_prime, random_prime
from tacit.errors import ConfigError
from tacit.randomness import system_below

DEFAULT_BITS = 3072


def generate(
    *,
    bits: int = DEFAULT_BITS,
    kind: Kind = "standard",
    exponents: Exponents = "half",
    insecure_key_size: bool = False,
) -> tuple[PublicKey, PrivateKey]:
    """Return a new key pair from the operating system's randomness.

    Args:
        bits: the length of n; 3072 gives 128 bits of security, 2048 gives 112.
        kind: ``subgroup`` keys (Ma, Han and Lei 2021) encrypt and decrypt about four times as fast, on an assumption
            that is not standard.
        exponents: ``short`` ones encrypt about four times as fast, on a stronger assumption.
        insecure_key_size: allow keys of less than 2048 bits, for experiments.
    """
    check_bits(bits, insecure_key_size=insecure_key_size)
    exponent_bits(bits, kind, exponents)  # refuses what does not exist
    while True:
        p, order_p = _prime(bits // 2, bits, kind)
        q, order_q = _prime(bits // 2, bits, kind)
        n = p * q
        halves_share = gmpy2.gcd(p - 1, q - 1) != 2 or gmpy2.gcd(n, (p - 1) * (q - 1)) != 1
        if n.bit_length() == bits and abs(p - q).bit_length() > bits // 2 - 100 and not halves_share:
            break
    while True:
        base = system_below(n)
        cofactor = (p - 1) // order_p * ((q - 1) // order_q)
        residue = -gmpy2.powmod(base, 2 * cofactor, n) % n
        h = int(gmpy2.powmod(residue, n, n * n))
        if gmpy2.gcd(base, n) == 1 and h % n not in (1, n - 1):
            break
    public = PublicKey(n=n, h=h, kind=kind, exponents=exponents)
    return public, PrivateKey(public=public, p=p, q=q, order_p=order_p, order_q=order_q)


def check_bits(bits: int, *, insecure_key_size: bool) -> None:
    """Refuse lengths that are odd, absurd, or insecure without being asked for."""
    if bits % 2 or not SMALLEST_BITS <= bits <= 16384:
        raise ConfigError(f"Expected an even key length from {SMALLEST_BITS} to 16384 bits, got {bits}.")
    if bits < SAFE_BITS and not insecure_key_size:
        raise ConfigError(
            f"A key of {bits} bits is not secure: expected at least {SAFE_BITS} (112 bits of security), {DEFAULT_BITS} "
            "by default. For an experiment say --insecure-key-size (insecure_key_size=True); it is marked in all "
            "that is made with the key."
        )


def _prime(length: int, bits: int, kind: Kind) -> tuple[int, int]:
    """Return a prime that is 3 modulo 4, and the order of the noise modulo it."""
    if kind == "standard":
        p = random_prime(length, congruent=(3, 4))
        return p, p - 1
    short = 2 * SECURITY[bits]
    alpha = random_prime(short)
    low, high = 3 << (length - 2), (1 << length) - 1  # the two top bits are set, so that n has its full length
    while True:
        first, last = low // (2 * alpha) + 1, high // (2 * alpha)
        beta = (first + system_below(last - first)) | 1
        p = 2 * alpha * beta + 1
        if low <= p <= high and gmpy2.gcd(alpha, beta) == 1 and is_prime(p):
            return p, 2 * alpha
