"""The server half of the Paillier sum: what it asks, checks, adds and has opened, and who is enrolled in a run."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tacit import wire
from tacit.crypto.paillier import CiphertextVector, Layout, PublicKey, total
from tacit.crypto.paillier.knowledge import Claim, unproved
from tacit.crypto.ring import Rows
from tacit.crypto.threshold import PartialDecryption, ThresholdPublic
from tacit.crypto.threshold.partial import digest
from tacit.errors import CipherError, ClientError, ConfigError, DropoutError, KeysError, WireError
from tacit.flow import ClientId, Flow, Gather, party_name
from tacit.protocols.paillier.binding import (
    CHALLENGE_BYTES,
    Admission,
    KeyUse,
    Occasion,
    Public,
    check_key,
    encryption_key,
    run_of,
    seal_bytes,
    unpack_clients,
    unpack_key,
)
from tacit.protocols.paillier.check import DIGEST_BYTES, Check, check_row
from tacit.protocols.paillier.client import ClientHalf, pack_invitation
from tacit.protocols.paillier.holders import Opening
from tacit.protocols.protocol import Guarantee, Refusals, Total
from tacit.protocols.signatures import PUBLIC_BYTES, SIGNATURE_BYTES, verified

SETUP = wire.Turn(round_number=0)
Sums = NDArray[np.int64] | NDArray[np.float64]
Opened = PartialDecryption | NDArray[np.int64]  # a holder's part of a decryption, or an authority's sums

_ASKS = 3  # times a key holder that does not answer is asked
_SEES = {
    "authority": Guarantee(
        server="ciphertexts it cannot read, and the opened sum of each round; one update only together with the key "
        "authority, or with all other clients of a sum",
        clients="the global model of each round; a stolen client's key material opens nothing",
        outsider="nothing: updates travel encrypted to the key authority's key",
    ),
    "threshold": Guarantee(
        server="ciphertexts it cannot read, and the opened sum of each round; one update only together with {liars} of "
        "{all} key holders, or with all other clients of a sum",
        clients="the global model of each round; one holder's share opens nothing",
        outsider="nothing: updates travel encrypted, and no one party has the key",
    ),
    "shared": Guarantee(
        server="ciphertexts it cannot read, and the opened sum of each round; EVERY update together with any one "
        "client, or by lying to one about what a sum holds (legacy set-up: all clients share the private key)",
        clients="the global model of each round; any client that taps the connection reads every update",
        outsider="nothing, as long as no client's copy of the key is stolen",
    ),
}
_BATCH, _BATCH_BYTES = 8, 1 << 26  # vectors that wait to be added at once, and what they take at most


@dataclass(frozen=True, kw_only=True)
class PaillierSum(ClientHalf):
    """Two trips per round: the task out and ciphertexts back; their sum to the key holders, and its content back.

    The server half holds the public key and nothing secret. Before the first round :meth:`setup` asks the key holders
    for the public key, has clients enrol with it and the key holders admit them; run again, it enrols who is new. From
    then on every ciphertext is bound to run, round and client (:mod:`tacit.protocols.paillier.binding`). What a client
    does, and what all sides know, is in :class:`ClientHalf`.

    Attributes:
        holders: the parties that are asked to open, in this order; empty where the clients share the key.
        needed: how many of them it takes.
        session: what the server knows once it is set up.
        fingerprint: the key's identity, where the server's operator knows it beforehand.
        prove: whether holders of shares have to prove that their parts are right; one who does not is left out.
    """

    holders: tuple[ClientId, ...] = (-1,)
    needed: int = 1
    session: Session | None = None
    fingerprint: str | None = None
    prove: bool = False

    @property
    def guarantee(self) -> Guarantee:
        """Who sees what, by who holds the key."""
        found = _SEES[self.keys]
        if self.keys != "threshold":
            return found
        return replace(found, server=found.server.format(liars=self.liars, all=len(self.holders)))

    @property
    def liars(self) -> int:
        """How many holders of shares can help the server to open two sums of a round, and so one client's vector.

        Any t open a sum, and each honest holder gives its part of one sum per round. Two groups of t among l holders
        have 2t - l in common at least: where those are all liars, both groups give parts, of different sums.
        """
        return 2 * self.needed - len(self.holders)

    @property
    def public(self) -> Public | None:
        """The public key, once it is known."""
        return None if self.session is None else self.session.public

    def setup(self, cohort: Sequence[ClientId]) -> Flow[PaillierSum]:
        """Ask the key holders (``cohort`` where clients share the key) for the public key, and enrol the clients."""
        session = self.session
        if session is None:
            holders = self.holders or tuple(cohort)[:1]
            replies = yield dict.fromkeys(holders, wire.pack(wire.Kind.KEY, SETUP, self.rules.to_bytes()))
            session = opened_session(holders, needed=self.needed, keys=self.keys, replies=replies)
            self._check(session.public)
        yield from session.enrol(cohort)
        return replace(self, session=session)

    def server(self, cohort: Sequence[ClientId], task: wire.Task, length: int) -> Flow[Total]:
        """Ask, check and add while replies arrive, and have the sum opened."""
        session = self.session
        if session is None:
            raise ConfigError("The public key is not known yet: run the protocol's setup first.")
        layout = self.laid_out(length, session.key.bits)
        if len(cohort) > layout.summands:
            raise DropoutError(f"The cohort has {len(cohort)} clients, and the layout room for {layout.summands}.")
        asked = wire.bound_to(task, self.settings)
        check = Check.drawn(asked) if self.keys == "authority" else None
        request = wire.pack_task(task if check is None else replace(task, told=check.seed))
        gathered = RunningSum(turn=task.turn, asked=asked, layout=layout, session=session, cohort=cohort, check=check)
        yield Gather(dict.fromkeys(session.members(cohort), request), gathered.receive)
        encrypted = gathered.finish()
        clients = tuple(gathered.clients)
        refusals, minimum = gathered.refusals, max(self.minimum_clients, 1)
        if encrypted is None or len(clients) < minimum:
            raise refusals.too_few(len(clients), asked=len(cohort), minimum=minimum)
        if self.keys != "threshold":  # holders of shares form the very same product
            encrypted = encrypted.rerandomised()
        opening = gathered.opening(encrypted)
        vector, notes = yield from self._opened(encrypted, clients, task.turn, opening, check)
        refused = refusals.notes if refusals.reasons else ()
        return Total(vector=vector.astype(np.float64), clients=clients, notes=(*refused, *session.told(), *notes))

    def _check(self, public: Public) -> None:
        """Refuse a key that is not the one the run was set up for."""
        if isinstance(public, ThresholdPublic) != (self.keys == "threshold"):
            raise KeysError(f"The key holders' key is not of the kind that paillier.keys={self.keys} needs.")
        if isinstance(public, ThresholdPublic) and public.threshold != self.needed:
            raise KeysError(f"The key opens with {public.threshold} shares, and the run is set up for {self.needed}.")
        if self.fingerprint is not None and self.fingerprint != public.fingerprint:
            raise KeysError(
                f"The key holders' key has fingerprint {public.fingerprint}, expected {self.fingerprint}. Don't go on "
                "before you know why."
            )
        check_key(b"", encryption_key(public), insecure_key_size=self.insecure_key_size)

    def _opened(
        self,
        encrypted: CiphertextVector,
        clients: tuple[ClientId, ...],
        turn: wire.Turn,
        opening: Opening,
        check: Check | None,
    ) -> Flow[tuple[Sums, tuple[str, ...]]]:
        """Ask as many key holders as it takes, others where some are away or wrong, and all again before giving up.

        An answer is read as soon as it is there. A holder whose answer is garbage, stale, of another sum or under
        another's number is named and not asked again in this round; the others' answers stand. Where answers don't
        combine, proofs tell whose are wrong; without proofs all other holders are asked, and those that agree count.

        The encrypted sum is kept meanwhile: no client has to train again because a key holder was away.
        """
        assert self.session is not None, "clients were asked, so the key is known"
        request = wire.pack(wire.Kind.OPEN, turn, opening.to_bytes())
        there = tuple(holder for holder in self.holders if holder in self.session.challenges)
        holders = there or clients
        bound = digest(encrypted) if self.keys == "threshold" else b""
        answers: dict[ClientId, Opened] = {}
        refused: dict[ClientId, str] = {}
        doubts = ""  # why what has been answered does not combine
        for _ in range(_ASKS):
            left = [holder for holder in holders if holder not in answers and holder not in refused]
            while left:
                asked = left if doubts else left[: self.needed - len(answers)]
                left = left[len(asked) :]
                replies = yield dict.fromkeys(asked, request)
                known = len(answers)
                for holder in asked:
                    if holder in replies:
                        try:
                            body = wire.expect(wire.Kind.OPENED, turn, holder, replies[holder])
                            answers[holder] = self._answer(holder, body, encrypted, bound, check)
                        except ClientError as error:
                            refused[holder] = str(error)
                        except CipherError as error:
                            refused[holder] = f"{party_name(holder)} was asked to open a sum: {error}"
                if len(answers) < self.needed or len(answers) == known:
                    continue
                try:
                    value, wrong = self._content(encrypted, answers)
                except CipherError as error:
                    liars = self._disproved(encrypted, answers)
                    for holder in liars:
                        refused[holder] = f"{party_name(holder)} gave a wrong share: its proof does not hold."
                        del answers[holder]
                    doubts = str(error) if len(answers) >= self.needed else ""
                else:
                    refused |= {holder: f"{party_name(holder)} gave a wrong share." for holder in wrong}
                    ordered = sorted(refused, reverse=True)
                    return value, tuple(f"{refused[holder]} The sum was opened without it." for holder in ordered)
        reasons = [refused[holder] for holder in sorted(refused, reverse=True)]
        raise DropoutError(
            f"The sum of round {turn.round_number} was not opened: {len(answers)} of {len(holders)} key holders "
            f"answered with their part, {self.needed} needed. {' '.join([doubts, *reasons]).strip()}".rstrip()
        )

    def _answer(
        self, holder: ClientId, body: memoryview, encrypted: CiphertextVector, bound: bytes, check: Check | None
    ) -> Opened:
        """Read a key holder's answer, and raise CipherError where it is none to this request by this holder."""
        if isinstance(self.public, ThresholdPublic):
            part = PartialDecryption.from_bytes(body, self.public)
            if part.index != -holder:
                raise CipherError(f"it answered with the number of share {part.index}, expected its own.")
            if part.ciphertext != bound or len(part.rows) != len(encrypted.rows):
                raise CipherError("it answered with its part of another sum.")
            if self.prove and part.proof is None:  # else liars without proofs would be searched for, at length
                raise CipherError("it gave no proof of its part, which this run asks for (paillier.prove).")
            return part
        layout, key = encrypted.layout, encrypted.key
        end = 8 * layout.length
        expected = end + (0 if check is None else DIGEST_BYTES)
        if len(body) != expected:
            raise CipherError(f"it answered with {len(body)} bytes, expected {expected}.")
        sums = np.frombuffer(body[:end], "<i8").astype(np.int64)
        largest = layout.bound * encrypted.summands
        if sums.max() > largest or sums.min() < -largest:
            raise CipherError("it answered with a sum larger than its summands can be.")
        if check is not None:
            check.compare(sums, bytes(body[end:]), layout, encrypted.summands, key)
        return sums

    def _content(
        self, encrypted: CiphertextVector, answers: Mapping[ClientId, Opened]
    ) -> tuple[Sums, tuple[ClientId, ...]]:
        """Return the sum, and the key holders whose shares are wrong."""
        parts = [answer for answer in answers.values() if isinstance(answer, PartialDecryption)]
        if isinstance(self.public, ThresholdPublic):
            combined = self.public.combine(encrypted, parts)
            return combined.value, tuple(-index for index in combined.wrong)
        (sums,) = (answer for answer in answers.values() if not isinstance(answer, PartialDecryption))
        return encrypted.layout.worth(sums), ()

    def _disproved(self, encrypted: CiphertextVector, answers: Mapping[ClientId, Opened]) -> tuple[ClientId, ...]:
        """Return the key holders whose proofs don't hold."""
        if not isinstance(self.public, ThresholdPublic):
            return ()
        parts = [answer for answer in answers.values() if isinstance(answer, PartialDecryption)]
        return tuple(-index for index in self.public.disproved(encrypted, parts))


