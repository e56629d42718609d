"""The sum in the clear: the server reads every client's vector."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit import wire
from tacit.errors import ClientError, ConfigError, WireError
from tacit.flow import ClientId, Flow
from tacit.protocols.protocol import Contribution, Guarantee, Total
from tacit.protocols.refusals import Refusals
from tacit.vectors import Vector, first_not_finite


@dataclass(frozen=True, kw_only=True)
class ClearSum:
    """One trip: the task out, one vector per client back, added in float64 in the order of the clients' numbers.

    A reply that is damaged, of another length, or not finite is left out, and its client is named. With a minimum of 0
    the sum is always formed, of nobody's vectors if need be: where noise that is complete without the clients hides who
    is in a round, what becomes of it must not depend on that.

    Attributes:
        minimum_clients: with fewer replies that count the round fails closed.
        accepted: what the server makes of a vector before it adds it, given what the task told the clients: the bounds
            that it can enforce, as it reads the vectors.
    """

    minimum_clients: int
    accepted: Callable[[bytes, Vector], Vector] | None = None

    @property
    def guarantee(self) -> Guarantee:
        """Nothing is hidden from the server."""
        return Guarantee(
            server="every client's update in the clear",
            clients="the global model of each round",
            outsider="nothing, where the connection is encrypted",
        )

    def setup(self, cohort: Sequence[ClientId]) -> Flow[ClearSum]:  # noqa: ARG002
        """Return at once: there is nothing to set up."""
        yield from ()
        return self

    def server(self, cohort: Sequence[ClientId], task: wire.Task, length: int) -> Flow[Total]:
        """Ask, check and add."""
        replies = yield dict.fromkeys(cohort, wire.pack_task(task))
        refusals = Refusals(round_number=task.turn.round_number)
        vectors: dict[ClientId, Vector] = {}
        for client in sorted(replies):
            try:
                vector = self._vector(client, task.turn, replies[client], length)
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
                    refusals.add(client, self._diverged(client, task.turn))
                    del vectors[client]
            total = _added(vectors.values(), length)
        refusals.check(len(vectors), asked=len(cohort), minimum=self.minimum_clients)
        return Total(vector=total, clients=tuple(vectors), notes=refusals.notes)

    def prepare(self, state: bytes, length: int) -> None:
        """Do nothing: a vector in the clear needs no preparation."""

    def client(
        self,
        state: bytes,
        request: bytes,
        vector: Contribution | None,
        *,
        number: ClientId = 0,  # noqa: ARG002
    ) -> tuple[bytes, bytes]:
        """Answer a task with the client's vector."""
        if vector is None:
            raise WireError("Expected a TASK frame; the clear sum knows no other request.")
        floats = vector.astype(np.float32, copy=False)
        if not np.issubdtype(vector.dtype, np.floating) and not np.array_equal(floats, vector):
            raise ConfigError("Whole numbers beyond 2^24 are not exact as float32: the clear sum can't carry them.")
        return state, wire.pack_vector(wire.unpack(request).turn, floats)

    @staticmethod
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

    @staticmethod
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
