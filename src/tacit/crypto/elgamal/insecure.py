r"""Textbook ElGamal in the whole multiplicative group, as it is often taught: it leaks, and is here to show how.

With g a generator of all of :math:`\mathbb{Z}_p^*`, the Legendre symbols of y and of :math:`g^r` tell the parities of x
and of r, hence the symbol of :math:`y^r`, hence from the second half whether the message is a square. Of two messages
of which one is a square, everybody can tell which was encrypted. :mod:`tacit.crypto.elgamal` encodes messages as
squares instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import gmpy2

from tacit.crypto import groups
from tacit.crypto.groups import Group
from tacit.errors import ConfigError
from tacit.randomness import system_below


@dataclass(frozen=True, kw_only=True)
class InsecureTextbookElGamal:
    """A key pair that encrypts m as (g^r, m y^r) with m any number from 1 to p - 1. For experiments only.

    Attributes:
        p: a safe prime.
        g: a generator of all numbers modulo p, so no square.
        y: g^x.
        x: the secret exponent.
    """

    p: int
    g: int
    y: int
    x: int = field(repr=False)

    @classmethod
    def generate(cls, group: str | Group = "ffdhe2048") -> InsecureTextbookElGamal:
        """Return a new key pair modulo the group's prime: the generator is the least that is no square."""
        p = (groups.named(group) if isinstance(group, str) else group).p
        g = next(g for g in range(2, p) if gmpy2.jacobi(g, p) == -1)  # its order divides 2q but not q, and is not 2
        x = 1 + system_below(p - 2)
        return cls(p=p, g=g, y=int(gmpy2.powmod_sec(g, x, p)), x=x)

    def encrypt(self, message: int) -> tuple[int, int]:
        """Encrypt a number from 1 to p - 1, and leak whether it is a square."""
        if not 1 <= message < self.p:
            raise ConfigError(f"Expected a message from 1 to p - 1, got one of {message.bit_length()} bits.")
        r = 1 + system_below(self.p - 2)
        mask = gmpy2.powmod_sec(self.y, r, self.p)
        return int(gmpy2.powmod_sec(self.g, r, self.p)), int(message * mask % self.p)

    def decrypt(self, ciphertext: tuple[int, int]) -> int:
        """Return the message."""
        first, second = ciphertext
        return int(second * gmpy2.powmod_sec(gmpy2.invert(first, self.p), self.x, self.p) % self.p)

    def multiply(self, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
        """Return a ciphertext of the product modulo p."""
        return left[0] * right[0] % self.p, left[1] * right[1] % self.p


def leaked_symbol(p: int, y: int, ciphertext: tuple[int, int]) -> int:
    """Return the Legendre symbol of the message, from what is public: y^r is no square only if neither y nor g^r is."""
    first, second = ciphertext
    mask = -1 if gmpy2.jacobi(y, p) == -1 and gmpy2.jacobi(first, p) == -1 else 1
    return int(gmpy2.jacobi(second, p)) * mask
