"""The server half of the masked sum: whom it asks, what it adds, and what it takes off again."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tacit import wire
from tacit.errors import ClientError, ConfigError, DropoutError, KeysError, SpoiledError, WireError
from tacit.flow import ClientId, Flow, Gather
from tacit.protocols.masks import secrets
from tacit.protocols.masks.client import RUN_BYTES, ClientHalf
from tacit.protocols.masks.field import Field, Words, add_masks
from tacit.protocols.masks.graph import SECURITY, Circle, Members, Places, pack_clients, pack_members
from tacit.protocols.masks.member import check_secret, keys_digest, mask_seed, own_seed, statement_of, wrapping
from tacit.protocols.masks.secrets import CHECK_BYTES, ENTRY_BYTES, KEY_BYTES, SEALED_BYTES, SHARE_BYTES, Identity
from tacit.protocols.protocol import Guarantee, Refusals, Total
from tacit.protocols.signatures import PUBLIC_BYTES, SIGNATURE_BYTES, verified
from tacit.randomness import system_bytes

SETUP = wire.Turn(round_number=0)

_ASKS = 3  # times a client that does not answer is asked to sign or reveal
DEALT_BYTES = KEY_BYTES + SEALED_BYTES + 2 * CHECK_BYTES  # for one neighbour


@dataclass(frozen=True, kw_only=True)
class MaskedSum(ClientHalf):
    """Three trips per round, and one more where lists are signed; set up once, by a trip to every client.

    The server half holds nothing secret. What a client does, and what all sides know, is in :class:`ClientHalf`.

    Attributes:
        session: who has enrolled, once it is set up.
    """

    session: Session | None = None

    @property
    def guarantee(self) -> Guarantee:
        """Who sees what, with the numbers that hold for a cohort of the expected size."""
        hood = self.hood(max(self.expected, self.minimum_clients, 2))
        against = (
            "a server that lies too: clients sign the list of those in a sum and reveal for a list that more than half "
            "have signed"
            if self.signed
            else "a server that keeps to the protocol and looks (masks.signed=true adds one that lies)"
        )
        alone = f"together with up to {hood.corrupted} of them the server" if hood.corrupted else "the server by itself"
        chance = f", but for one round in 2^{SECURITY}" if hood.stretch else ""
        return Guarantee(
            server=f"masked vectors it cannot read, and the sum of each round; a client's vector is in one sum, of at "
            f"least {hood.minimum} of {hood.clients} clients, and {alone} learns no more{chance}. Each client has "
            f"{hood.neighbours} neighbours, any {hood.threshold} of which can open a mask of one round. It holds "
            f"against {against}",
            clients="the global model of each round; shares of neighbours' masks that open nothing below the threshold",
            outsider="nothing: updates travel under masks that only the whole sum takes off, and nobody has a key",
        )

    def setup(self, cohort: Sequence[ClientId]) -> Flow[MaskedSum]:
        """Have those of a cohort enrol that have not."""
        session = self.session or Session(run=system_bytes(RUN_BYTES))
        new = [client for client in cohort if client not in session.entries and not session.excluded(client)]
        if new:
            replies = yield dict.fromkeys(new, wire.pack(wire.Kind.ENROL, SETUP, session.run))
            for client, reply in sorted(replies.items()):
                session.enrol(client, reply, self)
        return replace(self, session=session)

    def server(self, cohort: Sequence[ClientId], task: wire.Task, length: int) -> Flow[Total]:
        """Have secrets shared, ask, add while replies arrive, and have the masks of the sum revealed."""
        session, field_ = self.session, self.fields(length)
        if session is None:
            raise ConfigError("Nobody has enrolled yet: run the protocol's setup first.")
        if len(cohort) > field_.summands:
            raise DropoutError(f"The cohort has {len(cohort)} clients, and sums have room for {field_.summands}.")
        members = sorted(client for client in cohort if client in session.entries)
        reasons = {client: session.reasons[client] for client in cohort if client in session.reasons}
        refusals = Refusals(round_number=task.turn.round_number, reasons=reasons)
        asked, least = len(cohort), max(self.minimum_clients, 2)
        if len(members) < least:
            raise refusals.too_few(len(members), asked=asked, minimum=least)
        round_ = Round(half=self, session=session, turn=task.turn, members=members, refusals=refusals)
        least = round_.circle.hood.minimum

        replies = yield round_.sharing()
        round_.shared(replies)
        round_.check(round_.sharers, asked)
        total = RunningSum(round_=round_, field_=field_, length=length)
        request = wire.pack_task(replace(task, told=pack_members(round_.sharers)))
        round_.asked = wire.bound_to(task, self.settings)
        yield Gather({members[place]: request for place in _places(round_.sharers)}, total.receive)
        round_.listed = total.arrived
        round_.check(round_.listed, asked)
        if self.signed:
            yield from round_.signed()
        yield from round_.revealed()
        plus, minus = round_.left_over()
        add_masks(total.residues, plus, minus)
        clients = tuple(members[place] for place in _places(round_.listed))
        try:
            vector = field_.decode(total.residues, len(clients))
        except WireError as error:
            raise SpoiledError(
                f"The sum of {len(clients)} clients can't be one: {error}. At least one of them lied, or masked with "
                "other settings. Nothing was released. Which one it was, masks hide: look at the clients."
            ) from error
        return Total(vector=vector, clients=clients, notes=(*refusals.notes, *round_.remarks))


@dataclass(kw_only=True)
class Session:
    """A run of the masked sum at the server: who has enrolled in it. Whoever came first under a number stays.

    What other clients would refuse is refused here, so that one client's keys never stop the others.

    Attributes:
        run: the identity of the run, drawn for it.
        entries: the public keys of each client, signed.
        first: those that it came with first; it takes part with no others.
        reasons: why clients take no part.
    """

    run: bytes
    entries: dict[ClientId, bytes] = field(default_factory=dict)
    first: dict[ClientId, bytes] = field(default_factory=dict)
    reasons: dict[ClientId, str] = field(default_factory=dict)
    _owners: dict[bytes, ClientId] = field(default_factory=dict, repr=False)  # of each key that was ever taken in
    _checking: Identity = field(default_factory=lambda: Identity(secret=system_bytes(KEY_BYTES)), repr=False)

    def enrol(self, client: ClientId, reply: bytes, half: ClientHalf) -> None:
        """Take in a client, or note why not."""
        try:
            entry = bytes(wire.expect(wire.Kind.ENROL, SETUP, client, reply))
            both = secrets.checked_entry(entry, half.statement(self.run, client))
            self._checking.agreed(both[0], self.run)
            self._check_new(client, entry, both)
        except ClientError as error:
            self.reasons[client] = str(error)
        except KeysError as error:
            self.reasons[client] = f"Client {client} could not enrol: {error}."
        else:
            self.entries[client] = self.first[client] = entry
            self._owners.update(dict.fromkeys(both, client))
            self.reasons.pop(client, None)

    def exclude(self, client: ClientId, why: str) -> None:
        """Do without a client for the rest of the run."""
        self.entries.pop(client, None)
        self.first[client] = b""
        self.reasons[client] = why

    def excluded(self, client: ClientId) -> bool:
        """Return whether a client was left out for good."""
        return self.first.get(client) == b""

    def _check_new(self, client: ClientId, entry: bytes, both: tuple[bytes, bytes]) -> None:
        if self.first.get(client, entry) != entry:
            raise KeysError("it has forgotten the keys that it first came with, or is another, or was left out before")
        if any(self._owners.get(key, client) != client for key in both):
            raise KeysError("it came with a key of another client")


class Round:
    """A round at the server, from the shares on: what each client dealt, who is left, and what was revealed.

    Attributes:
        circle: who is whose neighbour.
        sharers: who has shared its secrets.
        listed: whose vectors arrived.
        asked: the hash of what clients are asked for, see :func:`tacit.wire.bound_to`.
        remarks: what people should know of those who did not answer as asked afterwards.
    """

    def __init__(
        self,
        *,
        half: ClientHalf,
        session: Session,
        turn: wire.Turn,
        members: Sequence[ClientId],
        refusals: Refusals,
    ) -> None:
        self._half, self._session, self.turn, self._members, self.refusals = half, session, turn, members, refusals
        self._places = {client: place for place, client in enumerate(members)}
        self._list = pack_clients(np.array(members, np.uint64))
        entries = [session.entries[client] for client in members]
        self._keys = b"".join(entry[PUBLIC_BYTES : 2 * PUBLIC_BYTES] for entry in entries) if half.signed else b""
        self._entries = np.frombuffer(b"".join(entries), np.uint8).reshape(len(members), ENTRY_BYTES)
        self.circle = Circle.of(session.run, turn, self._list, keys_digest(self._keys), half.hood(len(members)))
        self._dealt: dict[int, NDArray[np.uint8]] = {}
        self._checks: dict[int, bytes] = {}
        self._opened: dict[int, dict[int, bytes]] = {}
        self._unopened: dict[int, int] = {}
        self._proof = b""
        self.sharers: Members = np.zeros(len(members), np.bool_)
        self.listed: Members = self.sharers
        self.asked = b""
        self.remarks: list[str] = []

    def place(self, client: ClientId) -> int:
        """Return a client's place in the cohort."""
        return self._places[client]

    def sharing(self) -> dict[ClientId, bytes]:
        """Return what asks every client to share its secrets."""
        head = self._list + self._keys
        return {
            client: wire.pack(wire.Kind.SHARE, self.turn, head + self._entries[self.circle.neighbours(place)].tobytes())
            for place, client in enumerate(self._members)
        }

    def shared(self, replies: Mapping[ClientId, bytes]) -> None:
        """Take what clients dealt."""
        k, size = self.circle.hood.neighbours, 2 * KEY_BYTES
        for client, reply in sorted(replies.items()):
            try:
                body = bytes(wire.expect(wire.Kind.SHARE, self.turn, client, reply))
                if len(body) != size + k * DEALT_BYTES:
                    raise self.blame(client, f"{len(body)} bytes of shares, expected {size + k * DEALT_BYTES}")
            except ClientError as error:
                self.refusals.add(client, error)
                if error.failure is wire.Failure.NOT_ENROLLED:
                    self._session.entries.pop(client, None)
                continue
            place = self.place(client)
            self._checks[place] = body[:size]
            self._dealt[place] = np.frombuffer(body, np.uint8, offset=size).reshape(k, DEALT_BYTES)
            self.sharers[place] = True

    def check(self, members: Members, asked: int) -> None:
        """Fail closed where those left are too few, or one of them has too few neighbours left."""
        hood, count = self.circle.hood, int(members.sum())
        if count < hood.minimum:
            raise self.refusals.too_few(count, asked=asked, minimum=hood.minimum)
        if not hood.stretch:
            return
        lonely = [
            self._members[place]
            for place in _places(self.sharers)
            if members[self.circle.neighbours(place)].sum() < hood.threshold
        ]
        if lonely or self.circle.thin(members):
            raise DropoutError(
                f"{count} of {asked} clients are left in round {self.turn.round_number}, and "
                f"{len(lonely) or 'some'} of them have too few neighbours among those: {hood.threshold} of "
                f"{hood.neighbours} needed. Nothing was revealed."
            )

    def signed(self) -> Flow[None]:
        """Collect signatures of the list until it has as many as every client asks for."""
        listed, quorum = pack_members(self.listed), self.circle.hood.quorum
        message = statement_of(self.circle.digest, pack_members(self.sharers), listed)
        request = wire.pack(wire.Kind.LIST, self.turn, listed)
        found: dict[int, bytes] = {}
        refused = set[ClientId]()
        for _ in range(_ASKS):
            left = [self._members[p] for p in _places(self.listed) if p not in found]
            replies = yield dict.fromkeys([client for client in left if client not in refused], request)
            for client, reply in sorted(replies.items()):
                place = self.place(client)
                try:
                    signature = bytes(wire.expect(wire.Kind.LIST, self.turn, client, reply))
                    key = self._keys[place * PUBLIC_BYTES : (place + 1) * PUBLIC_BYTES]
                    if len(signature) != SIGNATURE_BYTES or not verified(key, signature, message):
                        raise self.blame(client, "a signature of the list that does not hold")
                except ClientError as error:
                    refused.add(client)
                    self.remarks.append(f"{error} The list was signed without it.")
                else:
                    found[place] = signature
            if len(found) >= quorum:
                break
        else:
            raise self._failed(f"{len(found)} clients signed the list of those in the sum, {quorum} needed.")
        signers = np.zeros(len(self._members), np.bool_)
        signers[list(found)] = True
        self._proof = pack_members(signers) + self._keys + b"".join(found[place] for place in sorted(found))

    def revealed(self) -> Flow[None]:
        """Collect shares until every secret that is needed can be opened."""
        self._opened = {place: {} for place in _places(self.sharers)}
        listed, k = pack_members(self.listed), self.circle.hood.neighbours
        waiting = set(_places(self.listed))
        backwards = np.arange(k)[::-1]
        for _ in range(_ASKS):
            requests = {}
            for place in sorted(waiting):
                body = listed + self._seals(place, backwards) + self._proof
                requests[self._members[place]] = wire.pack(wire.Kind.REVEAL, self.turn, body)
            replies = yield requests
            for client, reply in sorted(replies.items()):
                waiting.discard(self.place(client))
                self._take(client, reply)
            if self._complete() or not waiting:
                break
        if not self._complete():
            short = [place for place, shares in self._opened.items() if len(shares) < self.circle.hood.threshold]
            for place in short:
                if self._unopened.get(place):
                    self._exclude(place, f"dealt shares that {self._unopened[place]} of its neighbours could not open")
            raise self._failed(
                f"{len(short)} masks could not be taken off: {self.circle.hood.threshold} of a client's "
                f"{self.circle.hood.neighbours} neighbours have to open their shares, and fewer did."
            )

    def left_over(self) -> tuple[list[bytes], list[bytes]]:
        """Return the seeds of the masks to add and to take off, so that the sum is left."""
        hood, bound = self.circle.hood, pack_members(self.sharers) + self.asked
        plus: list[bytes] = []
        minus: list[bytes] = []
        for place, shares in self._opened.items():
            points = sorted(shares)[: hood.threshold]
            secret = secrets.recovered([point + 1 for point in points], [shares[point] for point in points])
            inside = bool(self.listed[place])
            checks = self._checks[place]
            if check_secret(secret) != (checks[:KEY_BYTES] if inside else checks[KEY_BYTES:]):
                self._exclude(place, "dealt shares that do not fit together")
                raise self._failed("one client's shares open nothing.")
            if inside:
                minus.append(own_seed(secret, bound))
                continue
            wrapped = self._dealt[place][:, :KEY_BYTES]
            for point, neighbour in enumerate(self.circle.neighbours(place)):
                if self.listed[neighbour]:  # which masked with a client that is not in the sum
                    pair = secrets.crossed(wrapped[point].tobytes(), wrapping(secret, point))
                    (minus if neighbour < place else plus).append(mask_seed(pair, bound))
        return plus, minus

    def blame(self, client: ClientId, what: str) -> ClientError:
        """Return the error that names a client."""
        number = self.turn.round_number
        return ClientError(f"Client {client} sent {what} in round {number}.", client=client, round_number=number)

    def _seals(self, place: int, backwards: Places) -> bytes:
        """Return what a client's neighbours sealed for it, in the order of its neighbours."""
        none = bytes(SEALED_BYTES)
        return b"".join(
            self._dealt[int(dealer)][point, KEY_BYTES : KEY_BYTES + SEALED_BYTES].tobytes()
            if dealer in self._dealt
            else none
            for dealer, point in zip(self.circle.neighbours(place), backwards, strict=True)
        )

    def _take(self, client: ClientId, reply: bytes) -> None:
        """Note the shares that a client opened; each is compared with what was dealt."""
        k, place = self.circle.hood.neighbours, self.place(client)
        try:
            body = bytes(wire.expect(wire.Kind.REVEAL, self.turn, client, reply))
            if len(body) != k * SHARE_BYTES:
                raise self.blame(client, f"{len(body)} bytes of opened shares, expected {k * SHARE_BYTES}")
        except ClientError as error:
            self.remarks.append(f"{error} The masks were taken off without it.")
            return
        wrong = 0
        for point, neighbour in enumerate(map(int, self.circle.neighbours(place))):
            if not self.sharers[neighbour]:
                continue
            share, own = body[point * SHARE_BYTES : (point + 1) * SHARE_BYTES], k - 1 - point
            start = KEY_BYTES + SEALED_BYTES + (0 if self.listed[neighbour] else CHECK_BYTES)
            if secrets.check_of(share) == self._dealt[neighbour][own, start : start + CHECK_BYTES].tobytes():
                self._opened[neighbour][own] = share
            elif share == bytes(SHARE_BYTES):
                self._unopened[neighbour] = self._unopened.get(neighbour, 0) + 1
            else:
                wrong += 1
        if wrong:
            self.remarks.append(f"Client {client} opened {wrong} shares that were not dealt; they were not used.")

    def _exclude(self, place: int, what: str) -> None:
        """Do without a client from now on, whose shares lost this round."""
        client = self._members[place]
        self.remarks.insert(0, f"Client {client} {what}, and is left out from now on.")
        self._session.exclude(client, f"Client {client} {what} in round {self.turn.round_number}.")

    def _complete(self) -> bool:
        return all(len(shares) >= self.circle.hood.threshold for shares in self._opened.values())

    def _failed(self, why: str) -> DropoutError:
        told = " ".join(self.remarks[:5])
        return DropoutError(f"The sum of round {self.turn.round_number} stays hidden: {why} {told}".rstrip())


