"""What a client of the masked sum remembers, and what it derives from that for each use."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit import limits, wire
from tacit.errors import TacitError
from tacit.flow import ClientId
from tacit.protocols.masks import secrets
from tacit.protocols.masks.secrets import KEY_BYTES, Identity

_MEMBER = struct.Struct(">32sQ32sIH32s32s32sIIIIB")  # as the attributes stand, lengths last
_PIN = struct.Struct(">Q16s")
_NEVER = wire.Turn(round_number=0)
NOBODY = b""
DAMAGED = "its memory of the run is damaged, and it can take no part in it."


class RefusedError(TacitError):
    """A client refuses what it was asked for; the words have nothing to do with its data.

    Attributes:
        failure: what the server is told.
    """

    def __init__(self, message: str, failure: wire.Failure = wire.Failure.REFUSED) -> None:
        super().__init__(message)
        self.failure = failure


@dataclass(frozen=True, kw_only=True)
class Member:
    """What a client that has enrolled remembers, and keeps to itself.

    Attributes:
        run: which run it enrolled in.
        number: which client it is.
        secret: from which its keys and each round's secrets come; for this run alone.
        turn: the last round and try that it has shared secrets for.
        nonce: drawn for that turn.
        circle: what binds the turn's secrets: who is in the cohort, and their keys.
        shown: the digest of the cohort's signature keys.
        clients: how many are in the cohort.
        place: its own among them.
        agreed: what it shares with each neighbour.
        sharers: for whom it has masked its vector; nothing before that.
        listed: the list that it has signed or revealed for; nothing before that.
        pins: hashes of the keys of clients that it has met.
    """

    run: bytes
    number: ClientId
    secret: bytes = field(repr=False)
    turn: wire.Turn = _NEVER
    nonce: bytes = field(default=bytes(KEY_BYTES), repr=False)
    circle: bytes = bytes(32)
    shown: bytes = bytes(32)
    clients: int = 0
    place: int = 0
    agreed: tuple[bytes, ...] = field(default=(), repr=False)
    sharers: bytes = NOBODY
    listed: bytes = NOBODY
    pins: Mapping[ClientId, bytes] = field(default_factory=dict)

    def keys(self, lasting: Ed25519PrivateKey | None) -> Identity:
        """Return this client's keys."""
        return Identity(secret=self.secret, lasting=lasting)

    def polynomials(self, threshold: int) -> secrets.Limbs:
        """Return the polynomials whose constants are this turn's secrets: its own mask's, and that of the others."""
        return secrets.polynomials(secrets.expanded(self.secret, b"round", self.nonce, self.circle), threshold, 2)

    def to_bytes(self) -> bytes:
        """Return what the client's state is."""
        facts = _MEMBER.pack(
            self.run,
            self.number,
            self.secret,
            self.turn.round_number,
            self.turn.attempt,
            self.nonce,
            self.circle,
            self.shown,
            self.clients,
            self.place,
            len(self.agreed),
            len(self.pins),
            bool(self.sharers) + bool(self.listed),
        )
        pins = [_PIN.pack(client, pin) for client, pin in self.pins.items()]
        return b"".join([facts, *self.agreed, self.sharers, self.listed, *pins])

    @classmethod
    def from_bytes(cls, state: bytes) -> Member:
        """Read what :meth:`to_bytes` wrote."""
        try:
            run, number, secret, round_number, attempt, nonce, circle, shown, n, place, k, pinned, lists = (
                _MEMBER.unpack_from(state)
            )
            body, width = state[_MEMBER.size :], (n + 7) // 8
            agreed, rest = body[: k * KEY_BYTES], body[k * KEY_BYTES :]
            both, rest = rest[: lists * width], rest[lists * width :]
            pins = dict(_PIN.iter_unpack(rest))
        except struct.error as error:
            raise RefusedError(DAMAGED) from error
        whole = len(agreed) == k * KEY_BYTES and len(both) == lists * width and len(pins) == pinned
        if not whole or lists > 2 or not k <= n <= limits.CLIENTS or not place < max(n, 1):
            raise RefusedError(DAMAGED)
        return cls(
            run=run,
            number=number,
            secret=secret,
            turn=wire.Turn(round_number=round_number, attempt=attempt),
            nonce=nonce,
            circle=circle,
            shown=shown,
            clients=n,
            place=place,
            agreed=tuple(cut(agreed, KEY_BYTES)),
            sharers=both[:width],
            listed=both[width:],
            pins=pins,
        )


def pair_seed(agreed: bytes, circle: bytes) -> bytes:
    """Return the secret of two neighbours in a round, from what they share in the run."""
    return secrets.expanded(agreed, b"pair", circle)


def mask_seed(pair: bytes, bound: bytes) -> bytes:
    """Return the seed of the mask of two neighbours, bound to who has shared and to what was asked.

    Where two were asked for different things, such as by another model, their masks don't cancel, and the sum stays
    hidden.
    """
    return secrets.expanded(pair, b"mask", hashlib.sha256(bound).digest())


def own_seed(own: bytes, bound: bytes) -> bytes:
    """Return the seed of a client's own mask, bound likewise."""
    return secrets.expanded(own, b"own mask", hashlib.sha256(bound).digest())


def wrapping(others: bytes, point: int) -> bytes:
    """Return what hides a client's secret with the neighbour at a point, until its masks with others are opened."""
    return secrets.expanded(others, b"wrapping", struct.pack(">I", point))


def check_secret(secret: bytes) -> bytes:
    """Return the hash by which a secret is known to be the one that was shared."""
    return secrets.expanded(secret, b"check")


def keys_digest(keys: bytes) -> bytes:
    """Return the digest of the cohort's signature keys."""
    return hashlib.sha256(b"tacit masks signature keys 1\n" + keys).digest()


def statement_of(circle: bytes, sharers: bytes, listed: bytes) -> bytes:
    """Return what clients sign of a list: for which round, try and cohort, and of those who had shared."""
    lists = hashlib.sha256(sharers).digest() + hashlib.sha256(listed).digest()
    return b"tacit masks list 1\n" + circle + lists


def sealing(agreed: bytes, circle: bytes, dealer: int) -> bytes:
    """Return the key of the shares that one of two neighbours, the dealer, seals for the other in a round."""
    return secrets.expanded(agreed, b"shares", circle, struct.pack(">I", dealer))


def cut(data: bytes, width: int) -> list[bytes]:
    """Return bytes in pieces."""
    return [data[start : start + width] for start in range(0, len(data), width)]
