"""The Paillier sum: what the server asks, checks, adds and has opened, and what a client answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tacit import wire
from tacit.crypto.layout import Layout
from tacit.crypto.paillier import CiphertextVector
from tacit.crypto.paillier.public import Noise
from tacit.crypto.threshold import PartialDecryption, ThresholdPublic
from tacit.crypto.threshold.partial import digest
from tacit.errors import CipherError, ClientError, ConfigError, DropoutError, KeysError, TacitError, WireError
from tacit.flow import ClientId, Flow, Gather, party_name
from tacit.protocols.paillier.gathering import RunningSum
from tacit.protocols.paillier.terms import Public, Terms, encryption_key, pinned, pool_of, reason, unpack_key
from tacit.protocols.protocol import Contribution, Guarantee, Total

KeyUse = Literal["authority", "threshold", "shared"]
Sums = NDArray[np.int64] | NDArray[np.float64]
Answer = PartialDecryption | NDArray[np.int64]  # a holder's part of a decryption, or an authority's sums

_ASKS = 3  # times a key holder that does not answer is asked
_SETUP = wire.Turn(round_number=0)
_SEES = {
    "authority": Guarantee(
        server="ciphertexts it cannot read, and the opened sum of each round; one update only together with the key "
        "authority, or by lying to it about how many a sum holds",
        clients="the global model of each round; a stolen client's key material opens nothing",
        outsider="nothing: updates travel encrypted to the key authority's key",
    ),
    "threshold": Guarantee(
        server="ciphertexts it cannot read, and the opened sum of each round; one update only together with as many "
        "key holders as it takes to decrypt, or by lying to them about how many a sum holds",
        clients="the global model of each round; one holder's share opens nothing",
        outsider="nothing: updates travel encrypted, and no one party has the key",
    ),
    "shared": Guarantee(
        server="ciphertexts it cannot read, and the opened sum of each round; EVERY update together with any one "
        "client (legacy set-up: all clients share the private key)",
        clients="the global model of each round; any client that taps the connection reads every update",
        outsider="nothing, as long as no client's copy of the key is stolen",
    ),
}


@dataclass(frozen=True, kw_only=True)
class PaillierSum:
    """Two trips a round: the task out and ciphertexts back; the encrypted sum to the key holders and its content back.

    The server half holds the public key and nothing secret. Before the first round :meth:`setup` asks the key holders
    for the public key; it travels with every task, and clients pin it.

    Attributes:
        minimum_clients: with fewer replies the round fails closed.
        layout: makes the layout for a vector's length and a key's bits; it has the clip and the number of summands.
        keys: who holds the private key: an authority, several by shares, or (legacy) all clients.
        holders: the parties that are asked to open, in this order; empty where the clients share the key.
        needed: how many of them it takes.
        public: the public key, once it is known.
        fingerprint: the key's identity, where the server's operator knows it beforehand.
        insecure_key_size: whether keys below 2048 bits are accepted.
        prove: whether holders of shares have to prove that their parts are right; one who does not is left out.
        own: the client's own source of noise, on a client that has the private key; never on the server.
    """

    minimum_clients: int
    layout: Callable[[int, int], Layout]
    keys: KeyUse = "authority"
    holders: tuple[ClientId, ...] = (-1,)
    needed: int = 1
    public: Public | None = None
    fingerprint: str | None = None
    insecure_key_size: bool = False
    prove: bool = False
    own: Noise | None = None

    @property
    def guarantee(self) -> Guarantee:
        """Who sees what, by who holds the key."""
        return _SEES[self.keys]

    def setup(self, cohort: Sequence[ClientId]) -> Flow[PaillierSum]:
        """Ask the key holders (``cohort`` where clients share the key) for the public key; all have to agree."""
        holders = self.holders or tuple(cohort)[:1]
        replies = yield dict.fromkeys(holders, wire.pack(wire.Kind.KEY, _SETUP, b""))
        if len(replies) < self.needed:
            raise DropoutError(
                f"{len(replies)} of {len(holders)} key holders answered, {self.needed} needed. Start them, then run "
                "again."
            )
        bodies = {holder: bytes(wire.expect(wire.Kind.KEY, _SETUP, holder, reply)) for holder, reply in replies.items()}
        if len(set(bodies.values())) != 1:
            raise KeysError(
                f"The key holders {sorted(bodies)} have different public keys. Give all of them shares of one key."
            )
        public = unpack_key(next(iter(bodies.values())))
        key = encryption_key(public)
        if isinstance(public, ThresholdPublic) != (self.keys == "threshold"):
            raise KeysError(f"The key holders' key is not of the kind that paillier.keys={self.keys} needs.")
        if isinstance(public, ThresholdPublic) and public.threshold != self.needed:
            raise KeysError(f"The key opens with {public.threshold} shares, and the run is set up for {self.needed}.")
        if self.fingerprint is not None and self.fingerprint != public.fingerprint:
            raise KeysError(
                f"The key holders' key has fingerprint {public.fingerprint}, expected {self.fingerprint}. Don't go on "
                "before you know why."
            )
        pinned(b"", key, insecure_key_size=self.insecure_key_size)
        return replace(self, public=public)

    def server(self, cohort: Sequence[ClientId], task: wire.Task, length: int) -> Flow[Total]:
        """Ask, check and add while replies arrive, and have the sum opened."""
        if self.public is None:
            raise ConfigError("The public key is not known yet: run the protocol's setup first.")
        key = encryption_key(self.public)
        layout = self.layout(length, key.bits)
        if len(cohort) > layout.summands:
            raise DropoutError(f"The cohort has {len(cohort)} clients, and the layout room for {layout.summands}.")
        request = wire.pack_task(replace(task, terms=Terms(key=key, layout=layout).to_bytes()))
        gathered = RunningSum(turn=task.turn, key=key, layout=layout)
        yield Gather(dict.fromkeys(cohort, request), gathered.receive)
        encrypted = gathered.finish()
        clients = tuple(gathered.clients)
        gathered.refusals.check(len(clients), asked=len(cohort), minimum=max(self.minimum_clients, 1))
        assert encrypted is not None
        vector, notes = yield from self._opened(encrypted.rerandomised(), clients, task.turn)
        return Total(vector=vector.astype(np.float64), clients=clients, notes=gathered.refusals.notes + notes)

    def prepare(self, request: bytes) -> None:
        """Begin to make the noise for one vector, so that it is there when training is done."""
        try:
            terms = Terms.from_bytes(wire.unpack_task(request).terms)
        except TacitError:
            return  # the client half says what is wrong
        if self.own is None:
            pool = pool_of(terms.key)
            pool.fill(pool.wanted + terms.layout.rows)

    def client(self, state: bytes, request: bytes, vector: Contribution | None) -> tuple[bytes, bytes]:
        """Answer a task with the client's vector, encrypted; the state is the pin of the key."""
        if vector is None:
            raise WireError("Expected a TASK frame; a client of the Paillier sum knows no other request.")
        task = wire.unpack_task(request)
        if not np.isfinite(vector).all():  # where, and what it is instead, the server must not know
            return state, wire.pack_failure(task.turn, wire.Failure.NOT_FINITE)
        try:
            terms = Terms.from_bytes(task.terms)
            state = pinned(state, terms.key, insecure_key_size=self.insecure_key_size)
            noise = pool_of(terms.key) if self.own is None else self.own
            encrypted = terms.key.encrypt(vector, terms.layout, noise=noise)
        except TacitError as error:
            return state, wire.pack_failure(task.turn, wire.Failure.REFUSED, reason(error))
        return state, wire.pack(wire.Kind.CIPHER, task.turn, encrypted.to_bytes())

    def _opened(
        self, encrypted: CiphertextVector, clients: tuple[ClientId, ...], turn: wire.Turn
    ) -> Flow[tuple[Sums, tuple[str, ...]]]:
        """Ask as many key holders as it takes, others where some are away or wrong, and all again before giving up.

        An answer is read as soon as it is there. A holder whose answer is garbage, stale, of another sum or under
        another's number is named and not asked again in this round; the others' answers stand. Where answers don't
        combine, proofs tell whose are wrong; without proofs all other holders are asked, and those that agree count.

        The encrypted sum is kept meanwhile: no client has to train again because a key holder was away.
        """
        request = wire.pack(wire.Kind.OPEN, turn, encrypted.to_bytes())
        holders, bound = self.holders or clients, digest(encrypted)
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