@dataclass(kw_only=True)
class Session:
    """A run of the encrypted sum at the server: who is enrolled in it.

    Clients enrol before the first round, or, if they were away then, when they are first asked. Whoever came first
    under a number stays: a client that has forgotten its secret is out for the rest of the run, unless it has a lasting
    identity and comes to the same secret again.

    Attributes:
        public: the key holders' public key.
        keys: who holds the private key.
        challenges: what each key holder drew for the run.
        needed: how many key holders open a sum.
        enrolments: what clients answered when they were asked to enrol.
        admitted: which clients each key holder has taken in.
        reasons: why clients take no part.
        remarks: what else people should know, until they are told.
    """

    public: Public
    keys: KeyUse
    challenges: Mapping[ClientId, bytes]
    needed: int
    enrolments: dict[ClientId, bytes] = field(default_factory=dict)
    admitted: dict[ClientId, set[ClientId]] = field(default_factory=dict)
    reasons: dict[ClientId, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @property
    def key(self) -> PublicKey:
        """The key that encrypts."""
        return encryption_key(self.public)

    @property
    def run(self) -> bytes:
        """The identity of the run."""
        return run_of(self.challenges.values())

    def members(self, cohort: Sequence[ClientId]) -> list[ClientId]:
        """Return those of a cohort whose replies can be opened: enough key holders have admitted them."""
        return [client for client in cohort if client in self.enrolments and self._accepted(client)]

    def signed(self, occasion: Occasion, seal: bytes, ciphertext: bytes | memoryview) -> bool:
        """Return whether an enrolled client has signed a ciphertext and its proof for an occasion."""
        signature, proof = seal[:SIGNATURE_BYTES], seal[SIGNATURE_BYTES:]
        public = self.enrolments[occasion.client][:PUBLIC_BYTES]
        return verified(public, signature, occasion.signed(proof, ciphertext))

    def told(self) -> tuple[str, ...]:
        """Return the remarks, once."""
        said, self.remarks = tuple(self.remarks), []
        return said

    def forget(self, client: ClientId) -> None:
        """Have a client enrol again that says it is not enrolled, such as one that was started anew."""
        self.enrolments.pop(client, None)
        for known in self.admitted.values():
            known.discard(client)

    def enrol(self, cohort: Sequence[ClientId]) -> Flow[None]:
        """Ask those of a cohort that are not enrolled, and have the key holders admit them."""
        new = [client for client in cohort if client not in self.enrolments]
        if not new:
            return
        invitation = wire.pack(wire.Kind.ENROL, SETUP, pack_invitation(self.run, self.key))
        replies = yield dict.fromkeys(new, invitation)
        came: list[ClientId] = []
        for client, reply in sorted(replies.items()):
            try:
                self.enrolments[client] = bytes(wire.expect(wire.Kind.ENROL, SETUP, client, reply))
                came.append(client)
                self.reasons.pop(client, None)
            except ClientError as error:
                self.reasons[client] = str(error)
        if self.keys == "shared" or not came:
            return
        for holder in self.challenges:
            self.admitted.setdefault(holder, set())
        answers = yield {
            holder: wire.pack(wire.Kind.ADMIT, SETUP, self._admission(holder).to_bytes()) for holder in self.challenges
        }
        for holder, answer in sorted(answers.items(), reverse=True):
            self._heard(holder, answer)
        for client in came:
            if not self._accepted(client):
                self.reasons[client] = (
                    f"Client {client} was not admitted by the key holders: another enrolment under its number came "
                    "first, its settings are others, or its identity is not on their lists."
                )

    def _admission(self, holder: ClientId) -> Admission:
        """Return what a holder does not know yet."""
        unknown = {client: body for client, body in self.enrolments.items() if client not in self.admitted[holder]}
        return Admission(challenges=list(self.challenges.values()), enrolments=unknown)

    def _heard(self, holder: ClientId, answer: bytes) -> None:
        try:
            refused = unpack_clients(wire.expect(wire.Kind.ADMIT, SETUP, holder, answer))
        except (ClientError, WireError) as error:
            self.remarks.append(f"{party_name(holder)} admitted nobody: {error}")
            return
        self.admitted[holder] |= self.enrolments.keys() - set(refused)

    def _accepted(self, client: ClientId) -> bool:
        return self.keys == "shared" or sum(client in known for known in self.admitted.values()) >= self.needed


def opened_session(
    holders: Sequence[ClientId], *, needed: int, keys: KeyUse, replies: Mapping[ClientId, bytes]
) -> Session:
    """Return the session that the key holders' answers to a request for the key begin.

    As many as open a sum have to tell the same key; they are more than half, so no others can. Whoever answers with
    garbage, a failure or another key is named and not in the run.
    """
    if len(replies) < needed:
        raise DropoutError(
            f"{len(replies)} of {len(holders)} key holders answered, {needed} needed. Start them, then run again."
        )
    bodies: dict[ClientId, bytes] = {}
    failed: dict[ClientId, ClientError] = {}
    for holder, reply in sorted(replies.items(), reverse=True):
        try:
            bodies[holder] = bytes(wire.expect(wire.Kind.KEY, SETUP, holder, reply))
        except ClientError as error:
            failed[holder] = error
    told = Counter(body[CHALLENGE_BYTES:] for body in bodies.values())
    agreed = next((key for key, count in told.items() if count >= needed), None)
    if agreed is None and failed:
        raise next(iter(failed.values()))
    if agreed is None:
        raise KeysError(
            f"The key holders {sorted(bodies)} have different public keys. Give all of them shares of one key."
        )
    challenges = {holder: body[:CHALLENGE_BYTES] for holder, body in bodies.items() if body[CHALLENGE_BYTES:] == agreed}
    reasons = [str(error) for error in failed.values()]
    reasons += [f"{party_name(h)} has another public key than the others." for h in bodies if h not in challenges]
    return Session(
        public=unpack_key(agreed),
        keys=keys,
        challenges=challenges,
        needed=needed,
        remarks=[f"{reason} The run goes on without it." for reason in reasons],
    )


class RunningSum:
    """Takes replies from any thread; holds at most a few vectors at a time, or all where key holders are shown them.

    A reply that can't be used is left out, and its client is named: see :class:`Refusals`. The order of arrival changes
    nothing. Of two replies of a client the first counts.
    """

    def __init__(
        self,
        *,
        turn: wire.Turn,
        asked: bytes,
        layout: Layout,
        session: Session,
        cohort: Iterable[ClientId],
        check: Check | None = None,
    ) -> None:
        self._turn, self._asked, self._layout, self._session, self._check = turn, asked, layout, session, check
        self._borne: Rows | None = None  # the product of what clients sent of the check
        self._lock = threading.Lock()
        self._waiting: dict[ClientId, tuple[CiphertextVector, Claim | None]] = {}
        self._sum: CiphertextVector | None = None
        self._seals: dict[ClientId, bytes] = {}
        self._shown: dict[ClientId, memoryview] = {}
        reasons = {client: session.reasons[client] for client in cohort if client in session.reasons}
        self.refusals = Refusals(round_number=turn.round_number, reasons=reasons)
        self.clients: list[ClientId] = []

    def receive(self, client: ClientId, reply: bytes) -> None:
        """Check a reply and add it, or keep it until there are a few."""
        try:
            vector, seal, ciphertext, borne, claimed = self._parsed(client, reply)
        except ClientError as error:
            with self._lock:
                if client in self.clients:
                    return
                self.refusals.add(client, error)
                if error.failure is wire.Failure.NOT_ENROLLED:
                    self._session.forget(client)
            return
        with self._lock:
            if client in self.clients or client in self.refusals.reasons:
                return
            self.clients.append(client)
            if seal:
                self._seals[client] = seal
            if self._session.keys == "threshold":
                self._shown[client] = ciphertext
            if borne is not None:
                self._borne = borne if self._borne is None else vector.key.ring.multiply(self._borne, borne)
            self._waiting[client] = vector, claimed
            if len(self._waiting) >= min(_BATCH, max(1, _BATCH_BYTES // vector.nbytes)):
                self._fold()

    def finish(self) -> CiphertextVector | None:
        """Return the sum of all replies that count, or None where there are none."""
        self._fold()
        self.clients.sort()
        return self._sum

    def opening(self, encrypted: CiphertextVector) -> Opening:
        """Return what key holders are asked: to open the sum, or the replies that holders of shares add themselves."""
        seals = {client: self._seals[client] for client in self.clients if client in self._seals}
        shown = [self._shown[client] for client in self.clients if client in self._shown]
        check = self._asked if self._session.keys == "threshold" else b""
        if self._check is not None and self._borne is not None:
            key = encrypted.key
            check = self._check.digest + key.ring.multiply(self._borne, key.take(1)).tobytes()
        return Opening(seals=seals, vectors=shown or [encrypted.to_bytes()], check=check)

    def _fold(self) -> None:
        """Add what is waiting, but for vectors whose makers have not proved that they know what is in them."""
        if self._session.keys == "threshold":
            self._leave_out_unproved()
        vectors = [] if self._sum is None else [self._sum]
        vectors += [vector for vector, _ in self._waiting.values()]
        if self._waiting:
            self._sum, self._waiting = total(vectors), {}

    def _leave_out_unproved(self) -> None:
        """Key holders would open nothing of a sum with one of them."""
        claims = {client: claimed for client, (_, claimed) in self._waiting.items() if claimed is not None}
        clients = list(claims)
        for place in unproved(self._session.key, list(claims.values())):
            client = clients[place]
            self.clients.remove(client)
            del self._waiting[client], self._seals[client], self._shown[client]
            self.refusals.add(client, self._blame(client, "Its proof that it knows what is in it does not hold."))

    def _parsed(
        self, client: ClientId, reply: bytes
    ) -> tuple[CiphertextVector, bytes, memoryview, Rows | None, Claim | None]:
        """Return a client's vector, what binds it to the turn, its bytes, what it bears of the check, and its claim."""
        body = wire.expect(wire.Kind.CIPHER, self._turn, client, reply)
        keys = self._session.keys
        size = seal_bytes(keys, self._session.key)
        seal, ciphertext = bytes(body[:size]), body[size:]
        borne, claimed = None, None
        occasion = Occasion(run=self._session.run, client=client, turn=self._turn, asked=self._asked)
        try:
            if self._check is not None:
                width = self._session.key.ring.width
                ciphertext, tail = ciphertext[:-width], ciphertext[-width:]
                borne = check_row(tail, self._session.key)
            vector = CiphertextVector.from_bytes(ciphertext, self._session.key)
            if keys == "threshold":
                claimed = occasion.claim(seal[SIGNATURE_BYTES:], vector)
        except CipherError as error:
            raise self._blame(client, str(error)) from error
        if keys == "threshold" and not self._session.signed(occasion, seal, ciphertext):
            raise self._blame(client, "It is not signed by this client for this round and what it was asked.")
        if vector.layout != self._layout or vector.summands != 1:
            raise self._blame(
                client,
                f"It has {vector.layout} and {vector.summands} summands, expected {self._layout} and 1. Check that its "
                "model and settings are the ones of this run.",
            )
        return vector, seal, ciphertext, borne, claimed

    def _blame(self, client: ClientId, what: str) -> ClientError:
        number = self._turn.round_number
        return ClientError(
            f"Client {client} sent an encrypted vector in round {number} that can't be added. {what}",
            client=client,
            round_number=number,
        )
