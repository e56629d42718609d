"""The Paillier sum: what the server asks, checks, adds and has opened, and what a client answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from tacit import wire
from tacit.crypto.paillier import CiphertextVector, Layout
from tacit.crypto.paillier.public import Noise
from tacit.crypto.threshold import PartialDecryption, ThresholdPublic
from tacit.crypto.threshold.partial import digest
from tacit.errors import CipherError, ClientError, ConfigError, DropoutError, KeysError, TacitError, WireError
from tacit.flow import ClientId, Flow, Gather, party_name
from tacit.protocols.paillier.binding import Rules
from tacit.protocols.paillier.gathering import RunningSum
from tacit.protocols.paillier.member import Member, unpack_invitation
from tacit.protocols.paillier.opening import Opening
from tacit.protocols.paillier.session import SETUP, Session, opened_session
from tacit.protocols.paillier.terms import KeyUse, Public, check_key, encryption_key, pool_of, reason
from tacit.protocols.protocol import Contribution, Guarantee, Total

Sums = NDArray[np.int64] | NDArray[np.float64]
Answer = PartialDecryption | NDArray[np.int64]  # a holder's part of a decryption, or an authority's sums

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


@dataclass(frozen=True, kw_only=True)
class PaillierSum:
    """Two trips a round: the task out and ciphertexts back; their sum to the key holders, and its content back.

    The server half holds the public key and nothing secret. Before the first round :meth:`setup` asks the key holders
    for the public key, has clients enrol with it and the key holders admit them; run again, it enrols who is new. From
    then on every ciphertext is bound to run, round and client (:mod:`tacit.protocols.paillier.binding`). A client
    encrypts to its pinned key only, in the layout that its own settings give.

    Attributes:
        minimum_clients: with fewer replies the round fails closed.
        rounds: how many there are; nobody answers for a later one.
        layout: makes the layout for a vector's length and a key's bits; it has the clip and the number of summands.
        keys: who holds the private key: an authority, several by shares, or (legacy) all clients.
        holders: the parties that are asked to open, in this order; empty where the clients share the key.
        needed: how many of them it takes.
        session: what the server knows once it is set up.
        fingerprint: the key's identity, where the server's operator knows it beforehand.
        insecure_key_size: whether keys below 2048 bits are accepted.
        prove: whether holders of shares have to prove that their parts are right; one who does not is left out.
        pin: on a client, the identity of the key that its operator trusts; empty to trust the first.
        identity: on a client, its lasting identity, where it has one.
        own: the client's own source of noise, on a client that has the private key; never on the server.
    """

    minimum_clients: int
    rounds: int
    layout: Callable[[int, int], Layout]
    keys: KeyUse = "authority"
    holders: tuple[ClientId, ...] = (-1,)
    needed: int = 1
    session: Session | None = None
    fingerprint: str | None = None
    insecure_key_size: bool = False
    prove: bool = False
    pin: bytes = b""
    identity: Ed25519PrivateKey | None = field(default=None, repr=False)
    own: Noise | None = None

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

        Any t open a sum, and each honest holder gives its part of one sum a round. Two groups of t among l holders
        have 2t - l in common at least: where those are all liars, both groups give parts, of different sums.
        """
        return 2 * self.needed - len(self.holders)

    @property
    def rules(self) -> Rules:
        """What clients and key holders have to agree on."""
        return Rules(minimum_clients=self.minimum_clients, rounds=self.rounds)

    @property
    def public(self) -> Public | None:
        """The public key, once it is known."""
        return None if self.session is None else self.session.public

    def setup(self, cohort: Sequence[ClientId]) -> Flow[PaillierSum]:
        """Ask the key holders (``cohort`` where clients share the key) for the public key, and enrol the clients."""
        session = self.session
        if session is None:
            holders = self.holders or tuple(cohort)[:1]
            replies = yield dict.fromkeys(holders, wire.pack(wire.Kind.KEY, SETUP, b""))
            session = opened_session(holders, needed=self.needed, keys=self.keys, replies=replies)
            self._check(session.public)
        yield from session.enrol(cohort)
        return replace(self, session=session)

    def server(self, cohort: Sequence[ClientId], task: wire.Task, length: int) -> Flow[Total]:
        """Ask, check and add while replies arrive, and have the sum opened."""
        session = self.session
        if session is None:
            raise ConfigError("The public key is not known yet: run the protocol's setup first.")
        layout = self.layout(length, session.key.bits)
        if len(cohort) > layout.summands:
            raise DropoutError(f"The cohort has {len(cohort)} clients, and the layout room for {layout.summands}.")
        gathered = RunningSum(turn=task.turn, layout=layout, session=session, cohort=cohort)
        request = wire.pack_task(task)
        yield Gather(dict.fromkeys(session.members(cohort), request), gathered.receive)
        encrypted = gathered.finish()
        clients = tuple(gathered.clients)
        gathered.refusals.check(len(clients), asked=len(cohort), minimum=max(self.minimum_clients, 1))
        assert encrypted is not None
        if self.keys != "threshold":  # holders of shares form the very same product
            encrypted = encrypted.rerandomised()
        vector, notes = yield from self._opened(encrypted, clients, task.turn, gathered.opening(encrypted))
        return Total(
            vector=vector.astype(np.float64), clients=clients, notes=(*gathered.refusals.notes, *session.told(), *notes)
        )

    def prepare(self, state: bytes, length: int) -> None:
        """Begin to make the noise for one vector, so that it is there when training is done."""
        if self.own is not None or not state:
            return
        try:
            key = Member.from_bytes(state).key
            rows = self.layout(length, key.bits).rows
        except TacitError:
            return  # the client half says what is wrong
        pool = pool_of(key)
        pool.fill(pool.wanted + rows)

    def client(
        self, state: bytes, request: bytes, vector: Contribution | None, *, number: ClientId = 0
    ) -> tuple[bytes, bytes]:
        """Enrol, or answer a task with the client's vector, encrypted; the state is secret."""
        frame = wire.unpack(request)
        if frame.kind is wire.Kind.ENROL:
            return self._enrolled(state, frame, number)
        if vector is None:
            raise WireError(f"Expected an ENROL or a TASK frame, got {frame.kind.name}: a client answers nothing else.")
        turn = wire.unpack_task(frame).turn
        if not state:
            return state, wire.pack_failure(turn, wire.Failure.NOT_ENROLLED)
        if not 1 <= turn.round_number <= self.rounds:
            return state, wire.pack_failure(turn, wire.Failure.BEYOND)
        if not np.isfinite(vector).all():  # where, and what it is instead, the server must not know
            return state, wire.pack_failure(turn, wire.Failure.NOT_FINITE)
        try:
            member = Member.from_bytes(state)
            layout = self.layout(len(vector), member.key.bits)
            noise = pool_of(member.key) if self.own is None else self.own
            body = member.reply(vector, layout, turn, self.keys, self.rules, noise)
        except TacitError:  # whose words may be about the client's numbers
            return state, wire.pack_failure(turn, wire.Failure.REFUSED)
        return state, wire.pack(wire.Kind.CIPHER, turn, body)

    def _enrolled(self, state: bytes, frame: wire.Frame, number: ClientId) -> tuple[bytes, bytes]:
        """Enrol in a run, or again in the same one, as an answer may be lost; the key has to be the pinned one."""
        try:
            run, key = unpack_invitation(bytes(frame.body))
            member = Member.from_bytes(state) if state else None
            pin = self.pin or (b"" if member is None else member.key.identity)
            check_key(pin, key, insecure_key_size=self.insecure_key_size)
            if member is None or (member.run, member.number, member.key) != (run, number, key):
                member = Member.of(run, number, key, self.identity)
            body = member.enrolment(self.keys, self.rules, self.identity)
        except TacitError as error:  # about keys and frames: nothing of the client's data is known here
            return state, wire.pack_failure(frame.turn, wire.Failure.KEY, reason(error))
        return member.to_bytes(), wire.pack(wire.Kind.ENROL, frame.turn, body)

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
        self, encrypted: CiphertextVector, clients: tuple[ClientId, ...], turn: wire.Turn, opening: Opening
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
        holders, bound = there or clients, digest(encrypted)
        answers: dict[ClientId, Answer] = {}
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
                            answers[holder] = self._answer(holder, body, encrypted, bound)
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

    def _answer(self, holder: ClientId, body: memoryview, encrypted: CiphertextVector, bound: bytes) -> Answer:
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
        layout = encrypted.layout
        if len(body) != 8 * layout.length:
            raise CipherError(f"it answered with {len(body)} bytes, expected {8 * layout.length}.")
        sums = np.frombuffer(body, "<i8").astype(np.int64)
        largest = layout.bound * encrypted.summands
        if sums.max() > largest or sums.min() < -largest:
            raise CipherError("it answered with a sum larger than its summands can be.")
        return sums

    def _content(
        self, encrypted: CiphertextVector, answers: Mapping[ClientId, Answer]
    ) -> tuple[Sums, tuple[ClientId, ...]]:
        """Return the sum, and the key holders whose shares are wrong."""
        parts = [answer for answer in answers.values() if isinstance(answer, PartialDecryption)]
        if isinstance(self.public, ThresholdPublic):
            combined = self.public.combine(encrypted, parts)
            return combined.value, tuple(-index for index in combined.wrong)
        (sums,) = (answer for answer in answers.values() if not isinstance(answer, PartialDecryption))
        return encrypted.layout.worth(sums), ()

    def _disproved(self, encrypted: CiphertextVector, answers: Mapping[ClientId, Answer]) -> tuple[ClientId, ...]:
        """Return the key holders whose proofs don't hold."""
        if not isinstance(self.public, ThresholdPublic):
            return ()
        parts = [answer for answer in answers.values() if isinstance(answer, PartialDecryption)]
        return tuple(-index for index in self.public.disproved(encrypted, parts))
