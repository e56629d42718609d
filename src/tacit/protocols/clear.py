"""The sum in the clear: the server reads every client's vector. And what all protocols of one trip have in common."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tacit import wire
from tacit.errors import ClientError, ConfigError, WireError
from tacit.flow import Addable, ClientId, Flow
from tacit.protocols.protocol import Contribution, Guarantee, Refusals, Total
from tacit.vectors import ExactSum, Vector, first_not_finite


@dataclass(frozen=True, kw_only=True)
class OneTrip(ABC):
    """A protocol of one trip, with nothing to set up: the task out, one reply per client back.

    Attributes:
        minimum_clients: with fewer replies that count the round fails closed.
    """

    minimum_clients: int
    trips: ClassVar[tuple[wire.Kind, ...]] = (wire.Kind.TASK,)

    def setup(self, cohort: Sequence[ClientId]) -> Flow[Self]:
        """Return at once: there is nothing to set up."""
        yield from ()
        return self

    def prepare(self, state: bytes, length: int) -> None:  # noqa: B027  # most have nothing to prepare
        """Do nothing: what is sent can't be begun before it is known."""

    def client(
        self,
        state: bytes,
        request: wire.Frame,
        vector: Contribution | None,
        *,
        number: ClientId = 0,
    ) -> tuple[bytes, bytes]:
        """Answer a task with the client's vector."""
        if vector is None:
            raise WireError(f"Expected a TASK frame, got {request.kind.name}: {type(self).__name__} knows no other.")
        return state, self._reply(request.turn, vector)

    def _total(
        self, vector: NDArray[np.float64], clients: tuple[ClientId, ...], *, asked: int, refusals: Refusals
    ) -> Total:
        """Return a sum that enough clients are in, or fail closed."""
        if len(clients) < self.minimum_clients:
            raise refusals.too_few(len(clients), asked=asked, minimum=self.minimum_clients)
        return Total(vector=vector, clients=clients, notes=refusals.notes if refusals.reasons else ())

    @abstractmethod
    def _reply(self, turn: wire.Turn, vector: Contribution) -> bytes:
        """Return the frame of a client's vector."""


@dataclass(frozen=True, kw_only=True)
class ClearSum(OneTrip):
    """One trip: the task out, one vector per client back, added as it arrives and without rounding.

    So the sum is the same to the bit whoever answers first, and no more than a few vectors are in memory at a time.

    A reply that is damaged, of another length, or not finite is left out, and its client is named. With a minimum of 0
    the sum is always formed, of nobody's vectors if need be: where noise that is complete without the clients hides who
    is in a round, what becomes of it must not depend on that.

    Attributes:
        accepted: what the server makes of a vector before it adds it, given what the task told the clients: the bounds
            that it can enforce, as it reads the vectors.
    """

    accepted: Callable[[bytes, Vector], Vector] | None = None

    @property
    def guarantee(self) -> Guarantee:
        """Nothing is hidden from the server."""
        return Guarantee(
            server="every client's update in the clear",
            clients="the global model of each round",
            outsider="nothing, where the connection is encrypted",
        )

    def server(self, cohort: Sequence[ClientId], task: wire.Task, length: int) -> Flow[Total]:
        """Ask, check, and add while replies arrive."""
        running = RunningSum(task=task, length=length, accepted=self.accepted)
        requests = Addable(dict.fromkeys(cohort, wire.pack_task(task)), running.receive)
        yield requests
        together, added = _joined(requests, running.clients, length)
        total = running.total.value()
        return self._total(
            total + added if together else total,
            tuple(sorted((*running.clients, *together))),
            asked=len(cohort),
            refusals=running.refusals,
        )

    def _reply(self, turn: wire.Turn, vector: Contribution) -> bytes:
        floats = vector.astype(np.float32, copy=False)
        if not np.issubdtype(vector.dtype, np.floating) and not np.array_equal(floats, vector):
            raise ConfigError("Whole numbers beyond 2^24 are not exact as float32: the clear sum can't carry them.")
        return wire.pack_vector(turn, floats)


class RunningSum:
    """Takes replies from any thread, checks and adds them, and keeps none; the order of arrival changes nothing.

    Of two replies of a client the first counts.
    """

    def __init__(self, *, task: wire.Task, length: int, accepted: Callable[[bytes, Vector], Vector] | None) -> None:
        self._task, self._length, self._accepted = task, length, accepted
        self._lock = threading.Lock()
        self.total = ExactSum(length)
        self.clients: set[ClientId] = set()
        self.refusals = Refusals(round_number=task.turn.round_number)

    def receive(self, client: ClientId, reply: bytes) -> None:
        """Add a reply; one that can't be used is left out and its client named."""
        try:
            vector = _vector(client, self._task.turn, reply, self._length)
        except ClientError as error:
            with self._lock:
                if client not in self.clients:
                    self.refusals.add(client, error)
            return
        if self._accepted is not None:
            vector = self._accepted(self._task.extras, vector)
        with self._lock:
            if client not in self.clients and client not in self.refusals.reasons:
                self.clients.add(client)
                self.total.add(vector)


def _joined(
    requests: Addable, alone: Collection[ClientId], length: int
) -> tuple[tuple[ClientId, ...], NDArray[np.float64] | float]:
    """Return who is in sums that were made in this process, and what these come to; each is in one sum, and alone."""
    clients = tuple(client for joint in requests.joint for client in joint.clients)
    if len({*clients, *alone}) != len(clients) + len(alone) or not requests.keys() >= set(clients):
        raise WireError(f"Expected every client once, in a sum or by itself, got {sorted((*clients, *alone))}.")
    if any(joint.vector.shape != (length,) or not np.isfinite(joint.vector).all() for joint in requests.joint):
        raise WireError(f"Expected sums of {length} finite numbers.")
    return clients, sum((joint.vector for joint in requests.joint), 0.0)


def _vector(client: ClientId, turn: wire.Turn, reply: bytes, length: int) -> Vector:
    body = wire.expect(wire.Kind.VECTOR, turn, client, reply)
    if len(body) != 4 * length:
        raise ClientError(
            f"Client {client} sent {len(body)} bytes in round {turn.round_number}, expected {4 * length} "
            f"({length} numbers). Check that its model is the one of this run.",
            client=client,
            round_number=turn.round_number,
        )
    vector = wire.unpack_floats(body)
    if first_not_finite(vector) is not None:
        raise ClientError(
            f"Client {client} failed in round {turn.round_number}: {wire.Failure.NOT_FINITE.words}",
            client=client,
            round_number=turn.round_number,
        )
    return vector
