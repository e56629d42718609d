"""The public key: whoever has it encrypts, multiplies, adds and re-randomises."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, SupportsIndex, get_args

import numpy as np
from numpy.typing import ArrayLike

from tacit.crypto import groups
from tacit.crypto.backend import backend
from tacit.crypto.elgamal import exponential, frame
from tacit.crypto.elgamal.ciphertext import Ciphertext
from tacit.crypto.elgamal.encoding import encode, number_of
from tacit.crypto.elgamal.exponential import EncryptedCounts
from tacit.crypto.elgamal.fixed_base import fixed_base
from tacit.crypto.groups import Group
from tacit.crypto.ring import Ring
from tacit.crypto.rows import Rows, random_below
from tacit.errors import KeysError
from tacit.randomness import system_bytes

KIND = "elgamal"

Exponents = Literal["short", "full"]

# at least twice the security level of the modulus (NIST SP 800-57) and what RFC 7919 asks for in its appendix A
SHORT_BITS = {2048: 256, 3072: 288, 4096: 336, 6144: 384, 8192: 416}
ASSUMPTIONS = {
    "short": "decisional Diffie-Hellman in the squares modulo p, and that discrete logarithms of twice the security "
    "level in length are as hard as others (Koshiba and Kurosawa 2004; usual, as in RFC 7919 and NIST SP 800-56A)",
    "full": "decisional Diffie-Hellman in the squares modulo p",
}


def exponent_bits(group: Group, exponents: Exponents) -> int:
    """Return the length of secret exponents.

    >>> exponent_bits(groups.named("ffdhe2048"), "short"), exponent_bits(groups.named("ffdhe2048"), "full")
    (256, 2047)
    """
    full = group.q.bit_length()
    if exponents == "full":
        return full
    return min(full, next((short for bits, short in SHORT_BITS.items() if group.bits <= bits), full))


@dataclass(frozen=True, kw_only=True)
class PublicKey:
    r"""Encrypts m as :math:`(g^r, \mathrm{enc}(m)\, y^r) \bmod p` with a fresh random r (ElGamal 1985).

    Messages are encoded as squares (:mod:`tacit.crypto.elgamal.encoding`), and g generates the squares, so ciphertexts
    are indistinguishable if the decisional Diffie-Hellman problem is hard. Both powers come from tables that are built
    once a key is used much.

    Exponents are ``short`` by default: 256 bits at 2048, 288 at 3072, twice the security level and more. This rests on
    discrete logarithms of that length being as hard as others, the usual practice in groups of safe primes (RFC 7919,
    5.2). ``full`` ones, uniform below q, need no such assumption and take four to seven times as long.

    Anybody can change a ciphertext into one of a related message: authenticate the way it comes, and never
    decrypt on request. A key is only as good as the way it came: compare its :attr:`fingerprint` with the owner's.

    Attributes:
        group: the group.
        y: :math:`g^x`.
        exponents: ``short`` or ``full``.
    """

    kind: ClassVar[str] = KIND

    group: Group
    y: int
    exponents: Exponents = "short"

    def __post_init__(self) -> None:
        if self.exponents not in get_args(Exponents):
            raise KeysError(f"Unknown exponents={self.exponents!r}. Expected one of {', '.join(get_args(Exponents))}.")
        if self.group.name in groups.NAMES:
            trusted = groups.named(self.group.name)
        else:
            trusted = groups.own(self.group.p, g=self.group.g, insecure_key_size=True)
        if trusted != self.group:
            raise KeysError(f"The key's group is not the one of its name, {self.group.name}: it was changed.")
        if self.y in (1, self.group.g) or not self.group.holds(self.y):
            raise KeysError(
                "The key's y is trivial or not in its group: what it encrypts could be read. Don't use it; ask its "
                "owner for the fingerprint."
            )

    @property
    def insecure(self) -> bool:
        """Whether the key is too short for anything but experiments."""
        return self.group.insecure

    @property
    def assumption(self) -> str:
        """What has to be hard for the key to be secure."""
        return ASSUMPTIONS[self.exponents]

    @functools.cached_property
    def identity(self) -> bytes:
        """The SHA-256 digest of everything in the key."""
        numbers = f"p {self.group.p:x}\ng {self.group.g:x}\ny {self.y:x}\n"
        text = f"tacit elgamal public key 1\n{numbers}exponents {self.exponents}\n"
        return hashlib.sha256(text.encode()).digest()

    @property
    def fingerprint(self) -> str:
        """The identity as people compare it: 32 groups of two digits."""
        return self.identity.hex(":")

    @functools.cached_property
    def ring(self) -> Ring:
        """The integers modulo p."""
        return backend().ring(self.group.p)

    def noise(self, count: int, *, workers: int | None = None) -> tuple[Rows, Rows]:
        """Return fresh :math:`(g^r, y^r)`: encryptions of 1, each to be used once."""
        bits = exponent_bits(self.group, self.exponents)
        if bits == self.group.q.bit_length():
            exponents = random_below(self.group.q, count)
        else:
            exponents = np.frombuffer(system_bytes(count * bits // 8), np.uint8).reshape(count, bits // 8)
        p = self.group.p
        first, mask = (fixed_base(p, base, bits).powers(exponents, workers=workers) for base in (self.group.g, self.y))
        return first, mask

    def encrypt(self, message: SupportsIndex) -> Ciphertext:
        """Encrypt an integer from 1 to q."""
        return self.encrypt_many([message])

    def encrypt_many(self, messages: Iterable[SupportsIndex], *, workers: int | None = None) -> Ciphertext:
        """Encrypt a vector of integers from 1 to q, each with randomness of its own."""
        squares = encode(messages, self.group)
        first, mask = self.noise(len(squares), workers=workers)
        return Ciphertext(key=self, first=first, second=self.ring.multiply(squares, mask))

    def encrypt_bytes(self, message: bytes) -> Ciphertext:
        """Encrypt a short message, such as a key for a symmetric cipher: 255 bytes at most at 2048 bits."""
        return self.encrypt(number_of(message, self.group))

    def encrypt_counts(self, counts: ArrayLike, *, workers: int | None = None) -> EncryptedCounts:
        """Encrypt counts, one or a vector, so that they can be added; they are at most 2^40 in magnitude."""
        return exponential.encrypt(self, counts, workers=workers)

    def parse(self, content: bytes) -> Ciphertext:
        """Return the ciphertexts that bytes from a peer hold, checked; CipherError where they are not of this key."""
        first, second = frame.parse(content, self, frame.Form.NUMBERS)
        return Ciphertext(key=self, first=first, second=second)

    def parse_counts(self, content: bytes) -> EncryptedCounts:
        """Return the encrypted counts that bytes from a peer hold, checked; CipherError where not of this key."""
        first, second = frame.parse(content, self, frame.Form.COUNTS)
        return EncryptedCounts(key=self, first=first, second=second)

    def to_dict(self) -> dict[str, Any]:
        """Return the key as text for a key file."""
        return {"group": self.group.to_dict(), "y": f"{self.y:x}", "exponents": self.exponents}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> PublicKey:
        """Return the key of a key file; KeysError where it is damaged."""
        try:
            group = Group.from_dict(content["group"])
            return cls(group=group, y=int(content["y"], 16), exponents=content["exponents"])
        except (KeyError, TypeError, ValueError) as error:
            raise KeysError(f"The public key is damaged: {error!r}. Restore its file from a copy.") from None
