"""A holder's share of the private key, and the dealer, who makes a threshold key and forgets what nobody may know."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gmpy2

from tacit.crypto.paillier import Ciphertext, CiphertextVector, PublicKey
from tacit.crypto.paillier.private import DEFAULT_BITS, check_bits
from tacit.crypto.primes import Progress, is_prime, safe_prime
from tacit.crypto.threshold.partial import PartialDecryption, digest, rows_of
from tacit.crypto.threshold.partial import prove as prove_partial
from tacit.crypto.threshold.public import ThresholdPublic, check_counts, lift
from tacit.errors import CipherError, ConfigError, KeysError
from tacit.randomness import system_below

_CLOSE = 100  # primes whose difference is this many bits shorter than they are fall to Fermat's factoring


@dataclass(frozen=True, kw_only=True)
class KeyShare:
    r"""One of the shares that decrypt together (Shoup 2000).

    The dealer hands out :math:`s_i = f(i) + u_i m`, where :math:`u_i` is random, and the holder raises to
    :math:`2 \Delta s_i` with :math:`\Delta = l!`. What is added of the order m makes no difference there, and lets
    holders make their shares fresh (:mod:`tacit.crypto.threshold.refresh`). The exponent is
    :math:`128 + 2 \log_2 l!` bits longer than n: 142 bits for 5 holders, 1178 for 100. To hand out
    :math:`\Delta f(i)`, reduced, would give away roots: see :mod:`tacit.crypto.threshold`.

    Attributes:
        public: the public part, with the numbers that all holders know.
        index: the number of the share, from 1.
        secret: the share, :math:`s_i`; longer than n, but for keys that were made before shares could be fresh.
    """

    public: ThresholdPublic
    index: int
    secret: int = field(repr=False)

    def __post_init__(self) -> None:
        count = self.public.shares
        if not isinstance(self.index, int) or isinstance(self.index, bool) or not 1 <= self.index <= count:
            raise KeysError(f"Expected the number of a share from 1 to {count}, got {self.index!r}.")
        n, v = self.public.key.n, self.public.verifier
        beyond = 1 << (self.public.bits + self.public.spare_bits)
        if not 0 < self.secret < beyond or gmpy2.powmod_sec(v, self.secret, n) != self.public.verifiers[self.index - 1]:
            raise KeysError(
                f"The secret of share {self.index} does not belong to its public key, or to another share: it is "
                "damaged, or was exchanged. Use a copy of it."
            )

    def partial(
        self, ciphertext: Ciphertext | CiphertextVector, *, prove: bool = False, workers: int | None = None
    ) -> PartialDecryption:
        r"""Return this holder's part of a decryption: :math:`(c \bmod n)^{2 \Delta s_i} \bmod n` of every ciphertext c.

        The power runs in time that tells nothing of the share. It costs about what a decryption with the whole key
        costs: that takes two powers modulo numbers of the same length, with exponents of half the length.

        Args:
            ciphertext: an encrypted integer or vector. Look at it first: whoever combines learns what it holds.
            prove: add a proof that this share was used; one for all ciphertexts of a vector.
            workers: how many cores to use; by default all.
        """
        bound = digest(ciphertext)
        if ciphertext.key != self.public.key:
            raise CipherError(
                f"The ciphertext is of key {ciphertext.key.fingerprint[:23]}…, and share {self.index} is of a "
                f"threshold key that encrypts with {self.public.key.fingerprint[:23]}… . Use the share of that key."
            )
        ring = self.public.key.residues
        bases = ring.affine([(rows_of(ciphertext), 1)], 0)
        if gmpy2.gcd(ring.fold(bases), ring.modulus) != 1:
            raise CipherError("A ciphertext has a divisor in common with n, which no encryption gives: it is forged.")
        rows = ring.power(bases, 2 * self.public.delta * self.secret, secret=True, workers=workers)
        proof = prove_partial(self.public, self.index, self.secret, bound, bases, rows) if prove else None
        return PartialDecryption(
            identity=self.public.identity, index=self.index, ciphertext=bound, rows=rows, proof=proof
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the share as plain values, large numbers in hexadecimal: its secret too."""
        return {"public": self.public.to_dict(), "index": self.index, "secret": f"{self.secret:x}"}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> KeyShare:
        """Read what :meth:`to_dict` returned, and check it."""
        try:
            public, index, secret = plain["public"], plain["index"], int(plain["secret"], 16)
        except (KeyError, TypeError, ValueError):  # the value is not shown: it may be a secret
            raise KeysError("Expected public, index and secret of a share, the secret in hexadecimal.") from None
        return cls(public=ThresholdPublic.from_dict(public), index=index, secret=secret)


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
    :math:`f(i) \bmod m`, as in Shoup (2000), plus a random multiple of m. Nothing that is returned tells p, q or m.
    They are forgotten when this returns, but Python can't wipe memory: let the dealer's process end, on a machine
    without swap, before the key is used.

    Args:
        shares: how many holders there are, at most 100.
        threshold: how many of them decrypt together, more than half of all; fewer learn nothing.
        bits: the length of n; 3072 gives 128 bits of security, 2048 gives 112.
        insecure_key_size: allow keys of less than 2048 bits, for experiments.
        workers: threads for the search of primes; one per core where it is left out.
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
    secrets = [
        sum(a * index**power for power, a in enumerate(polynomial)) % order + order * system_below(lift(shares))
        for index in range(1, shares + 1)
    ]
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
