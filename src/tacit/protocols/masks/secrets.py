r"""What clients agree on, share and sign: X25519, HKDF, Shamir's scheme, ChaCha20-Poly1305 and Ed25519.

Two clients derive all that they share in a run from one exchange of X25519 (RFC 7748): a key :math:`r_{ij}` by HKDF's
extraction (RFC 5869, SHA-256, salted with the run), from which each use has a key of its own by HKDF's expansion.

Shamir's scheme is over the integers modulo :math:`p = 2^{31} - 1`, on vectors: a secret is eight numbers below p, 248
bits, and is used as the SHA-256 of them. Any t - 1 shares of it are uniform and independent of it.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from numpy.typing import NDArray

from tacit.errors import CipherError, KeysError
from tacit.protocols.signatures import PUBLIC_BYTES, SIGNATURE_BYTES, verified

Limbs = NDArray[np.uint64]

KEY_BYTES = SHARE_BYTES = 32
ENTRY_BYTES = 2 * PUBLIC_BYTES + SIGNATURE_BYTES  # an X25519 key, an Ed25519 key, and its signature
SEALED_BYTES = 2 * SHARE_BYTES + 16
CHECK_BYTES = 16  # of a share's hash

_PRIME = np.uint64(2**31 - 1)
_LIMBS = 8
_SPARE = 64  # numbers that are drawn beyond those that are needed: one in 2^31 is not below p
_ONCE = bytes(12)  # the nonce of keys that seal one message


@dataclass(frozen=True, kw_only=True)
class Identity:
    """A client's keys in a run: one to agree with others, one to sign; both from a secret of 32 bytes.

    Attributes:
        secret: drawn for the run.
        lasting: signs in place of a key of the run, where its operator gave the client an identity.
    """

    secret: bytes = field(repr=False)
    lasting: Ed25519PrivateKey | None = field(default=None, repr=False)

    @functools.cached_property
    def agreeing(self) -> X25519PrivateKey:
        """The key that agrees with others'."""
        return X25519PrivateKey.from_private_bytes(expanded(self.secret, b"agreement key"))

    @functools.cached_property
    def signing(self) -> Ed25519PrivateKey:
        """The key that signs."""
        return self.lasting or Ed25519PrivateKey.from_private_bytes(expanded(self.secret, b"signature key"))

    def entry(self, statement: bytes) -> bytes:
        """Return the public keys, with a signature of the first and of what the client states."""
        agreeing = self.agreeing.public_key().public_bytes_raw()
        signing = self.signing.public_key().public_bytes_raw()
        return agreeing + signing + self.signing.sign(_vouched(agreeing, statement))

    def agreed(self, other: bytes, run: bytes) -> bytes:
        """Return the key that this client shares with another in a run; keys that share nothing are refused."""
        if hmac.compare_digest(other, self.agreeing.public_key().public_bytes_raw()):
            raise KeysError("it is this client's own key")
        try:
            shared = self.agreeing.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError as error:  # of another length, or a point of small order: the secret would be known
            raise KeysError("it is no key that can be agreed with") from error
        return hmac.digest(run, shared, "sha256")


def checked_entry(entry: bytes, statement: bytes) -> tuple[bytes, bytes]:
    """Return an entry's two public keys, if its signature is right."""
    agreeing, signing = entry[:PUBLIC_BYTES], entry[PUBLIC_BYTES : 2 * PUBLIC_BYTES]
    if len(entry) != ENTRY_BYTES or not verified(signing, entry[2 * PUBLIC_BYTES :], _vouched(agreeing, statement)):
        raise KeysError("its keys are not signed for this run, client and rules")
    return agreeing, signing


def _vouched(agreeing: bytes, statement: bytes) -> bytes:
    return b"tacit masks keys 1\n" + statement + agreeing


def expanded(key: bytes, label: bytes, *facts: bytes) -> bytes:
    """Return the key for one use, by HKDF's expansion to 32 bytes; facts are of fixed length."""
    return hmac.digest(key, b"tacit masks 1\n" + label + b"\n" + b"".join(facts) + b"\x01", "sha256")


