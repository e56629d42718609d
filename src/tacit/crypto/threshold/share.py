"""A holder's share of the private key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gmpy2

from tacit.crypto.paillier import Ciphertext, CiphertextVector
from tacit.crypto.threshold.partial import PartialDecryption, digest, rows_of
from tacit.crypto.threshold.proof import prove as prove_partial
from tacit.crypto.threshold.public import ThresholdPublic
from tacit.errors import CipherError, KeysError


@dataclass(frozen=True, kw_only=True)
class KeyShare:
    r"""One of the shares that decrypt together (Shoup 2000).

    The dealer hands out :math:`s_i = f(i)`, and the holder raises to :math:`2 \Delta s_i` with :math:`\Delta = l!`.
    That makes the exponent :math:`\log_2 l!` bits longer than n: 7 bits for 5 holders, 525 for 100. To hand out
    :math:`\Delta f(i)`, reduced, would save them, and give away roots: see :mod:`tacit.crypto.threshold`.

    Attributes:
        public: the public part, with the numbers that all holders know.
        index: the number of the share, from 1.
        secret: the share, :math:`s_i`.
    """

    public: ThresholdPublic
    index: int
    secret: int = field(repr=False)

    def __post_init__(self) -> None:
        count = self.public.shares
        if not isinstance(self.index, int) or isinstance(self.index, bool) or not 1 <= self.index <= count:
            raise KeysError(f"Expected the number of a share from 1 to {count}, got {self.index!r}.")
        n, v = self.public.key.n, self.public.verifier
        if not 0 < self.secret < n or gmpy2.powmod_sec(v, self.secret, n) != self.public.verifiers[self.index - 1]:
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
