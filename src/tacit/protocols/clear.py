"""The sum in the clear: the server reads every client's vector. And what all protocols of one trip have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tacit import wire
from tacit.errors import ClientError, ConfigError, WireError
from tacit.flow import Addable, ClientId, Flow, Frames
from tacit.protocols.protocol import Contribution, Guarantee, Refusals, Total
from tacit.vectors import Vector, first_not_finite


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
    """One trip: the task out, one vector per client back, added in float64 in the order of the clients' numbers.

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
        """Ask, check and add."""
        requests = Addable(dict.fromkeys(cohort, wire.pack_task(task)))
        replies = yield requests
        together, added = _joined(requests, replies, length)
        refusals = Refusals(round_number=task.turn.round_number)
        vectors: dict[ClientId, Vector] = {}
        for client in sorted(replies):
            try:
                vector = _vector(client, task.turn, replies[client], length)
            except ClientError as error:
                refusals.add(client, error)
                continue
            if self.accepted is not None and first_not_finite(vector) is None:
                vector = self.accepted(task.extras, vector)
            vectors[client] = vector
        total = _added(vectors.values(), length)
        if not np.isfinite(total).all():  # float64 holds any sum of float32: some vector was not finite
            for client, vector in list(vectors.items()):
                if first_not_finite(vector) is not None:
                    refusals.add(client, _diverged(client, task.turn))
                    del vectors[client]
            total = _added(vectors.values(), length)
        clients = (*vectors, *together) if not together else tuple(sorted((*vectors, *together)))
        return self._total(total + added if together else total, clients, asked=len(cohort), refusals=refusals)

    def _reply(self, turn: wire.Turn, vector: Contribution) -> bytes:
        floats = vector.astype(np.float32, copy=False)
        if not np.issubdtype(vector.dtype, np.floating) and not np.array_equal(floats, vector):
            raise ConfigError("Whole numbers beyond 2^24 are not exact as float32: the clear sum can't carry them.")
        return wire.pack_vector(turn, floats)


def _joined(
    requests: Addable, replies: Frames, length: int
) -> tuple[tuple[ClientId, ...], NDArray[np.float64] | float]:
    """Return who is in sums that were made in this process, and what these come to; each is in one sum, and alone."""
    clients = tuple(client for joint in requests.joint for client in joint.clients)
    if len({*clients, *replies}) != len(clients) + len(replies) or not requests.keys() >= set(clients):
        raise WireError(f"Expected every client once, in a sum or by itself, got {sorted((*clients, *replies))}.")
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
    return wire.unpack_floats(body)


def _diverged(client: ClientId, turn: wire.Turn) -> ClientError:
    return ClientError(
        f"Client {client} failed in round {turn.round_number}: {wire.Failure.NOT_FINITE.words}",
        client=client,
        round_number=turn.round_number,
    )


def _added(vectors: Iterable[Vector], length: int) -> NDArray[np.float64]:
    total = np.zeros(length)
    with np.errstate(invalid="ignore"):  # inf - inf: whoever asked looks at the sum
        for vector in vectors:
            total += vector
    return total
