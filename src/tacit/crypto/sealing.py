"""Secrets at rest under a passphrase: a key stretched by scrypt, and authenticated encryption."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tacit.errors import ConfigError, KeysError
from tacit.randomness import system_bytes

SHORTEST_PASSPHRASE = 8  # characters

_CIPHER = "chacha20-poly1305"
_SALT_BYTES, _NONCE_BYTES, _TAG_BYTES = 16, 12, 16
_MOST_MEMORY = 256 << 20  # bytes that a file may ask for when it is opened
_MOST_WORK = 1 << 23  # n r p: some seconds


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What guessing one passphrase costs: scrypt's parameters (Percival 2009; RFC 7914).

    The defaults take 128 MiB and about half a second, once for the owner and once for every guess of a thief.

    Attributes:
        n: the length of the table, a power of two.
        r: the size of its blocks; the table takes 128 n r bytes.
        p: how often it is made.
    """

    n: int = 1 << 17
    r: int = 8
    p: int = 1

    def __post_init__(self) -> None:
        for name in ("n", "r", "p"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise KeysError(f"Expected scrypt's {name} to be a whole number of at least 1, got {value!r}.")
        if self.n < 2 or self.n & (self.n - 1):
            raise KeysError(f"Expected scrypt's n to be a power of two, got {self.n}.")
        if 128 * self.n * self.r > _MOST_MEMORY or self.n * self.r * self.p > _MOST_WORK:
            raise KeysError(
                f"Opening this file would take scrypt with n={self.n}, r={self.r}, p={self.p}: expected at most "
                f"{_MOST_MEMORY >> 20} MiB and n r p <= {_MOST_WORK}. It was not made by Tacit, or meant to do harm."
            )

    def stretch(self, passphrase: str, salt: bytes) -> bytes:
        """Return the key of 32 bytes that a passphrase stands for."""
        secret = unicodedata.normalize("NFC", passphrase).encode("utf-8", "surrogatepass")
        room = 128 * self.r * (self.n + self.p + 2) + (1 << 20)
        return hashlib.scrypt(secret, salt=salt, n=self.n, r=self.r, p=self.p, maxmem=room, dklen=32)


def seal(secret: bytes, passphrase: str, *, context: bytes, cost: Cost | None = None) -> dict[str, Any]:
    """Return ``secret`` encrypted under a passphrase, as plain values; ``context`` has to be the same when opened.

    >>> box = seal(b"p and q", "correct horse", context=b"key 7", cost=Cost(n=1024))
    >>> unseal(box, "correct horse", context=b"key 7")
    b'p and q'
    """
    check_passphrase(passphrase)
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    cost = cost or Cost()
    salt, nonce = system_bytes(_SALT_BYTES), system_bytes(_NONCE_BYTES)
    box = {"cipher": _CIPHER, "scrypt": asdict(cost), "salt": salt.hex(), "nonce": nonce.hex()}
    sealed = ChaCha20Poly1305(cost.stretch(passphrase, salt)).encrypt(nonce, secret, context)
    return {**box, "ciphertext": sealed.hex()}


def check_passphrase(passphrase: str) -> None:
    """Refuse a passphrase that is too short to seal anything with."""
    if len(passphrase) < SHORTEST_PASSPHRASE:
        raise ConfigError(
            f"Expected a passphrase of at least {SHORTEST_PASSPHRASE} characters, got {len(passphrase)}. "
            "Take a few random words."
        )


def unseal(box: Mapping[str, Any], passphrase: str, *, context: bytes) -> bytes:
    """Return what was sealed, or raise KeysError: the passphrase is wrong, or box or context were changed."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        cipher, cost = box["cipher"], Cost(**box["scrypt"])
        salt, nonce, sealed = (bytes.fromhex(box[name]) for name in ("salt", "nonce", "ciphertext"))
    except (KeyError, TypeError, ValueError) as error:
        raise KeysError(f"The sealed part is damaged: {error!r}. Use a copy of the file.") from error
    if cipher != _CIPHER:
        raise KeysError(f"Expected the cipher {_CIPHER}, got {cipher!r}. A newer version of Tacit may read it.")
    if (len(salt), len(nonce)) != (_SALT_BYTES, _NONCE_BYTES) or len(sealed) < _TAG_BYTES:
        raise KeysError("The sealed part is damaged: salt, nonce or ciphertext have the wrong length.")
    try:
        return ChaCha20Poly1305(cost.stretch(passphrase, salt)).decrypt(nonce, sealed, context)
    except InvalidTag:
        raise KeysError(
            "The passphrase is wrong, or the file was changed on purpose (its checksum is right). Try the passphrase "
            "again, then a copy of the file."
        ) from None
