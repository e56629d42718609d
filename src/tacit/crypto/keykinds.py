"""The kinds of keys that files hold, and what reads each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tacit.crypto import elgamal, paillier, threshold
from tacit.crypto.paillier.public import SECURITY
from tacit.errors import ConfigError, KeysError

Role = Literal["public", "private", "share"]
Public = paillier.PublicKey | threshold.ThresholdPublic | elgamal.PublicKey
Private = paillier.PrivateKey | elgamal.PrivateKey
Share = threshold.KeyShare
AnyKey = Public | Private | Share


@dataclass(frozen=True, kw_only=True)
class KeyKind:
    """One kind of key.

    Attributes:
        name: as key files write it.
        title: as people read it.
        role: public, private, or a share of a private key.
        key: the class of such keys.
        public: the class of their public halves; the same for public keys.
    """

    name: str
    title: str
    role: Role
    key: type[Any]
    public: type[Any]

    def public_from_dict(self, plain: Mapping[str, Any]) -> Public:
        """Read the public half."""
        public: Public = self.public.from_dict(plain)
        return public

    def secret_from_dict(self, plain: Mapping[str, Any]) -> Private | Share:
        """Read a private key or share together with its public half."""
        secret: Private | Share = self.key.from_dict(plain)
        return secret


def _kind(name: str, title: str, role: Role, key: type[Any], public: type[Any]) -> KeyKind:
    return KeyKind(name=name, title=title, role=role, key=key, public=public)


KINDS = {
    kind.name: kind
    for kind in (
        _kind("paillier public", "Paillier public key", "public", paillier.PublicKey, paillier.PublicKey),
        _kind("paillier private", "Paillier private key", "private", paillier.PrivateKey, paillier.PublicKey),
        _kind(
            "threshold public",
            "threshold Paillier public key",
            "public",
            threshold.ThresholdPublic,
            threshold.ThresholdPublic,
        ),
        _kind("threshold share", "threshold Paillier share", "share", threshold.KeyShare, threshold.ThresholdPublic),
        _kind("elgamal public", "ElGamal public key", "public", elgamal.PublicKey, elgamal.PublicKey),
        _kind("elgamal private", "ElGamal private key", "private", elgamal.PrivateKey, elgamal.PublicKey),
    )
}


def kind_of(key: AnyKey) -> KeyKind:
    """Return the kind of a key."""
    for kind in KINDS.values():
        if type(key) is kind.key:
            return kind
    raise ConfigError(f"Expected a key, got {type(key).__name__}. The kinds are: {', '.join(KINDS)}.")


def public_of(key: AnyKey) -> Public:
    """Return the public half of a key, which a public key is itself."""
    if isinstance(key, Private | Share):
        return key.public
    return key


def paillier_key(public: Public) -> paillier.PublicKey:
    """Return the key that encrypts vectors; ElGamal keys have none."""
    if isinstance(public, elgamal.PublicKey):
        raise KeysError(
            "The key is of ElGamal, which has no packing for vectors: expected a Paillier key, from `tacit keys new "
            "paillier`. Counts and short messages are encrypted with ElGamal from Python: tacit.crypto.elgamal."
        )
    return public.key if isinstance(public, threshold.ThresholdPublic) else public


def length_of(public: Public) -> int:
    """Return the bits of a key's modulus."""
    return public.group.bits if isinstance(public, elgamal.PublicKey) else public.bits


def security_of(public: Public) -> int | None:
    """Return the bits of security of a key's modulus, rounded down to the lengths that NIST lists; None below all."""
    return max((level for length, level in SECURITY.items() if length <= length_of(public)), default=None)


def with_article(title: str) -> str:
    """Return the title of a key as it stands in a sentence.

    >>> with_article("ElGamal public key")
    'an ElGamal public key'
    """
    return f"{'an' if title[0] in 'AEIOU' else 'a'} {title}"
