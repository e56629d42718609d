r"""Enrolment: how a client and the key holders come to share what binds its ciphertexts to the run, through the server.

A key holder draws a challenge for each run, and the run is known by the digest of all challenges. A client answers with
a key for that run alone:

* to an authority, a random r encrypted under the Paillier key. The noise of the ciphertext, and the secret of the
  client's masks, are :math:`\mathrm{SHAKE256}(\text{statement}, r)`. The authority decrypts, encrypts again and
  compares, so it accepts nothing that was not made of r for this statement: neither a client's update nor another's
  enrolment passes for a new one, and whether something was accepted tells nothing of any other ciphertext (the
  transform of Fujisaki and Okamoto 1999, with the statement as label);
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

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.crypto.paillier import PrivateKey, PublicKey
from tacit.crypto.paillier.public import exponent_bits
from tacit.crypto.rows import Rows, from_integers, not_below, to_integers, width_of, zeros
from tacit.errors import CipherError, WireError
from tacit.flow import ClientId
from tacit.protocols.paillier.binding import (
    CHALLENGE_BYTES,
    PUBLIC_BYTES,
    SECRET_BYTES,
    SIGNATURE_BYTES,
    signing_key,
    verified,
)

_IDENTIFIED_BYTES = PUBLIC_BYTES + SIGNATURE_BYTES
_COUNT = struct.Struct(">I")
_ENTRY = struct.Struct(">QI")  # client, length
_CLIENT = struct.Struct(">Q")


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """What a client and an authority share: a number that travels encrypted, and what both derive from it.

    Attributes:
        key: the authority's.
        number: the message.
        secret: of the client's masks.
        exponent: of the ciphertext's noise.
    """

    key: PublicKey
    number: int = field(repr=False)
    secret: bytes = field(repr=False)
    exponent: int = field(repr=False)

    @classmethod
    def of(cls, root: bytes, key: PublicKey, stated: bytes) -> Agreement:
        """Return the agreement that a client's root secret gives for what it states."""
        drawn = hashlib.shake_256(b"tacit paillier enrolment number 1\n" + root).digest(_wide(key))
        return cls.on(int.from_bytes(drawn, "big") % (key.n // 2), key, stated)

    @classmethod
    def on(cls, number: int, key: PublicKey, stated: bytes) -> Agreement:
        """Return the agreement on a number."""
        label = b"tacit paillier enrolment 1\n" + key.identity + stated
        drawn = hashlib.shake_256(label + number.to_bytes(_wide(key), "big")).digest(SECRET_BYTES + _wide(key))
        bits = exponent_bits(key.bits, key.kind, key.exponents)
        exponent = int.from_bytes(drawn[SECRET_BYTES:], "big") % (1 << bits)
        return cls(key=key, number=number, secret=drawn[:SECRET_BYTES], exponent=exponent)

    @property
    def enrolment(self) -> bytes:
        """What tells an authority, and nobody else, the number."""
        return self.key.encrypt(self.number, noise=self).row.tobytes()

    def take(self, count: int, *, workers: int | None = None, aside: bool = False) -> Rows:
        """Return the noise that belongs to the number, and no other."""
        exponents = from_integers([self.exponent] * count, width_of((1 << self.key.table.bits) - 1))
        return self.key.table.powers(exponents, workers=workers, aside=aside)


def secrets_of(enrolments: Mapping[ClientId, tuple[bytes, bytes]], private: PrivateKey) -> dict[ClientId, bytes]:
    """Return the masks' secrets of the clients whose enrolments are right, given what each has to state."""
    key = private.public
    rows = {client: body for client, (body, _) in enrolments.items() if len(body) == key.ring.width}
    found = {}
    for client, number in _opened(rows, private).items():
        agreed = Agreement.on(number, key, enrolments[client][1])
        if 2 * number < key.n and hmac.compare_digest(agreed.enrolment, rows[client]):
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
    return PUBLIC_BYTES + SIGNATURE_BYTES if signs else key.ring.width


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


def _wide(key: PublicKey) -> int:
    """Return the bytes of n and some: a number of as many is uniform modulo whatever is not longer than n."""
    return (key.bits + 7) // 8 + 16


def _vouched(body: bytes, stated: bytes) -> bytes:
    return b"tacit paillier identity 1\n" + stated + hashlib.sha256(body).digest()


def _opened(rows: Mapping[ClientId, bytes], private: PrivateKey) -> dict[ClientId, int]:
    """Return what ciphertexts hold, all at once; where one is forged, one by one without it."""
    key = private.public
    clients = list(rows)
    stacked: Rows = np.frombuffer(b"".join(rows.values()), np.uint8).reshape(-1, key.ring.width)
    outside = {*zeros(stacked).tolist(), *not_below(stacked, key.square).tolist()}
    inside = [place for place in range(len(clients)) if place not in outside]
    try:
        numbers = to_integers(private.open(stacked[inside])) if inside else []
        return dict(zip([clients[place] for place in inside], numbers, strict=True))
    except CipherError:
        if len(inside) == 1:
            return {}
        return {c: n for place in inside for c, n in _opened({clients[place]: rows[clients[place]]}, private).items()}
