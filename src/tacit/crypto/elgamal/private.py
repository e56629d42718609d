"""The private key: decrypts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit.crypto.elgamal import exponential
from tacit.crypto.elgamal.ciphertext import Ciphertext, Pairs
from tacit.crypto.elgamal.encoding import decode, message_of
from tacit.crypto.elgamal.exponential import EncryptedCounts
from tacit.crypto.elgamal.public import KIND, PublicKey
from tacit.crypto.rows import Rows, from_integers, to_integers
from tacit.errors import CipherError, ConfigError, KeysError


@dataclass(frozen=True, kw_only=True)
class PrivateKey:
    """Decrypts with x, the discrete logarithm of the public y. Powers take time that tells nothing of x.

    Attributes:
        public: the public key.
        x: the secret exponent.
    """

    kind: ClassVar[str] = KIND

    public: PublicKey
    x: int = field(repr=False)

    def __post_init__(self) -> None:
        group, ring = self.public.group, self.public.ring
        if not 0 < self.x < group.q:
            raise KeysError("The private exponent is not between 0 and q: the key is damaged. Restore it from a copy.")
        power = ring.power(from_integers([group.g], ring.width), self.x, secret=True, workers=1)
        if to_integers(power) != [self.public.y]:
            raise KeysError("The private key does not belong to its public key: g^x is not y. Restore it from a copy.")

    def decrypt(self, ciphertext: Ciphertext) -> int:
        """Return the integer of a single ciphertext."""
        if len(ciphertext) != 1:
            raise ConfigError(f"Got {len(ciphertext)} ciphertexts, expected one. Use decrypt_many.")
        return self.decrypt_many(ciphertext)[0]

    def decrypt_many(self, ciphertext: Ciphertext, *, workers: int | None = None) -> list[int]:
        """Return the integers of a vector of ciphertexts."""
        return decode(self._open(ciphertext, Ciphertext, workers), self.public.group)

    def decrypt_bytes(self, ciphertext: Ciphertext) -> bytes:
        """Return the short message of a ciphertext."""
        return message_of(self.decrypt(ciphertext))

    def decrypt_counts(
        self, ciphertext: EncryptedCounts, *, bound: int, signed: bool = False, workers: int | None = None
    ) -> NDArray[np.int64]:
        """Return the counts, each from 0 to ``bound``, or from -``bound`` where they are ``signed``.

        The time grows with the square root of the bound, and a table for it is kept. How long it takes tells
        how large the counts are.

        Raises:
            CipherError: where a count is outside, or the ciphertexts are of another key.
        """
        rows = self._open(ciphertext, EncryptedCounts, workers)
        return exponential.search(rows, self.public.group, bound=bound, signed=signed)

    def to_dict(self) -> dict[str, Any]:
        """Return the key as text for a key file. It holds the secret."""
        return {"public": self.public.to_dict(), "x": f"{self.x:x}"}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> PrivateKey:
        """Return the key of a key file; KeysError where it is damaged."""
        try:
            return cls(public=PublicKey.from_dict(content["public"]), x=int(content["x"], 16))
        except (KeyError, TypeError, ValueError):  # the message must not hold the secret
            raise KeysError("The private key is damaged. Restore its file from a copy.") from None

    def _open(self, ciphertext: Pairs, form: type[Pairs], workers: int | None) -> Rows:
        r"""Return :math:`c_2 (c_1^{-1})^x`; what is inverted is public, and the power alone is secret."""
        if type(ciphertext) is not form:
            raise CipherError(f"Got {type(ciphertext).__name__}, expected {form.__name__}: numbers and counts differ.")
        if ciphertext.key != self.public:
            raise CipherError(
                f"The ciphertext is of key {ciphertext.key.fingerprint[:23]}…, and this private key is of "
                f"{self.public.fingerprint[:23]}… . Use the key it was made with."
            )
        ring = self.public.ring
        unmask = ring.power(ring.inverse(ciphertext.first), self.x, secret=True, workers=workers)
        return ring.multiply(ciphertext.second, unmask)
