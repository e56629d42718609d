r"""Proofs that whoever made ciphertexts knows what is in them; one proof for all rows of a vector.

Ciphertexts can be multiplied by anybody, so a ciphertext alone does not show that its sender knows its content: the
inverse of what others sent takes them out of a sum. With :func:`encrypted` a vector comes with a proof, made for a
context (such as run, round and sender) and worth nothing in another; :func:`unproved` looks at the proofs of many.

**The proof.** For rows :math:`c_k = (1 + n)^{m_k} h^{s_k} \bmod n^2` the prover draws a below n and b, and sends

.. math:: A = (1 + n)^a h^b, \qquad z = a + \sum_k e_k m_k \bmod n, \qquad w = b + \sum_k e_k s_k,

where the challenges :math:`e_k` are 128 bits each of a hash of key, context, all rows and A (Schnorr 1991 in the form
of Fiat and Shamir 1986; every part of the statement is hashed: Bernhard, Pereira and Warinschi 2012). It is right where
:math:`(1 + n)^z h^w = A \prod_k c_k^{e_k}`.

**It tells nothing** of messages and noise: a is uniform modulo n, and b is 128 bits longer than the sum it hides, so z
and w are within :math:`2^{-128}` of what can be drawn without knowing either, for any challenges.

**It shows knowledge.** Every unit c modulo n squared is :math:`(1 + n)^m r^n` for exactly one m below n; call it D(c).
D turns products into sums, and D(h) = 0, so a right proof says

.. math:: z = D(A) + \sum_k e_k D(c_k) \bmod n.

Who can answer two challenges that differ in :math:`e_k` alone, by z and z', can compute :math:`D(c_k) = (z - z') /
(e_k - e'_k) \bmod n`: the difference is shorter than the primes of n, and so has an inverse. And who can answer with a
chance of more than about :math:`2^{-128}` per hash can answer two, in the random oracle model. The noise does not come
into it: rows may have signs, or noise outside the group of h, which no decryption sees.

**Many proofs at once.** A verifier draws :math:`\delta_i` of 128 bits and compares the products of both sides to the
powers of :math:`2 \delta_i`: one power of h for all. Were an equation of D's wrong, it would be wrong modulo p or q,
and at most one :math:`\delta_i` there hides that. Elements of small order do no harm, as all that is wanted is what D
sees; squaring removes the signs, so that under a key of safe primes two verifiers come to the same answer.

**What it is not.** It is no proof of a range: a message may be any number below n that its sender knows. And where many
such ciphertexts are decrypted one after another, that their senders know the messages of all is shown with one
assumption more, the algebraic model (docs/mathematics.md says why, and gives the argument).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import gmpy2
import numpy as np

from tacit.crypto.batch import COEFFICIENT_BYTES, coefficients, combined
from tacit.crypto.paillier.public import Noise, PublicKey
from tacit.crypto.ring import Rows, from_integers, random_below, to_integers
from tacit.errors import CipherError
from tacit.randomness import system_below, system_bytes

_COUNT_BITS = 32  # of rows: a vector has fewer than 2^32
_HIDING_BITS = 128
_HOLD: set[bytes] = set()
_MOST_HOLD = 1 << 14
_SPARE_BITS = 8 * COEFFICIENT_BYTES + _COUNT_BITS + _HIDING_BITS  # by which b is longer than an exponent, at least


@dataclass(frozen=True, kw_only=True)
class KnownNoise:
    """Noise with the exponents that it was made with, side by side in each row: a source for a pool.

    Attributes:
        key: that encrypts.
    """

    key: PublicKey

    def take(self, count: int, *, workers: int | None = None, aside: bool = False) -> Rows:
        """Return ``count`` rows of an exponent and of h to its power."""
        exponents = random_below(1 << self.key.noise_bits, count)
        return np.hstack([exponents, self.key.table.powers(exponents, workers=workers, aside=aside)])


@dataclass(frozen=True, kw_only=True)
class Proof:
    """That rows were made by somebody who knows what is in them.

    Attributes:
        commitment: A, a unit below n squared.
        message: z, below n.
        noise: w.
    """

    commitment: int
    message: int
    noise: int

    def to_bytes(self, key: PublicKey) -> bytes:
        """Return the proof as it travels; all proofs under a key are equally long."""
        parts = zip((self.commitment, self.message, self.noise), _widths(key), strict=True)
        return b"".join(number.to_bytes(width, "big") for number, width in parts)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, key: PublicKey) -> Proof:
        """Read what :meth:`to_bytes` wrote, from anyone: whether it is right is seen by :func:`unproved`."""
        if len(data) != proof_bytes(key):
            raise CipherError(f"Expected a proof of knowledge of {proof_bytes(key)} bytes, got {len(data)}.")
        first, second, _ = _widths(key)
        numbers = data[:first], data[first : first + second], data[first + second :]
        commitment, message, noise = (int.from_bytes(number, "big") for number in numbers)
        if not 0 < commitment < key.square or message >= key.n:
            raise CipherError("A proof of knowledge has a number beyond the key's modulus, which no prover sends.")
        return cls(commitment=commitment, message=message, noise=noise)


@dataclass(frozen=True, kw_only=True, eq=False)
class Claim:
    """Ciphertexts, what they were made for, and the proof that comes with them."""

    rows: Rows
    context: bytes
    proof: Proof


def proof_bytes(key: PublicKey) -> int:
    """Return how long a proof is as it travels."""
    return sum(_widths(key))


def encrypted(
    key: PublicKey, messages: Rows, context: bytes, *, noise: Noise, workers: int | None = None
) -> tuple[Rows, Proof]:
    """Return ciphertexts of numbers below n, such as packed rows, and the proof that their maker knows the numbers.

    Args:
        key: encrypts.
        messages: the numbers.
        context: what the ciphertexts are made for; the proof is worth nothing in another.
        noise: a :class:`KnownNoise`, or a pool of it.
        workers: how many cores to use; by default all.
    """
    parted = _Parted(source=noise, width=-(-key.noise_bits // 8), powers=key.ring.width)
    rows = key.encrypt_rows(messages, noise=parted, workers=workers)
    return rows, _proved(key, messages, np.concatenate(parted.exponents), rows, context)


def unproved(
    key: PublicKey, claims: Sequence[Claim], *, known: set[bytes] = _HOLD, workers: int | None = None
) -> list[int]:
    """Return the places of the claims whose proofs don't hold; where all do, that takes one power of h in all.

    Args:
        key: that the claims are of.
        claims: from anyone.
        known: hashes of claims with proofs that hold, which are not looked at again; new ones are added. By default
            those of this process: a key holder that is asked again, and a simulation of several, check each proof once.
        workers: how many cores to use; by default all.
    """
    bounds = [_bound(key, claim.rows, claim.context, claim.proof.commitment) for claim in claims]
    marks = [hashlib.sha256(b + claim.proof.to_bytes(key)).digest() for b, claim in zip(bounds, claims, strict=True)]
    new = [place for place, mark in enumerate(marks) if mark not in known]
    sides = {place: _raised(key, claims[place], bounds[place], workers) for place in new}
    wrong: list[int] = []
    if new and not _equal(key, [claims[place] for place in new], list(sides.values())):
        wrong = [place for place in new if not _equal(key, [claims[place]], [sides[place]])]
    if len(known) + len(new) > _MOST_HOLD:
        known.clear()
    known.update(marks[place] for place in new if place not in wrong)
    return wrong


@dataclass(frozen=True, kw_only=True)
class _Parted:
    """Takes known noise apart: gives its powers away and keeps the exponents."""

    source: Noise
    width: int  # bytes of an exponent
    powers: int  # and of a power
    exponents: list[Rows] = field(default_factory=list, repr=False)

    def take(self, count: int, *, workers: int | None = None, aside: bool = False) -> Rows:
        rows = self.source.take(count, workers=workers, aside=aside)
        if rows.shape[1] != self.width + self.powers:
            raise ValueError(
                f"The noise has rows of {rows.shape[1]} bytes, expected exponents of {self.width} and powers of "
                f"{self.powers}: use a KnownNoise."
            )
        self.exponents.append(rows[:, : self.width])
        return np.ascontiguousarray(rows[:, self.width :])


def _proved(key: PublicKey, messages: Rows, exponents: Rows, rows: Rows, context: bytes) -> Proof:
    a, (b, power) = system_below(key.n), _long_power(key)
    commitment = (1 + a * key.n) * power % key.square
    challenges = to_integers(_challenges(_bound(key, rows, context, commitment), len(rows)))
    message = sum(e * m for e, m in zip(challenges, to_integers(messages), strict=True))
    noise = sum(e * s for e, s in zip(challenges, to_integers(exponents), strict=True))
    return Proof(commitment=commitment, message=(a + message) % key.n, noise=b + noise)


def _long_power(key: PublicKey) -> tuple[int, int]:
    r"""Return a random exponent that is longer than those of the key's table, and h to its power, by the table.

    The exponent is written in digits of which each fits the table: :math:`h^b = (h^{b_1})^{2^d} h^{b_0}`.
    """
    digit = _digit(key)
    low = random_below(1 << digit, _low_bits(key) // digit)
    exponent = system_below(1 << key.noise_bits)
    parts = [exponent, *to_integers(low)]
    powers = key.table.powers(from_integers(parts, -(-key.noise_bits // 8)), workers=1)
    joined = powers[:1]
    for part, power in zip(parts[1:], powers[1:, None], strict=True):
        exponent = (exponent << digit) + part
        joined = key.ring.multiply(key.ring.power(joined, 1 << digit, secret=False, workers=1), power, workers=1)
    return exponent, to_integers(joined)[0]


def _digit(key: PublicKey) -> int:
    return min(key.noise_bits, _SPARE_BITS)


def _low_bits(key: PublicKey) -> int:
    digit = _digit(key)
    return -(-_SPARE_BITS // digit) * digit


def _bound(key: PublicKey, rows: Rows, context: bytes, commitment: int) -> bytes:
    """Return the hash of all that is claimed, and of the commitment."""
    facts = [len(context).to_bytes(8, "big"), context, commitment.to_bytes(key.ring.width, "big")]
    running = hashlib.sha256(b"tacit paillier knowledge 1\n" + key.identity + b"".join(facts))
    running.update(len(rows).to_bytes(8, "big"))
    running.update(np.ascontiguousarray(rows).data)
    return running.digest()


def _challenges(bound: bytes, count: int) -> Rows:
    """Return one exponent per row."""
    stream = hashlib.shake_256(b"tacit paillier knowledge 1: challenges\n" + bound)
    return coefficients(stream.digest(count * COEFFICIENT_BYTES))


def _raised(key: PublicKey, claim: Claim, bound: bytes, workers: int | None) -> int:
    """Return the right side of a proof's equation."""
    product = combined(key.ring, claim.rows, _challenges(bound, len(claim.rows)), workers=workers)
    return claim.proof.commitment * product % key.square


def _equal(key: PublicKey, claims: Sequence[Claim], sides: Sequence[int]) -> bool:
    """Return whether the squares of some claims' equations hold, joined by exponents that nobody could prepare for."""
    drawn = [2 * d for d in to_integers(coefficients(system_bytes(len(claims) * COEFFICIENT_BYTES)))]
    message = sum(d * claim.proof.message for d, claim in zip(drawn, claims, strict=True)) % key.n
    noise = sum(d * claim.proof.noise for d, claim in zip(drawn, claims, strict=True))
    left = (1 + message * key.n) * gmpy2.powmod(key.h, noise, key.square) % key.square
    right = gmpy2.mpz(1)
    for d, side in zip(drawn, sides, strict=True):
        right = right * gmpy2.powmod(side, d, key.square) % key.square
    return bool(left == right)


def _widths(key: PublicKey) -> tuple[int, int, int]:
    return key.ring.width, key.residues.width, -(-(key.noise_bits + _low_bits(key) + 1) // 8)
