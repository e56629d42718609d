"""The public part of a threshold key: encrypts as any Paillier key does, and combines what the holders send."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, overload

import gmpy2
import numpy as np
from numpy.typing import NDArray

from tacit.crypto.paillier import Ciphertext, CiphertextVector, PublicKey
from tacit.crypto.threshold.combination import Combined, combine, disproved, weights
from tacit.crypto.threshold.partial import PartialDecryption
from tacit.errors import KeysError

HIDING_BITS = 128  # what should tell nothing is within 2^-128 of what does
REFRESHES = 1 << 32  # of a key
LARGEST_COUNT = 100  # holders; the factorial of their number lengthens the exponents
FORM = 2  # of the shares: f(i), where form 1 had its product with the factorial, reduced


@dataclass(frozen=True, kw_only=True)
class ThresholdPublic:
    r"""A Paillier key whose private half is shared out: any ``threshold`` of ``shares`` holders decrypt.

    With :math:`\Delta = l!` and a secret polynomial f of degree t - 1 with :math:`nf(0) = 1` modulo the order of the
    squares, holder i has :math:`s_i = f(i)`, and :math:`v_i = v^{s_i} \bmod n` is public. Everybody can check that the
    :math:`v_i` lie on such a polynomial, which is done here.

    Attributes:
        key: encrypts; the ciphertexts are those of any Paillier key.
        shares: how many holders there are, l.
        threshold: how many of them decrypt, t.
        verifier: a square v that generates all squares modulo n.
        verifiers: v to the power of each share.
    """

    key: PublicKey
    shares: int
    threshold: int
    verifier: int
    verifiers: tuple[int, ...]

    def __post_init__(self) -> None:
        check_counts(self.shares, self.threshold)
        n = self.key.n
        if self.key.kind != "standard" or n % 4 != 1:
            raise KeysError(
                f"A threshold key needs a standard Paillier key of two safe primes, got a {self.key.kind} one"
                f"{'' if n % 4 == 1 else ' whose n is 3 modulo 4'}. Use a key that Tacit made."
            )
        if len(self.verifiers) != self.shares:
            raise KeysError(f"Expected {self.shares} verification keys, one per share, got {len(self.verifiers)}.")
        for name, value in (("v", self.verifier), *((f"v_{i}", v) for i, v in enumerate(self.verifiers, 1))):
            if not 1 <= value < n or gmpy2.jacobi(value, n) != 1:
                raise KeysError(f"The verification key {name} is no square modulo n. Use a key that Tacit made.")
        if gmpy2.gcd(self.verifier - 1, n) != 1 or gmpy2.gcd(self.verifier + 1, n) != 1:
            raise KeysError("The verification key v generates a smaller group than it has to. Use a key Tacit made.")
        self._check_polynomial()

    def _check_polynomial(self) -> None:
        r"""Check the :math:`v_i` as Feldman (1987) does: differences of order t vanish, and :math:`nf(0) = 1`."""
        n, t = self.key.n, self.threshold
        for first in range(self.shares - t):
            odd = even = gmpy2.mpz(1)
            for place in range(t + 1):
                power = gmpy2.powmod(self.verifiers[first + place], math.comb(t, place), n)
                odd, even = (odd * power % n, even) if place % 2 else (odd, even * power % n)
            if odd != even:
                raise KeysError(
                    f"The verification keys {first + 1} to {first + t + 1} contradict each other: the key is damaged."
                )
        _, factors = weights(range(1, t + 1))  # consecutive numbers from 1: the common denominator is 1
        constant = gmpy2.mpz(1)
        for index, factor in factors.items():
            constant = constant * gmpy2.powmod(self.verifiers[index - 1], factor, n) % n
        if gmpy2.powmod(constant, n, n) != self.verifier:
            raise KeysError("The verification keys are not of shares that decrypt: the key is damaged.")

    @functools.cached_property
    def delta(self) -> int:
        """The factorial of the number of shares, which clears all denominators."""
        return math.factorial(self.shares)

    @functools.cached_property
    def spare_bits(self) -> int:
        """How much longer than n a share can be."""
        return spare_bits(self.shares, self.threshold)

    @property
    def bits(self) -> int:
        """The length of n."""
        return self.key.bits

    @property
    def insecure(self) -> bool:
        """Whether the key is too short for anything but experiments."""
        return self.key.insecure

    @property
    def assumption(self) -> str:
        """What has to hold for the key to be secure."""
        return f"{self.key.assumption}; and that the dealer forgot the primes, and fewer than {self.threshold} collude"

    @functools.cached_property
    def identity(self) -> bytes:
        """The SHA-256 digest of everything in the key."""
        verifiers = "".join(f"v_{index} {value:x}\n" for index, value in enumerate(self.verifiers, 1))
        text = (
            f"tacit threshold paillier public key 2\nkey {self.key.identity.hex()}\nshares {self.shares}\n"
            f"threshold {self.threshold}\nv {self.verifier:x}\n{verifiers}"
        )
        return hashlib.sha256(text.encode()).digest()

    @property
    def fingerprint(self) -> str:
        """The identity as people compare it: 32 groups of two digits."""
        return self.identity.hex(":")

    @overload
    def combine(
        self,
        ciphertext: Ciphertext,
        partials: Iterable[PartialDecryption],
        *,
        verify: bool = False,
        workers: int | None = None,
    ) -> Combined[int]: ...

    @overload
    def combine(
        self,
        ciphertext: CiphertextVector,
        partials: Iterable[PartialDecryption],
        *,
        verify: bool = False,
        workers: int | None = None,
    ) -> Combined[NDArray[np.int64] | NDArray[np.float64]]: ...

    def combine(
        self,
        ciphertext: Ciphertext | CiphertextVector,
        partials: Iterable[PartialDecryption],
        *,
        verify: bool = False,
        workers: int | None = None,
    ) -> Combined[int] | Combined[NDArray[np.int64] | NDArray[np.float64]]:
        """Return the integer or the summed vector, the shares that were used, and those found to be wrong.

        The result is right in any case, or there is none. Wrong shares are left out where enough others remain.

        Args:
            ciphertext: what was decrypted.
            partials: one each from at least ``threshold`` holders.
            verify: look at the proofs of all first, and so know for certain whose share is wrong; without it shares are
                looked at only where they don't combine: by their proofs, and without proofs by which agree, see
                :class:`Combined`.
            workers: how many cores to use; by default all.

        Raises:
            CipherError: where shares are missing, twice there, wrong, or of another key or ciphertext; it names them.
        """
        rows, used, wrong = combine(self, ciphertext, list(partials), verify=verify, workers=workers)
        if isinstance(ciphertext, Ciphertext):
            return Combined(value=self.key.signed(int.from_bytes(rows.tobytes(), "big")), used=used, wrong=wrong)
        return Combined(value=ciphertext.layout.decode(rows, ciphertext.summands), used=used, wrong=wrong)

    def disproved(
        self, ciphertext: Ciphertext | CiphertextVector, partials: Iterable[PartialDecryption]
    ) -> tuple[int, ...]:
        """Return the numbers of the shares whose proofs don't hold; of those without a proof nothing is said."""
        return disproved(self, ciphertext, list(partials))

    def to_dict(self) -> dict[str, Any]:
        """Return the key as plain values, large numbers in hexadecimal."""
        return {
            "form": FORM,
            "key": self.key.to_dict(),
            "shares": self.shares,
            "threshold": self.threshold,
            "verifier": f"{self.verifier:x}",
            "verifiers": [f"{value:x}" for value in self.verifiers],
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> ThresholdPublic:
        """Read what :meth:`to_dict` returned, from anyone: all of it is checked."""
        if isinstance(plain, Mapping) and "verifiers" in plain and plain.get("form") != FORM:
            raise KeysError(
                f"The threshold key has form {plain.get('form', 1)!r}, expected {FORM}. Shares of form 1 let a holder "
                "learn more than the sums it helps to open. Make new keys with `tacit keys new paillier --shares T/L`."
            )
        try:
            key, shares, threshold = plain["key"], plain["shares"], plain["threshold"]
            verifier, verifiers = int(plain["verifier"], 16), tuple(int(value, 16) for value in plain["verifiers"])
        except (KeyError, TypeError, ValueError) as error:
            raise KeysError(
                f"Expected key, shares, threshold, verifier and verifiers of a threshold key: {error!r}."
            ) from error
        return cls(
            key=PublicKey.from_dict(key), shares=shares, threshold=threshold, verifier=verifier, verifiers=verifiers
        )


def lift(shares: int) -> int:
    """Return below what a dealer draws the multiple of the secret order that it adds to a share."""
    return math.factorial(shares) << HIDING_BITS


def coefficients_below(n: int, shares: int, threshold: int) -> int:
    """Return below what a holder draws coefficients that make shares fresh; both bounds are argued in refresh.py."""
    return (n * lift(shares) * threshold * math.factorial(shares + 1)) << HIDING_BITS


def spare_bits(shares: int, threshold: int) -> int:
    """Return how much longer than n a share can be, in whole bytes: after 2^32 refreshes by all holders.

    >>> spare_bits(5, 3), spare_bits(100, 51)
    (320, 1696)
    """
    powers: int = shares ** (threshold - 1)
    largest = coefficients_below(1, shares, threshold) * threshold * powers
    return -(-(largest * shares * REFRESHES).bit_length() // 8) * 8


def check_counts(shares: int, threshold: int) -> None:
    """Raise KeysError where ``threshold`` of ``shares`` is no key that can be."""
    whole = all(isinstance(count, int) and not isinstance(count, bool) for count in (shares, threshold))
    if not whole or not 1 <= threshold <= shares <= LARGEST_COUNT:
        raise KeysError(
            f"Expected 1 <= threshold <= shares <= {LARGEST_COUNT}, got threshold={threshold!r} of shares={shares!r}."
        )
    if 2 * threshold <= shares:
        raise KeysError(
            f"With {threshold} of {shares} shares two groups of holders that have nobody in common could open two sums "
            f"of one round, and the difference of the sums shows what a single client sent. Expected more than half: "
            f"at least {shares // 2 + 1} of {shares}."
        )
