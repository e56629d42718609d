"""The private key, which decrypts and encrypts faster than the public one; and new key pairs."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, overload

import gmpy2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.crypto.backend import backend
from tacit.crypto.paillier.public import (
    SAFE_BITS,
    SECURITY,
    SMALLEST_BITS,
    Ciphertext,
    Exponents,
    Kind,
    Noise,
    PublicKey,
    exponent_bits,
)
from tacit.crypto.paillier.vector import Beyond, CiphertextVector, Layout
from tacit.crypto.primes import is_prime, random_prime
from tacit.crypto.ring import Backend, Ring, Rows, Table, in_blocks, random_below, to_integers
from tacit.errors import CipherError, ConfigError, KeysError
from tacit.randomness import system_below

DEFAULT_BITS = 3072

_NUMBERS = ("p", "q", "order_p", "order_q")
_CLOSE = 100  # primes whose difference is this many bits shorter than they are fall to Fermat's factoring


@dataclass(frozen=True, kw_only=True)
class PrivateKey:
    r"""The primes of a public key, and the orders of its noise modulo each.

    With :math:`d_p` the order of the noise modulo :math:`p^2` (p - 1, or :math:`2\alpha_p` for a subgroup key),
    :math:`c^{d_p} = 1 + n m d_p \bmod p^2`. From this and the same modulo :math:`q^2` the Chinese remainder theorem
    gives :math:`nm \bmod n^2`, and m by an exact division. Powers run in time that tells nothing of the exponents.

    Attributes:
        public: the public key.
        p, q: its prime factors.
        order_p, order_q: the orders of the noise modulo p and q.
    """

    public: PublicKey
    p: int = field(repr=False)
    q: int = field(repr=False)
    order_p: int = field(repr=False)
    order_q: int = field(repr=False)

    def __post_init__(self) -> None:
        if self.p * self.q != self.public.n or not (gmpy2.is_prime(self.p) and gmpy2.is_prime(self.q)):
            raise KeysError("The private key's p and q are not the prime factors of its n: the key is damaged.")
        close = self.public.bits > 512 and abs(self.p - self.q).bit_length() < self.public.bits // 2 - _CLOSE
        if self.p == self.q or close:
            raise KeysError("The private key's primes are too close together: n can be factored. Make a new key.")
        orders = self.order_p, self.order_q
        if min(orders) < 2 or (self.p - 1) % self.order_p or (self.q - 1) % self.order_q or gmpy2.gcd(*orders) != 2:
            raise KeysError(
                "The private key's orders do not divide p - 1 and q - 1, or have another divisor in common than 2: the "
                "key is damaged, or was not made by Tacit."
            )
        if gmpy2.gcd(self.public.n, (self.p - 1) * (self.q - 1)) != 1:
            raise KeysError("The private key's n has a divisor in common with p - 1 or q - 1: it has no n-th roots.")
        h = self.public.h
        for prime, order in ((self.p, self.order_p), (self.q, self.order_q)):
            if gmpy2.powmod_sec(h, order, prime * prime) != 1:
                raise KeysError("The private key does not belong to its public key: h has another order.")

    def to_dict(self) -> dict[str, Any]:
        """Return the key as plain values, numbers in hexadecimal: all of its secrets."""
        secrets = {name: f"{getattr(self, name):x}" for name in _NUMBERS}
        return {"public": self.public.to_dict(), **secrets}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> PrivateKey:
        """Read what :meth:`to_dict` returned, and check it."""
        try:
            public, numbers = plain["public"], {name: int(plain[name], 16) for name in _NUMBERS}
        except (KeyError, TypeError, ValueError):  # the value is not shown: it may be a secret
            raise KeysError(
                f"Expected public, {', '.join(_NUMBERS)} of a private Paillier key, numbers in hexadecimal."
            ) from None
        if min(numbers.values()) < 1:
            raise KeysError("A number of the private key is not positive: the key is damaged.")
        return cls(public=PublicKey.from_dict(public), **numbers)

    @functools.cached_property
    def _backend(self) -> Backend:
        return backend()

    @functools.cached_property
    def rings(self) -> tuple[Ring, Ring]:
        """The integers modulo p squared and modulo q squared."""
        return self._backend.ring(self.p * self.p), self._backend.ring(self.q * self.q)

    @functools.cached_property
    def tables(self) -> tuple[Table, Table]:
        """The powers of h modulo p squared and modulo q squared."""
        left, right = self.rings
        return (
            left.table(self.public.h % left.modulus, bits=self.order_p.bit_length()),
            right.table(self.public.h % right.modulus, bits=self.order_q.bit_length()),
        )

    @functools.cached_property
    def lifts(self) -> tuple[int, int]:
        """The numbers that are 1 modulo one square and 0 modulo the other."""
        left, right = (ring.modulus for ring in self.rings)
        return int(right * gmpy2.invert(right, left)), int(left * gmpy2.invert(left, right))

    def take(self, count: int, *, workers: int | None = None, aside: bool = False) -> Rows:
        """Return ``count`` fresh encryptions of zero, uniform in the group that h generates.

        The exponents modulo the two orders are independent but for their parity, which is that of one exponent: the
        orders have the divisor 2 in common and no other.
        """
        table_p, table_q = self.tables
        exponents_p, exponents_q = random_below(self.order_p, count), random_below(self.order_q, count)
        exponents_q[:, -1] = (exponents_q[:, -1] & 0xFE) | (exponents_p[:, -1] & 1)
        powers_p = table_p.powers(exponents_p, workers=workers, aside=aside)
        powers_q = table_q.powers(exponents_q, workers=workers, aside=aside)
        lift_p, lift_q = self.lifts
        return self.public.ring.affine([(powers_p, lift_p), (powers_q, lift_q)], 0, workers=workers)

    @overload
    def encrypt(self, message: int | np.integer[Any], *, noise: Noise | None = None) -> Ciphertext: ...

    @overload
    def encrypt(
        self,
        message: ArrayLike,
        layout: Layout | None = None,
        *,
        beyond: Beyond | None = None,
        noise: Noise | None = None,
        workers: int | None = None,
    ) -> CiphertextVector: ...

    def encrypt(self, message: Any, layout: Layout | None = None, **options: Any) -> Ciphertext | CiphertextVector:
        """Encrypt as the public key does, with noise from the key holder's shorter tables."""
        if options.get("noise") is None:  # an empty pool is false, and still the one to ask
            options["noise"] = self
        return self.public.encrypt(message, layout, **options)

    @overload
    def decrypt(self, ciphertext: Ciphertext, *, workers: int | None = None) -> int: ...

    @overload
    def decrypt(
        self, ciphertext: CiphertextVector, *, workers: int | None = None
    ) -> NDArray[np.int64] | NDArray[np.float64]: ...

    def decrypt(
        self, ciphertext: Ciphertext | CiphertextVector, *, workers: int | None = None
    ) -> int | NDArray[np.int64] | NDArray[np.float64]:
        """Return the integer, or the summed vector.

        Raises:
            CipherError: where it is of another key, or no honest sum.
        """
        if ciphertext.key != self.public:
            raise CipherError(
                f"The ciphertext is of key {ciphertext.key.fingerprint[:23]}…, and this private key is of "
                f"{self.public.fingerprint[:23]}… . Use the key it was made with."
            )
        if isinstance(ciphertext, Ciphertext):
            return self.public.signed(to_integers(self.open(ciphertext.row, workers=1))[0])
        return ciphertext.layout.decode(self.open(ciphertext.rows, workers=workers), ciphertext.summands)

    def open(self, rows: Rows, *, workers: int | None = None) -> Rows:
        """Return the plain numbers below n of ciphertext rows."""
        return in_blocks(len(rows), lambda part: self._open(rows[part], part.start, workers), "decrypting")

    def root(self, power: int) -> int:
        """Return the n-th root of a number modulo n: what only this key can take, and no decryption tells."""
        n = self.public.n
        low, high = (int(gmpy2.powmod_sec(power, int(gmpy2.invert(n, prime - 1)), prime)) for prime in (self.p, self.q))
        return low + self.p * ((high - low) * int(gmpy2.invert(self.p, self.q)) % self.q)

    def _open(self, rows: Rows, first: int, workers: int | None) -> Rows:
        n, ring = self.public.n, self.public.ring
        terms = []
        for half, prime, order, lift in zip(
            self.rings, (self.p, self.q), (self.order_p, self.order_q), self.lifts, strict=True
        ):
            bases = half.affine([(rows, 1)], 0, workers=workers)
            powers = half.power(bases, order, secret=True, workers=workers)
            terms.append((powers, int(lift * gmpy2.invert(order, prime) % ring.modulus)))
        scaled = ring.affine(terms, -sum(factor for _, factor in terms) % ring.modulus, workers=workers)
        foreign = np.nonzero(self.public.residues.affine([(scaled, 1)], 0, workers=workers).any(axis=1))[0]
        if len(foreign):
            raise CipherError(
                f"Ciphertext {first + foreign[0]} was not made by this public key: it has a divisor in common "
                "with n, or noise of another group than the key's. It is forged or damaged."
            )
        return self._backend.quotient(scaled, n, workers=workers)


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
