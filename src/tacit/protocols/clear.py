"""The sum in the clear: the server reads every client's vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from tacit import wire
from tacit.errors import ClientError, ConfigError, DropoutError, WireError
from tacit.flow import ClientId, Flow
from tacit.protocols.protocol import Contribution, Guarantee, Total
from tacit.vectors import Vector, first_not_finite


@dataclass(frozen=True, kw_only=True)
class ClearSum:
    """One trip: the task out, one vector a client back, added in float64 in the order of the clients' numbers.

    Attributes:
        minimum_clients: with fewer replies the round fails closed.
    """

    minimum_clients: int

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
        if len(replies) < self.minimum_clients:
            raise DropoutError(
                f"{len(replies)} of {len(cohort)} clients replied in round {task.turn.round_number}, "
                f"{self.minimum_clients} needed: a smaller sum could expose one client. "
                "Raise federate.per_round, or lower federate.minimum_clients."
            )
        total = np.zeros(length)
        vectors = {client: self._vector(client, task.turn, replies[client], length) for client in sorted(replies)}
        with np.errstate(invalid="ignore"):  # inf - inf: the check below says whose it was
            for vector in vectors.values():
                total += vector
        if not np.isfinite(total).all():  # float64 holds any sum of float32: some vector was not finite
            self._blame(vectors, task.turn)
        return Total(vector=total, clients=tuple(vectors))

    def prepare(self, request: bytes) -> None:
        """Do nothing: a vector in the clear needs no preparation."""

    def client(self, state: bytes, request: bytes, vector: Contribution | None) -> tuple[bytes, bytes]:
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
    def _blame(vectors: Mapping[ClientId, Vector], turn: wire.Turn) -> NoReturn:
        for client, vector in vectors.items():
            where = first_not_finite(vector)
            if where is not None:
                raise ClientError(
                    f"Client {client} sent {vector[where]} at coordinate {where} in round {turn.round_number}, "
                    "expected a finite number. Its training diverged: lower optimizer.lr or set optimizer.grad_clip.",
                    client=client,
                    round_number=turn.round_number,
                )
        raise AssertionError("unreachable: finite float32 vectors have a finite float64 sum")
