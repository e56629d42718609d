"""The server's running sum: ciphertexts are checked and added as they arrive, and forgotten."""

from __future__ import annotations

import threading

from tacit import wire
from tacit.crypto.layout import Layout
from tacit.crypto.paillier import CiphertextVector, PublicKey, total
from tacit.errors import CipherError, ClientError
from tacit.flow import ClientId
from tacit.protocols.refusals import Refusals

_BATCH = 8  # vectors that wait to be added at once


class RunningSum:
    """Takes replies from any thread; holds at most a few vectors at a time.

    A reply that can't be used is left out, and its client is named: see :class:`Refusals`. The order of arrival changes
    nothing. Of two replies of a client the first counts.
    """

    def __init__(self, *, turn: wire.Turn, key: PublicKey, layout: Layout) -> None:
        self._turn, self._key, self._layout = turn, key, layout
        self._lock = threading.Lock()
        self._waiting: list[CiphertextVector] = []
        self._sum: CiphertextVector | None = None
        self.refusals = Refusals(round_number=turn.round_number)
        self.clients: list[ClientId] = []

    def receive(self, client: ClientId, reply: bytes) -> None:
        """Check a reply and add it, or keep it until there are a few."""
        try:
            vector = self._parsed(client, reply)
        except ClientError as error:
            with self._lock:
                self.refusals.add(client, error)
            return
        with self._lock:
            if client in self.clients or client in self.refusals.reasons:
                return
            self.clients.append(client)
            self._waiting.append(vector)
            if len(self._waiting) >= _BATCH:
                self._fold()

    def finish(self) -> CiphertextVector | None:
        """Return the sum of all replies that count, or None where there are none."""
        self._fold()
        self.clients.sort()
        return self._sum

    def _fold(self) -> None:
        vectors = ([] if self._sum is None else [self._sum]) + self._waiting
        if self._waiting:
            self._sum, self._waiting = total(vectors), []

    def _parsed(self, client: ClientId, reply: bytes) -> CiphertextVector:
        body = wire.expect(wire.Kind.CIPHER, self._turn, client, reply)
        try:
            vector = CiphertextVector.from_bytes(body, self._key)
        except CipherError as error:
            raise self._blame(client, str(error)) from error
        if vector.layout != self._layout or vector.summands != 1:
            raise self._blame(
                client,
                f"It has {vector.layout} and {vector.summands} summands, expected {self._layout} and 1. Check that its "
                "model and settings are the ones of this run.",
            )
        return vector

    def _blame(self, client: ClientId, what: str) -> ClientError:
        number = self._turn.round_number
        return ClientError(
            f"Client {client} sent an encrypted vector in round {number} that can't be added. {what}",
            client=client,
            round_number=number,
        )
