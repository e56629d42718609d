"""Keys of ElGamal: the public one encrypts, multiplies, adds and re-randomises; the private one decrypts."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, SupportsIndex, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.crypto import groups
from tacit.crypto.backend import backend
from tacit.crypto.elgamal.ciphertext import Ciphertext, Form, Pairs, parse
from tacit.crypto.elgamal.counts import EncryptedCounts, encrypted, search
from tacit.crypto.elgamal.encoding import decode, encode, message_of, number_of
from tacit.crypto.groups import Group, fixed_base
from tacit.crypto.ring import Ring, Rows, from_integers, random_below, to_integers
from tacit.errors import CipherError, ConfigError, KeysError
from tacit.randomness import system_below, system_bytes

DEFAULT_GROUP = "ffdhe3072"
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
        return encrypted(self, counts, workers=workers)

    def parse(self, content: bytes) -> Ciphertext:
        """Return the ciphertexts that bytes from a peer hold, checked; CipherError where they are not of this key."""
        first, second = parse(content, self, Form.NUMBERS)
        return Ciphertext(key=self, first=first, second=second)

    def parse_counts(self, content: bytes) -> EncryptedCounts:
        """Return the encrypted counts that bytes from a peer hold, checked; CipherError where not of this key."""
        first, second = parse(content, self, Form.COUNTS)
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
        return search(rows, self.public.group, bound=bound, signed=signed)

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


def generate(
    group: str | Group = DEFAULT_GROUP, *, exponents: Exponents = "short", insecure_key_size: bool = False
) -> tuple[PublicKey, PrivateKey]:
    """Return a new key pair from the operating system's randomness.

    Args:
        group: the name of a group, ``ffdhe3072`` (128 bits of security) by default, or one from
            :mod:`tacit.crypto.groups`.
        exponents: ``full`` ones need one assumption less and take longer; see :class:`PublicKey`.
        insecure_key_size: allow groups of less than 2048 bits, for experiments.
    """
    chosen = groups.named(group) if isinstance(group, str) else group
    if chosen.insecure and not insecure_key_size:
        raise ConfigError(
            f"A group of {chosen.bits} bits is not secure: expected at least {groups.SAFE_BITS}, {DEFAULT_GROUP} by "
            "default. For an experiment say --insecure-key-size (insecure_key_size=True)."
        )
    if exponents not in get_args(Exponents):
        raise ConfigError(f"Unknown exponents={exponents!r}. Expected one of {', '.join(get_args(Exponents))}.")
    bits = exponent_bits(chosen, exponents)
    x = 2 + system_below(min(1 << bits, chosen.q) - 2)  # 0 and 1 would give y away
    ring = backend().ring(chosen.p)
    (y,) = to_integers(ring.power(from_integers([chosen.g], ring.width), x, secret=True, workers=1))
    public = PublicKey(group=chosen, y=y, exponents=exponents)
    return public, PrivateKey(public=public, x=x)