def sealed(key: bytes, content: bytes) -> bytes:
    """Return a message under a key that seals nothing else."""
    return ChaCha20Poly1305(key).encrypt(_ONCE, content, None)


def unsealed(key: bytes, message: bytes) -> bytes:
    """Read what :func:`sealed` wrote."""
    try:
        return ChaCha20Poly1305(key).decrypt(_ONCE, message, None)
    except InvalidTag as error:
        raise CipherError("A share was not sealed for this client by its neighbour in this round.") from error


def polynomials(seed: bytes, threshold: int, secrets: int) -> Limbs:
    """Return the coefficients of random polynomials, constants first: the secrets are at zero."""
    count = threshold * secrets * _LIMBS
    stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor().update(bytes(4 * (count + _SPARE)))
    drawn = np.frombuffer(stream, "<u4").astype(np.uint64) & _PRIME
    below: Limbs = drawn[drawn != _PRIME][:count].reshape(threshold, secrets * _LIMBS)
    return below


def shares_of(coefficients: Limbs, count: int) -> list[bytes]:
    """Return the polynomials' values at 1, 2, ..., one row of bytes each."""
    points = np.arange(1, count + 1, dtype=np.uint64)[:, None]
    values = np.zeros((count, coefficients.shape[1]), np.uint64)
    for row in coefficients[::-1]:  # Horner: below 2^31 * 2^31 + 2^31
        values = (values * points + row) % _PRIME
    return [row.tobytes() for row in values.astype("<u4")]


def secret_of(limbs: bytes) -> bytes:
    """Return a secret as it is used."""
    return hashlib.sha256(b"tacit masks secret 1\n" + limbs).digest()


def constants(coefficients: Limbs) -> list[bytes]:
    """Return the secrets of polynomials, as they are used."""
    return [secret_of(row.tobytes()) for row in coefficients[0].astype("<u4").reshape(-1, _LIMBS)]


def recovered(points: Sequence[int], shares: Sequence[bytes]) -> bytes:
    """Return the secret whose shares at some points (from 1) are given, as many as the threshold."""
    values = np.frombuffer(b"".join(shares), "<u4").reshape(len(points), _LIMBS).astype(np.uint64)
    weighted = (_weights(tuple(points))[:, None] * values) % _PRIME
    return secret_of((weighted.sum(axis=0) % _PRIME).astype("<u4").tobytes())


@functools.lru_cache(maxsize=4096)
def _weights(points: tuple[int, ...]) -> Limbs:
    r"""Return Lagrange's weights at zero, :math:`\prod_{j \ne i} x_j / (x_j - x_i)`.

    Of all points 1, ..., m these are :math:`(-1)^{i-1} \binom{m}{i}`, and every point q that is missing takes its
    factor :math:`q / (q - i)` out of the product again: few of the first points are, as a rule.
    """
    x, last = np.array(points, np.uint64), max(points)
    missing = set(range(1, last)).difference(points)
    weights = _all_weights(last)[x]
    for point in missing:
        weights = weights * (np.uint64(point) + _PRIME - x) % _PRIME
    prime = int(_PRIME)
    scale = functools.reduce(lambda product, point: product * point % prime, missing, 1)
    scaled: Limbs = weights * np.uint64(pow(scale, -1, prime)) % _PRIME
    return scaled


@functools.lru_cache(maxsize=256)
def _all_weights(last: int) -> Limbs:
    """Return the weights of the points 1, ..., last, behind a number for zero that has none."""
    prime, binomial, found = int(_PRIME), 1, [0]
    for point in range(1, last + 1):
        binomial = binomial * (last + 1 - point) // point
        found.append((binomial if point % 2 else -binomial) % prime)
    return np.array(found, np.uint64)


def check_of(share: bytes) -> bytes:
    """Return the hash by which a share is known to be the one that was dealt; a share is too long to be guessed."""
    return hashlib.sha256(b"tacit masks share 1\n" + share).digest()[:CHECK_BYTES]


def crossed(one: bytes, other: bytes) -> bytes:
    """Return the exclusive or of two keys."""
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(KEY_BYTES, "big")
