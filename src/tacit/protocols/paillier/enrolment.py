r"""Enrolment: how a client and the key holders come to share what binds its ciphertexts to the run, through the server.

A key holder draws a challenge for each run, and the run is known by the digest of all challenges. A client answers with
a key for that run alone:

* to an authority, :math:`y = \rho^n \bmod n` for a random :math:`\rho`, and a tag. The tag, and the secret of the
  client's masks, are :math:`\mathrm{SHAKE256}(\text{statement}, \rho)`. The authority takes the root and compares the
  tag, so it accepts nothing that was not made of :math:`\rho` for this statement: neither a part of a client's update
  nor another's enrolment passes for a new one, and whether something was accepted tells nothing of any other
  (RSA-KEM with key confirmation, Shoup 2001). To take roots is at least as hard as to read ciphertexts (Paillier 1999).
  It is no Paillier ciphertext on purpose: the authority opens sums for the server, and a server could hide a
  ciphertext in a row of a sum whose content it knows, and read it there;
* to holders of shares, the public half of a signature key, and its signature of the statement.

The statement names run, client and rules. A holder that has forgotten a run has forgotten its challenge, so nothing
that was made for that run can be opened any more, and a run that begins anew needs new enrolments and new replies.

Who a client is, none of this shows: a server could invent clients, and see what is left of a sum without them. Where
that is to be ruled out, a client also signs with a lasting identity, and each holder's operator lists the identities
of the true clients. Without a list the guarantee holds while the clients that were enrolled are the true ones.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.crypto.paillier import PrivateKey, PublicKey
from tacit.errors import WireError
from tacit.flow import ClientId
from tacit.protocols.paillier.binding import (
    CHALLENGE_BYTES,
    PUBLIC_BYTES,
    SECRET_BYTES,
    SIGNATURE_BYTES,
    signing_key,
    verified,
)

_TAG_BYTES = 32
_SPARE_BYTES = 16  # beyond n: so that reducing modulo n leaves numbers within 2^-128 of uniform
_IDENTIFIED_BYTES = PUBLIC_BYTES + SIGNATURE_BYTES
_COUNT = struct.Struct(">I")
_ENTRY = struct.Struct(">QI")  # client, length
_CLIENT = struct.Struct(">Q")


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """What a client and an authority share: a number that travels as its n-th power, and what both derive from it.

    Attributes:
        key: the authority's.
        number: below n.
        secret: of the client's masks.
        tag: shows that whoever sent the power knows the number, and for what it was sent.
    """

    key: PublicKey
    number: int = field(repr=False)
    secret: bytes = field(repr=False)
    tag: bytes = field(repr=False)

    @classmethod
    def of(cls, root: bytes, key: PublicKey, stated: bytes) -> Agreement:
        """Return the agreement that a client's root secret gives for what it states."""
        drawn = hashlib.shake_256(b"tacit paillier enrolment number 1\n" + root).digest(_width(key) + _SPARE_BYTES)
        return cls.on(int.from_bytes(drawn, "big") % key.n, key, stated)

    @classmethod
    def on(cls, number: int, key: PublicKey, stated: bytes) -> Agreement:
        """Return the agreement on a number."""
        label = b"tacit paillier enrolment 1\n" + key.identity + stated
        drawn = hashlib.shake_256(label + number.to_bytes(_width(key), "big")).digest(SECRET_BYTES + _TAG_BYTES)
        return cls(key=key, number=number, secret=drawn[:SECRET_BYTES], tag=drawn[SECRET_BYTES:])

    @property
    def enrolment(self) -> bytes:
        """What tells an authority, and nobody else, the number."""
        return self.key.power(self.number).to_bytes(_width(self.key), "big") + self.tag


def secrets_of(enrolments: Mapping[ClientId, tuple[bytes, bytes]], private: PrivateKey) -> dict[ClientId, bytes]:
    """Return the masks' secrets of the clients whose enrolments are right, given what each has to state."""
    key = private.public
    found = {}
    for client, (body, stated) in enrolments.items():
        power, tag = int.from_bytes(body[: _width(key)], "big"), body[_width(key) :]
        if power < key.n and len(body) == length_of(key, signs=False):
            agreed = Agreement.on(private.root(power), key, stated)
            if hmac.compare_digest(agreed.tag, tag):
                found[client] = agreed.secret
    return found


