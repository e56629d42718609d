r"""The check that a key authority's answer has to bear, so that the server need not take its word for a sum.

An authority is shown one encrypted sum under masks, and says what is in it. The n-th root of the ciphertext would prove
what it decrypts to, but not what the masks are that were taken off: those are between clients and authority. So the sum
carries a check of its own. For every try of a round the server draws a seed and tells it to the clients of the round
with their task; it gives factors :math:`\rho_j` of 128 bits and :math:`\sigma` modulo n. A client adds one number to
its packed rows :math:`m_{i1}, \ldots, m_{iR}`, encrypted and masked as they are:

.. math:: t_i = \sum_j \rho_j m_{ij} + \sigma \bmod n.

The authority opens the sum T of these with the rest and tells its digest. The server compares: with k clients, it has
to be the digest of :math:`\sum_j \rho_j U_j + k \sigma \bmod n`, for the rows U of the sum that it was told.

**What a lie has to guess.** The authority knows a digest of the seed, which tells nothing of it, and T, in which
:math:`k \sigma` is uniform: what it sees is independent of all :math:`\rho_j`. An answer (U', T') that is not (U, T)
passes where :math:`\sum_j \rho_j (U'_j - U_j) = T' - T`. Where some row differs, it differs modulo p or modulo q, both
longer than 128 bits, and at most one :math:`\rho_j` fits there whatever the others are: the chance is at most
:math:`2^{-128}` per answer.

**What the check tells the server.** Nothing: T follows from the sum, which it is told, and the seed, which it drew. It
needs all clients of a sum to have had the same seed; with another for each, T would hold whatever the server likes of
single clients. So masks are made with the digest of the seed and of what was asked, and the authority takes off those
for the one digest that the server names: a client that was told another seed, or was given another model, leaves its
mask behind, and the result is uniform. T itself is not
told, as any number modulo n passes for it: a server that hid some other ciphertext of this key in it would read that.

**What it does not do.** A client of the round that tells the authority the seed lets it lie. And a client that sends a
wrong :math:`t_i` spoils the round as one does that sends numbers beyond its layout: nobody can say who it was, and
nothing is used. With shares of the key none of this is needed: a combination is right or there is none.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from math import gcd

import numpy as np

from tacit.crypto.paillier import Layout, PublicKey
from tacit.crypto.ring import Rows, not_below, row_blocks, to_integers
from tacit.errors import CipherError
from tacit.protocols.paillier.binding import KeyUse
from tacit.randomness import system_bytes
from tacit.vectors import Integers

SEED_BYTES = DIGEST_BYTES = 32
_FACTOR_BYTES = 16
_SPARE_BYTES = 16  # beyond n: so that reducing modulo n leaves numbers within 2^-128 of uniform


def check_bytes(keys: KeyUse, key: PublicKey) -> int:
    """Return how long an opening's check is: for an authority a digest and a ciphertext, else nothing."""
    return DIGEST_BYTES + key.ring.width if keys == "authority" else 0


def told_of(borne: int, key: PublicKey) -> bytes:
    """Return what an authority tells of the check that a sum bears."""
    return hashlib.sha256(b"tacit paillier check told 1\n" + borne.to_bytes((key.bits + 7) // 8, "big")).digest()


def check_row(data: bytes | memoryview, key: PublicKey) -> Rows:
    """Return one ciphertext of a peer's, or raise CipherError where no encryption gives it."""
    row = np.frombuffer(data, np.uint8)[None]
    if row.shape[1] != key.ring.width or len(not_below(row, key.square)) or gcd(to_integers(row)[0], key.n) != 1:
        raise CipherError("The check that travels with an encrypted vector is no ciphertext of this key.")
    return row


@dataclass(frozen=True, kw_only=True)
class Check:
    """A try's check, as the server and its clients know it.

    Attributes:
        seed: what the server drew; the authority must not know it.
        asked: the hash of what clients are asked for, see :func:`tacit.wire.bound_to`.
    """

    seed: bytes = field(repr=False)
    asked: bytes

    def __post_init__(self) -> None:
        if len(self.seed) != SEED_BYTES:
            raise CipherError(f"Expected a seed of {SEED_BYTES} bytes with the task, got {len(self.seed)}.")

    @classmethod
    def drawn(cls, asked: bytes) -> Check:
        """Return a new one."""
        return cls(seed=system_bytes(SEED_BYTES), asked=asked)

    @property
    def digest(self) -> bytes:
        """What the authority knows the check by, and masks are made with."""
        return hashlib.sha256(b"tacit paillier check 2\n" + self.seed + self.asked).digest()

    def of(self, rows: Rows, summands: int, key: PublicKey) -> int:
        """Return what the sum of ``summands`` packed vectors has to bear."""
        width = (key.bits + 7) // 8 + _SPARE_BYTES
        stream = hashlib.shake_256(b"tacit paillier check factors 1\n" + self.seed + key.identity)
        drawn = stream.digest(width + len(rows) * _FACTOR_BYTES)
        sigma, factors = int.from_bytes(drawn[:width], "big"), drawn[width:]
        found = summands * sigma
        for part in row_blocks(len(rows)):
            for place, row in enumerate(to_integers(rows[part]), part.start):
                found += row * int.from_bytes(factors[place * _FACTOR_BYTES : (place + 1) * _FACTOR_BYTES], "big")
        return found % key.n

    def compare(self, sums: Integers, told: bytes, layout: Layout, summands: int, key: PublicKey) -> None:
        """Refuse sums that don't bear what the authority told beside them."""
        if told != told_of(self.of(layout.packed(sums, summands), summands, key), key):
            raise CipherError(
                "its sum does not bear the check that its summands carry: it told another sum than it opened, or a "
                "client sent a wrong check. Nothing of it is used."
            )