class RunningSum:
    """Takes masked vectors from any thread and adds them; the order of arrival changes nothing.

    Attributes:
        residues: the sum so far, with all masks on it.
        arrived: whose vectors are in it.
    """

    def __init__(self, *, round_: Round, field_: Field, length: int) -> None:
        self._round, self._field, self._length = round_, field_, length
        self._lock = threading.Lock()
        self.residues: Words = np.zeros(length, field_.word)
        self.arrived: Members = np.zeros_like(round_.sharers)

    def receive(self, client: ClientId, reply: bytes) -> None:
        """Check a reply and add it; one that can't be used is left out and its client named."""
        round_ = self._round
        try:
            body = wire.expect(wire.Kind.MASKED, round_.turn, client, reply)
            residues = self._field.unpack(body, self._length)
        except ClientError as error:
            self._refuse(client, error)
            return
        except WireError as error:
            self._refuse(client, round_.blame(client, f"a vector that can't be added: {error}"))
            return
        with self._lock:
            place = round_.place(client)
            if self.arrived[place] or client in round_.refusals.reasons:
                return
            self.arrived[place] = True
            self.residues += residues

    def _refuse(self, client: ClientId, error: ClientError) -> None:
        with self._lock:
            if not self.arrived[self._round.place(client)]:
                self._round.refusals.add(client, error)


def _places(members: Members) -> list[int]:
    found: list[int] = np.flatnonzero(members).tolist()
    return found