def shown_to_shares(seed: bytes, stated: bytes) -> bytes:
    """Return an enrolment at holders of shares."""
    own = signing_key(seed)
    return own.public_key().public_bytes_raw() + own.sign(stated)


def signer_of(body: bytes, stated: bytes) -> bytes | None:
    """Return the public key of an enrolment at holders of shares, or None where it is not right."""
    public, signature = body[:PUBLIC_BYTES], body[PUBLIC_BYTES:]
    return public if len(signature) == SIGNATURE_BYTES and verified(public, signature, stated) else None


def identified(body: bytes, stated: bytes, identity: Ed25519PrivateKey) -> bytes:
    """Return an enrolment that a lasting identity has signed."""
    return body + identity.public_key().public_bytes_raw() + identity.sign(_vouched(body, stated))


def identity_of(body: bytes, stated: bytes, length: int) -> tuple[bytes, bytes | None]:
    """Return the first ``length`` bytes of an enrolment, and the identity that rightly vouches for them, if any."""
    own, rest = body[:length], body[length:]
    public, signature = rest[:PUBLIC_BYTES], rest[PUBLIC_BYTES:]
    right = len(rest) == _IDENTIFIED_BYTES and verified(public, signature, _vouched(own, stated))
    return (own, public) if right else (body, None)


def length_of(key: PublicKey, *, signs: bool) -> int:
    """Return how long an enrolment is without an identity."""
    return PUBLIC_BYTES + SIGNATURE_BYTES if signs else _width(key) + _TAG_BYTES


@dataclass(frozen=True, kw_only=True)
class Admission:
    """What a key holder is told of a run: the challenges it is known by, and clients with their enrolments."""

    challenges: Sequence[bytes]
    enrolments: Mapping[ClientId, bytes]

    def to_bytes(self) -> bytes:
        """Return the body of an ADMIT frame."""
        entries = [_ENTRY.pack(client, len(body)) + body for client, body in sorted(self.enrolments.items())]
        return b"".join([_COUNT.pack(len(self.challenges)), *self.challenges, *entries])

    @classmethod
    def from_bytes(cls, body: bytes) -> Admission:
        """Read what :meth:`to_bytes` wrote."""
        try:
            (count,) = _COUNT.unpack_from(body)
            place = _COUNT.size + count * CHALLENGE_BYTES
            if place > len(body):
                raise WireError(f"Expected {count} challenges, got {len(body)} bytes.")
            challenges = [body[at : at + CHALLENGE_BYTES] for at in range(_COUNT.size, place, CHALLENGE_BYTES)]
            enrolments: dict[ClientId, bytes] = {}
            while place < len(body):
                client, length = _ENTRY.unpack_from(body, place)
                place += _ENTRY.size + length
                if client in enrolments or place > len(body):
                    raise WireError("Expected every client once, with an enrolment as long as it says.")
                enrolments[client] = body[place - length : place]
        except struct.error as error:
            raise WireError(f"Expected challenges and enrolments, got {len(body)} bytes: {error}.") from error
        return cls(challenges=challenges, enrolments=enrolments)


def pack_clients(clients: Sequence[ClientId]) -> bytes:
    """Return clients' numbers as they travel."""
    return b"".join(map(_CLIENT.pack, clients))


def unpack_clients(body: bytes | memoryview) -> list[ClientId]:
    """Read what :func:`pack_clients` wrote."""
    if len(body) % _CLIENT.size:
        raise WireError(f"Expected clients' numbers of {_CLIENT.size} bytes each, got {len(body)} bytes.")
    return [number for (number,) in _CLIENT.iter_unpack(body)]


def _width(key: PublicKey) -> int:
    return (key.bits + 7) // 8


def _vouched(body: bytes, stated: bytes) -> bytes:
    return b"tacit paillier identity 1\n" + stated + hashlib.sha256(body).digest()
