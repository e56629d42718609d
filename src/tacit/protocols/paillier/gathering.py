"""The server's running sum: ciphertexts are checked and added as they arrive, and forgotten unless they are shown."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from tacit import wire
from tacit.crypto.paillier import CiphertextVector, Layout, total
from tacit.errors import CipherError, ClientError
from tacit.flow import ClientId
from tacit.protocols.paillier.member import SEAL_BYTES
from tacit.protocols.paillier.opening import Opening
from tacit.protocols.paillier.session import Session
from tacit.protocols.refusals import Refusals

_BATCH = 8  # vectors that wait to be added at once


class RunningSum:
    """Takes replies from any thread; holds at most a few vectors at a time, or all where key holders are shown them.

    A reply that can't be used is left out, and its client is named: see :class:`Refusals`. The order of arrival changes
    nothing. Of two replies of a client the first counts.
    """

    def __init__(self, *, turn: wire.Turn, layout: Layout, session: Session, cohort: Iterable[ClientId]) -> None:
        self._turn, self._layout, self._session = turn, layout, session
        self._lock = threading.Lock()
        self._waiting: list[CiphertextVector] = []
        self._sum: CiphertextVector | None = None
        self._seals: dict[ClientId, bytes] = {}
        self._shown: dict[ClientId, memoryview] = {}
        reasons = {client: session.reasons[client] for client in cohort if client in session.reasons}
        self.refusals = Refusals(round_number=turn.round_number, reasons=reasons)
        self.clients: list[ClientId] = []

    def receive(self, client: ClientId, reply: bytes) -> None:
        """Check a reply and add it, or keep it until there are a few."""
        try:
            vector, seal, ciphertext = self._parsed(client, reply)
        except ClientError as error:
            with self._lock:
                self.refusals.add(client, error)
                if wire.is_failure(reply, wire.Failure.NOT_ENROLLED):
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
            self._waiting.append(vector)
            if len(self._waiting) >= _BATCH:
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
        return Opening(seals=seals, vectors=shown or [encrypted.to_bytes()])

    def _fold(self) -> None:
        vectors = ([] if self._sum is None else [self._sum]) + self._waiting
        if self._waiting:
            self._sum, self._waiting = total(vectors), []

    def _parsed(self, client: ClientId, reply: bytes) -> tuple[CiphertextVector, bytes, memoryview]:
        """Return a client's vector, what binds it to the turn, and its bytes."""
        body = wire.expect(wire.Kind.CIPHER, self._turn, client, reply)
        keys = self._session.keys
        seal, ciphertext = bytes(body[: SEAL_BYTES[keys]]), body[SEAL_BYTES[keys] :]
        try:
            vector = CiphertextVector.from_bytes(ciphertext, self._session.key)
        except CipherError as error:
            raise self._blame(client, str(error)) from error
        if keys == "threshold" and not self._session.signed(client, self._turn, seal, ciphertext):
            raise self._blame(client, "It is not signed by this client for this round.")
        if vector.layout != self._layout or vector.summands != 1:
            raise self._blame(
                client,
                f"It has {vector.layout} and {vector.summands} summands, expected {self._layout} and 1. Check that its "
                "model and settings are the ones of this run.",
            )
        return vector, seal, ciphertext

    def _blame(self, client: ClientId, what: str) -> ClientError:
        number = self._turn.round_number
        return ClientError(
            f"Client {client} sent an encrypted vector in round {number} that can't be added. {what}",
            client=client,
            round_number=number,
        )
