"""The client half of the masked sum: what a client remembers, what it checks, and what it reveals and never reveals."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from tacit import wire
from tacit.errors import CipherError, ConfigError, KeysError, WireError
from tacit.flow import ClientId
from tacit.protocols.masks import secrets
from tacit.protocols.masks.field import Field, add_masks
from tacit.protocols.masks.graph import (
    Circle,
    Members,
    Neighbourhood,
    place_of,
    quorum_of,
    unpack_clients,
    unpack_members,
)
from tacit.protocols.masks.member import (
    DAMAGED,
    NOBODY,
    Member,
    RefusedError,
    check_secret,
    cut,
    keys_digest,
    mask_seed,
    own_seed,
    pair_seed,
    sealing,
    statement_of,
    wrapping,
)
from tacit.protocols.masks.secrets import ENTRY_BYTES, KEY_BYTES, SEALED_BYTES, SHARE_BYTES
from tacit.protocols.protocol import Contribution
from tacit.protocols.signatures import PUBLIC_BYTES, SIGNATURE_BYTES, verified
from tacit.randomness import system_bytes

RUN_BYTES = 32

_STATEMENT = struct.Struct(">32sQQQd")  # run, client, minimum, rounds, corrupted
_KEY = wire.Failure.KEY
_STEPS = (wire.Kind.SHARE, wire.Kind.TASK, wire.Kind.LIST, wire.Kind.REVEAL)


@dataclass(frozen=True, kw_only=True)
class ClientHalf:
    """What a client of the masked sum does: enrol once, then share, mask, sign and reveal in every round.

    It computes the field, the graph and every threshold from its own settings. It answers rounds in ascending order,
    each try once, and for one list. It keeps nothing: what it must remember is the state that :class:`Member` reads.

    Attributes:
        minimum_clients: with fewer replies the round fails closed, and no client reveals anything.
        rounds: how many there are; nobody answers for a later one.
        fields: makes the field for a vector's length; it has the largest number and how many may be added.
        expected: how many clients a round asks.
        corrupted: the share of them that may be the server's own.
        signed: whether clients sign the list of those in the sum, and check that more than half have signed the same.
        settings: the hash of what all parties have to agree on; masks of clients with other settings don't cancel.
        identity: on a client, its lasting identity, where it has one.
        known: on a client, the identities of all clients, where its operator has a list of them.
    """

    minimum_clients: int
    rounds: int
    fields: Callable[[int], Field]
    expected: int = 2
    corrupted: float = 0.05
    signed: bool = False
    settings: bytes = b""
    identity: Ed25519PrivateKey | None = field(default=None, repr=False)
    known: frozenset[bytes] | None = None

    def hood(self, clients: int) -> Neighbourhood:
        """Return the neighbourhood in a cohort of so many.

        Where there are more than expected, more of them may be the server's, and a sum needs as many more: so it has
        never fewer honest clients in it than noise was sized for.
        """
        least = max(self.minimum_clients, 2)
        expected = max(self.expected, least)
        usual, liars = (
            min(math.ceil(self.corrupted * count), least - 2) for count in (expected, max(clients, expected))
        )
        minimum = least + liars - usual
        if not self.signed:
            return Neighbourhood.of(clients=clients, minimum=minimum, corrupted=liars)
        return Neighbourhood.of(
            clients=clients, minimum=max(minimum, quorum_of(clients, liars)), corrupted=liars, everyone=True
        )

    @property
    def trips(self) -> tuple[wire.Kind, ...]:
        """What a client is asked in a round."""
        return _STEPS if self.signed else tuple(kind for kind in _STEPS if kind is not wire.Kind.LIST)

    def with_quorum(self) -> Self:
        """Return the half whose minimum is a cohort's quorum, where lists are signed."""
        return replace(self, minimum_clients=self.hood(max(self.expected, self.minimum_clients, 2)).minimum)

    def statement(self, run: bytes, client: ClientId) -> bytes:
        """Return what a client's keys are signed for."""
        return _STATEMENT.pack(run, client, self.minimum_clients, self.rounds, self.corrupted)

    def prepare(self, state: bytes, length: int) -> None:
        """Do nothing: masks are made when it is known with whom."""

    def client(
        self, state: bytes, request: wire.Frame, vector: Contribution | None, *, number: ClientId = 0
    ) -> tuple[bytes, bytes]:
        """Answer a request; the state is secret."""
        if request.kind is wire.Kind.TASK and vector is None:
            raise WireError("Expected a TASK with the client's vector.")
        if request.kind not in _STEPS and request.kind is not wire.Kind.ENROL:
            raise WireError(f"Expected ENROL, SHARE, TASK, LIST or REVEAL, got {request.kind.name}: no other is known.")
        try:
            if request.kind is wire.Kind.ENROL:
                return self._enrolled(state, request, number)
            member = self._member(state, request, number)
            if vector is not None and not np.isfinite(vector).all():  # the server must not know where
                return state, wire.pack_failure(request.turn, wire.Failure.NOT_FINITE)
            member, reply = self._step(member, request, vector)
        except RefusedError as error:
            return state, wire.pack_failure(request.turn, error.failure, str(error))
        except ConfigError:  # whose words may be about the client's numbers
            return state, wire.pack_failure(request.turn, wire.Failure.REFUSED)
        except (WireError, KeysError, CipherError) as error:
            return state, wire.pack_failure(request.turn, wire.Failure.REFUSED, str(error))
        return member.to_bytes(), reply

    def _step(self, member: Member, request: wire.Frame, vector: Contribution | None) -> tuple[Member, bytes]:
        match request.kind:
            case wire.Kind.SHARE:
                return self._shared(member, request)
            case wire.Kind.LIST:
                return self._signed(member, request)
            case wire.Kind.REVEAL:
                return self._revealed(member, request)
        assert vector is not None, "a task comes with one"
        return self._masked(member, request, vector)

    def _member(self, state: bytes, request: wire.Frame, number: ClientId) -> Member:
        """Return what this client remembers, or refuse a request that is for another one, or for another time."""
        if not state:
            raise RefusedError(wire.Failure.NOT_ENROLLED.words, wire.Failure.NOT_ENROLLED)
        member, turn = Member.from_bytes(state), request.turn
        if member.number != number:
            raise RefusedError("it has enrolled under another number.")
        if not 1 <= turn.round_number <= self.rounds:
            raise RefusedError(f"round {turn.round_number} is beyond the {self.rounds} announced.", wire.Failure.BEYOND)
        if request.kind is not wire.Kind.SHARE and member.turn != turn:
            raise RefusedError(
                "it has not shared secrets for this round and try, or the time for it is over.", wire.Failure.REPEATED
            )
        return member

    def _enrolled(self, state: bytes, request: wire.Frame, number: ClientId) -> tuple[bytes, bytes]:
        """Enrol in a run, or again in the same one, as an answer may be lost."""
        run = bytes(request.body)
        if len(run) != RUN_BYTES:
            raise WireError(f"Expected a run of {RUN_BYTES} bytes to enrol in, got {len(run)}.")
        member = Member.from_bytes(state) if state else None
        if member is None or (member.run, member.number) != (run, number):
            member = Member(run=run, number=number, secret=system_bytes(KEY_BYTES))
        entry = member.keys(self.identity).entry(self.statement(run, number))
        return member.to_bytes(), wire.pack(wire.Kind.ENROL, request.turn, entry)

    def _shared(self, member: Member, request: wire.Frame) -> tuple[Member, bytes]:
        """Share this round's two secrets among the neighbours, whose keys are checked first."""
        turn = request.turn
        clients, listed, rest = unpack_clients(bytes(request.body))
        size = len(clients) * PUBLIC_BYTES if self.signed else 0
        keys, entries = rest[:size], rest[size:]
        place = self._placed(member, clients)
        circle = Circle.of(member.run, turn, listed, keys_digest(keys), self.hood(len(clients)))
        if (turn.round_number, turn.attempt) <= (member.turn.round_number, member.turn.attempt):
            if turn != member.turn or member.circle != circle.digest or member.listed or member.sharers:
                raise RefusedError("it has answered this round and try, or a later one, before.", wire.Failure.REPEATED)
        else:
            member = replace(member, turn=turn, nonce=system_bytes(KEY_BYTES), sharers=NOBODY, listed=NOBODY)
        neighbours = circle.neighbours(place)
        if len(entries) != len(neighbours) * ENTRY_BYTES:
            raise WireError(f"Expected the keys of {len(neighbours)} neighbours, got {len(entries)} bytes.")
        mine, pins, agreed = member.keys(self.identity), dict(member.pins), []
        seen = {mine.signing.public_key().public_bytes_raw()}
        if self.signed and _key_at(keys, place) not in seen:
            raise RefusedError("its own key is not among those that may sign the round's list.", _KEY)
        for point, neighbour in enumerate(neighbours):
            other = int(clients[neighbour])
            entry = entries[point * ENTRY_BYTES : (point + 1) * ENTRY_BYTES]
            try:
                self._check_keys(entry, member.run, other, pins)
                agreed.append(mine.agreed(entry[:PUBLIC_BYTES], member.run))
            except KeysError as error:
                raise RefusedError(f"client {other} was shown with a key that is refused: {error}.", _KEY) from error
            both = {entry[:PUBLIC_BYTES], entry[PUBLIC_BYTES : 2 * PUBLIC_BYTES]}
            if both & seen:
                raise RefusedError(f"client {other} was shown with a key of another client.", _KEY)
            seen |= both
            if self.signed and _key_at(keys, int(neighbour)) not in both:
                raise RefusedError(f"client {other} may sign the round's list with a key that is not its own.", _KEY)
        member = replace(
            member,
            circle=circle.digest,
            shown=keys_digest(keys),
            clients=len(clients),
            place=place,
            agreed=tuple(agreed),
            pins=pins,
        )
        coefficients = member.polynomials(circle.hood.threshold)
        own, others = secrets.constants(coefficients)
        parts = [check_secret(own), check_secret(others)]
        for point, share in enumerate(secrets.shares_of(coefficients, len(agreed))):
            key = agreed[point]
            wrapped = secrets.crossed(pair_seed(key, circle.digest), wrapping(others, point))
            seal = secrets.sealed(sealing(key, circle.digest, place), share)
            checks = (secrets.check_of(share[:SHARE_BYTES]), secrets.check_of(share[SHARE_BYTES:]))
            parts += [wrapped, seal, *checks]
        return member, wire.pack(wire.Kind.SHARE, turn, b"".join(parts))

    def _placed(self, member: Member, clients: NDArray[np.uint64]) -> int:
        """Return this client's place in a cohort, or refuse a cohort that is without it, too small or too large."""
        place = place_of(clients, member.number)
        if place < 0:
            raise RefusedError("it was asked for a cohort that it is not in.")
        if len(clients) > (room := self.fields(1).summands):
            raise RefusedError(f"the cohort has {len(clients)} clients, and sums have room for {room}.")
        if len(clients) < max(self.minimum_clients, 2):
            raise RefusedError(f"the cohort has {len(clients)} clients, {max(self.minimum_clients, 2)} needed.")
        return place

    def _masked(self, member: Member, request: wire.Frame, vector: Contribution) -> tuple[Member, bytes]:
        """Hide the vector, for a sum of those who have shared."""
        told = wire.unpack_task(request).told
        if member.sharers:
            raise RefusedError("it has masked a vector for this round and try before.", wire.Failure.REPEATED)
        circle = self._circle(member)
        sharers = unpack_members(told, member.clients)
        self._check(circle, member, sharers, "has shared")
        inside = self.fields(len(vector))
        residues = inside.encode(vector)
        own, _ = secrets.constants(member.polynomials(circle.hood.threshold))
        bound = told + wire.bound_to(request, self.settings)
        plus, minus = [own_seed(own, bound)], list[bytes]()
        for key, neighbour in zip(member.agreed, circle.neighbours(member.place), strict=True):
            if sharers[neighbour]:
                seed = mask_seed(pair_seed(key, circle.digest), bound)
                (plus if member.place < neighbour else minus).append(seed)
        add_masks(residues, plus, minus)
        body = inside.pack(residues)
        return replace(member, sharers=told), wire.pack(wire.Kind.MASKED, request.turn, body)

    def _signed(self, member: Member, request: wire.Frame) -> tuple[Member, bytes]:
        """Sign a list, and never another one for this round and try."""
        listed = bytes(request.body)
        member = self._on_list(member, listed)
        signature = member.keys(self.identity).signing.sign(statement_of(member.circle, member.sharers, listed))
        return member, wire.pack(wire.Kind.LIST, request.turn, signature)

    def _revealed(self, member: Member, request: wire.Frame) -> tuple[Member, bytes]:
        """Reveal one share of each neighbour's: of its own mask if it is on the list, else of its masks with others."""
        circle, body = self._circle(member), bytes(request.body)
        width, k = (member.clients + 7) // 8, circle.hood.neighbours
        listed, seals, proof = body[:width], body[width : width + k * SEALED_BYTES], body[width + k * SEALED_BYTES :]
        member = self._on_list(member, listed)
        if self.signed:
            self._check_signatures(circle, member, listed, proof)
        sharers, members = (unpack_members(one, member.clients) for one in (member.sharers, listed))
        shares = []
        for point, neighbour in enumerate(circle.neighbours(member.place)):
            if not sharers[neighbour]:
                shares.append(bytes(SHARE_BYTES))
                continue
            key = sealing(member.agreed[point], circle.digest, int(neighbour))
            try:
                pair = secrets.unsealed(key, seals[point * SEALED_BYTES : (point + 1) * SEALED_BYTES])
            except CipherError:  # who dealt it, or the server, is to blame, and others' shares are not lost for that
                pair = bytes(2 * SHARE_BYTES)
            shares.append(pair[:SHARE_BYTES] if members[neighbour] else pair[SHARE_BYTES:])
        return member, wire.pack(wire.Kind.REVEAL, request.turn, b"".join(shares))

    def _on_list(self, member: Member, listed: bytes) -> Member:
        """Return the member bound to a list: the first that it is shown and can agree to."""
        if not member.sharers:
            raise RefusedError("it has masked no vector in this round and try.")
        if member.listed and member.listed != listed:
            raise RefusedError(
                "it was shown another list of clients for this round and try before, and reveals for one only.",
                wire.Failure.CHANGED,
            )
        members = unpack_members(listed, member.clients)
        sharers = unpack_members(member.sharers, member.clients)
        if (members & ~sharers).any():
            raise RefusedError("the list has clients on it that have shared nothing.")
        self._check(self._circle(member), member, members, "is on the list")
        return replace(member, listed=listed)

    def _check(self, circle: Circle, member: Member, members: Members, what: str) -> None:
        """Refuse a list that this client is not on, or that is too short or too thin to hide it."""
        hood = circle.hood
        if not members[member.place]:
            raise RefusedError(f"it is not among those of whom the server says that each {what}.")
        if (count := int(members.sum())) < hood.minimum:
            raise RefusedError(
                f"{count} of {hood.clients} clients are left, {hood.minimum} needed to hide one of them."
            )
        near = int(members[circle.neighbours(member.place)].sum())
        if near < hood.threshold or circle.thin(members):
            raise RefusedError(
                f"of its {hood.neighbours} neighbours {near} are left, {hood.threshold} needed, or those left do not "
                "hold together."
            )

    def _check_signatures(self, circle: Circle, member: Member, listed: bytes, proof: bytes) -> None:
        """Refuse a list that no more than half of the cohort have signed."""
        width, n = (member.clients + 7) // 8, member.clients
        signers = unpack_members(proof[:width], n)
        keys, signatures = proof[width : width + n * PUBLIC_BYTES], proof[width + n * PUBLIC_BYTES :]
        count = int(signers.sum())
        if len(keys) != n * PUBLIC_BYTES or len(signatures) != count * SIGNATURE_BYTES:
            raise WireError(f"Expected {n} keys and {count} signatures of a list, got {len(proof)} bytes.")
        if keys_digest(keys) != member.shown:
            raise RefusedError("the keys that signed the list are not those that the round began with.", _KEY)
        message = statement_of(member.circle, member.sharers, listed)
        right = set[bytes]()
        for place, signature in zip(np.flatnonzero(signers), cut(signatures, SIGNATURE_BYTES), strict=True):
            key = _key_at(keys, int(place))
            if self.known is not None and key not in self.known:
                continue
            if verified(key, signature, message):
                right.add(key)
            if len(right) >= circle.hood.quorum:
                return
        raise RefusedError(
            f"{len(right)} clients have signed the list, {circle.hood.quorum} needed: others saw another one, or none."
        )

    def _check_keys(self, entry: bytes, run: bytes, client: ClientId, pins: dict[ClientId, bytes]) -> None:
        """Check a neighbour's keys and pin them: they are the same as long as the run lasts."""
        pin = hashlib.sha256(entry).digest()[:16]
        if client not in pins:
            if self.signed:
                secrets.checked_entry(entry, self.statement(run, client))
            if self.known is not None and entry[PUBLIC_BYTES : 2 * PUBLIC_BYTES] not in self.known:
                raise KeysError("its identity is not on this client's list")
            pins[client] = pin
        elif pins[client] != pin:
            raise KeysError("it is another than in an earlier round")

    def _circle(self, member: Member) -> Circle:
        if not 2 <= member.clients <= self.fields(1).summands:
            raise RefusedError(DAMAGED)
        hood = self.hood(member.clients)
        if len(member.agreed) != hood.neighbours:
            raise RefusedError(DAMAGED)
        return Circle.drawn(member.circle, hood)


def _key_at(keys: bytes, place: int) -> bytes:
    return keys[place * PUBLIC_BYTES : (place + 1) * PUBLIC_BYTES]
