"""The server half of the Paillier sum: what it asks, adds and has opened, and by whom."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tacit import wire
from tacit.crypto.paillier import CiphertextVector
from tacit.crypto.threshold import PartialDecryption, ThresholdPublic
from tacit.crypto.threshold.partial import digest
from tacit.errors import CipherError, ClientError, ConfigError, DropoutError, KeysError
from tacit.flow import ClientId, Flow, Gather, party_name
from tacit.progress import told
from tacit.protocols.paillier.binding import Public, check_key, encryption_key
from tacit.protocols.paillier.blocks import Blocks
from tacit.protocols.paillier.check import DIGEST_BYTES, Check
from tacit.protocols.paillier.client import ClientHalf
from tacit.protocols.paillier.session import SETUP, RunningSum, Session, opened_session
from tacit.protocols.protocol import Guarantee, Total

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
        with contextlib.closing(gathered):
            yield Gather(dict.fromkeys(session.members(cohort), request), gathered.receive)
            encrypted = gathered.finish()
            clients = tuple(gathered.clients)
            refusals, minimum = gathered.refusals, max(self.minimum_clients, 1)
            if encrypted is None or len(clients) < minimum:
                raise refusals.too_few(len(clients), asked=len(cohort), minimum=minimum)
            there = tuple(holder for holder in self.holders if holder in session.challenges)
            opener = Opener(
                public=session.public,
                holders=list(there or clients),
                needed=self.needed,
                prove=self.prove,
                turn=task.turn,
                check=check,
            )
            vector = yield from self._opened(encrypted, gathered, opener)
        refused = refusals.notes if refusals.reasons else ()
        return Total(vector=vector, clients=clients, notes=(*refused, *session.told(), *opener.notes))

    def _opened(self, encrypted: CiphertextVector, gathered: RunningSum, opener: Opener) -> Flow[NDArray[np.float64]]:
        """Have the sum opened: at once, or by holders of shares, who form the very same product, a block at a time."""
        if self.keys != "threshold":
            encrypted = encrypted.rerandomised()
            vector = yield from opener.opened(encrypted, gathered.opening(encrypted).pieces())
            return vector.astype(np.float64)
        blocks = Blocks(layout=encrypted.layout)
        found = np.empty(encrypted.layout.length, np.float64)
        for number in range(blocks.count):
            rows = blocks.rows(number)
            block = replace(encrypted, layout=blocks.layout_of(number), rows=encrypted.rows[rows])
            found[encrypted.layout.numbers(rows)] = yield from opener.opened(block, gathered.block(number).pieces())
            if blocks.count > 1:
                told("opening the sum", rows.stop / encrypted.layout.rows)
        return found

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


@dataclass(kw_only=True)
class Opener:
    """Asks as many key holders as it takes, others where some are away or wrong, and all again before giving up.

    An answer is read as soon as it is there. A holder whose answer is garbage, stale, of another sum or under another's
    number is named and not asked again in this round; the others' answers stand. Where answers don't combine, proofs
    tell whose are wrong; without proofs all other holders are asked, and those that agree count. Of a sum that is
    opened in blocks each is opened so, first by those who opened the last.

    The encrypted sum is kept meanwhile: no client has to train again because a key holder was away.

    Attributes:
        public: their public key.
        holders: whom to ask, in this order.
        needed: how many of them it takes.
        prove: whether holders of shares have to prove that their parts are right.
        turn: of the sum.
        check: what an authority's answer has to bear.
        refused: who is not asked any more, and why.
    """

    public: Public
    holders: list[ClientId]
    needed: int
    prove: bool
    turn: wire.Turn
    check: Check | None = None
    refused: dict[ClientId, str] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know of holders that the sum was opened without."""
        return tuple(
            f"{self.refused[one]} The sum was opened without it." for one in sorted(self.refused, reverse=True)
        )

    def opened(self, encrypted: CiphertextVector, body: Iterable[bytes | memoryview]) -> Flow[Sums]:
        """Have a sum, or a block of one, opened, by requests with a body; return what is in it."""
        request = wire.pack(wire.Kind.OPEN, self.turn, *body)
        bound = digest(encrypted) if isinstance(self.public, ThresholdPublic) else b""
        answers: dict[ClientId, Opened] = {}
        doubts = ""  # why what has been answered does not combine
        for _ in range(_ASKS):
            left = [holder for holder in self.holders if holder not in answers and holder not in self.refused]
            while left:
                asked = left if doubts else left[: self.needed - len(answers)]
                left = left[len(asked) :]
                replies = yield dict.fromkeys(asked, request)
                known = len(answers)
                for holder in asked:
                    if holder in replies:
                        self._hear(holder, replies[holder], encrypted, bound, answers)
                if len(answers) < self.needed or len(answers) == known:
                    continue
                try:
                    value, wrong = self._content(encrypted, answers)
                except CipherError as error:
                    for holder in self._disproved(encrypted, answers):
                        self.refused[holder] = f"{party_name(holder)} gave a wrong share: its proof does not hold."
                        del answers[holder]
                    doubts = str(error) if len(answers) >= self.needed else ""
                else:
                    self.refused |= {holder: f"{party_name(holder)} gave a wrong share." for holder in wrong}
                    self.holders.sort(key=lambda holder: holder not in answers)
                    return value
        reasons = [self.refused[holder] for holder in sorted(self.refused, reverse=True)]
        raise DropoutError(
            f"The sum of round {self.turn.round_number} was not opened: {len(answers)} of {len(self.holders)} key "
            f"holders answered with their part, {self.needed} needed. "
            f"{' '.join([doubts, *reasons]).strip()}".rstrip()
        )

    def _hear(
        self,
        holder: ClientId,
        reply: bytes,
        encrypted: CiphertextVector,
        bound: bytes,
        answers: dict[ClientId, Opened],
    ) -> None:
        """Take a key holder's answer, or refuse whoever gave it."""
        try:
            answers[holder] = self._answer(
                holder, wire.expect(wire.Kind.OPENED, self.turn, holder, reply), encrypted, bound
            )
        except ClientError as error:
            self.refused[holder] = str(error)
        except CipherError as error:
            self.refused[holder] = f"{party_name(holder)} was asked to open a sum: {error}"

    def _answer(self, holder: ClientId, body: memoryview, encrypted: CiphertextVector, bound: bytes) -> Opened:
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
        expected = end + (0 if self.check is None else DIGEST_BYTES)
        if len(body) != expected:
            raise CipherError(f"it answered with {len(body)} bytes, expected {expected}.")
        sums = np.frombuffer(body[:end], "<i8").astype(np.int64)
        largest = layout.bound * encrypted.summands
        if sums.max() > largest or sums.min() < -largest:
            raise CipherError("it answered with a sum larger than its summands can be.")
        if self.check is not None:
            self.check.compare(sums, bytes(body[end:]), layout, encrypted.summands, key)
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
