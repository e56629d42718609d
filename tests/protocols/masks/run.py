"""A federation under masks, in one process: honest clients, and somebody who decides what arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import wire
from tacit.flow import ClientId, Frames, Gather, InProcessEngine, drive, only
from tacit.protocols.masks import Field, MaskedSum
from tacit.protocols.protocol import Total
from tacit.wire import Kind, Task, Turn

STAGES = (Kind.SHARE, Kind.TASK, Kind.LIST, Kind.REVEAL)
Vectors = Mapping[ClientId, NDArray[np.int64]]
Meddle = Callable[[Kind, Frames], Frames]


def integers(length: int) -> Field:
    return Field(bound=1000, summands=64)


def masked(*, minimum: int = 2, signed: bool = False, rounds: int = 9, **changes: Any) -> MaskedSum:
    made = MaskedSum(minimum_clients=minimum, rounds=rounds, fields=integers, signed=signed)
    return replace(made, **changes)


def vectors(clients: Iterable[ClientId], length: int = 5, seed: int = 0) -> dict[ClientId, NDArray[np.int64]]:
    generator = np.random.default_rng(seed)
    return {client: generator.integers(-1000, 1001, length) for client in clients}


def task(round_number: int = 1, attempt: int = 0) -> Task:
    return Task(turn=Turn(round_number=round_number, attempt=attempt), model=np.zeros(3, np.float32))


@dataclass
class Federation:
    """Clients that keep to the protocol.

    Attributes:
        protocol: both halves of it.
        vectors: what each client adds.
        before: takes requests away, so that their clients neither see nor answer them.
        after: takes replies away, or changes them.
        meddles: changes requests, as a server that lies would.
        states: what the clients remember.
        frames: every request by its kind.
        replies: every reply that arrived, by the kind of its request.
        halves: the protocol as single clients run it, where that is another.
    """

    protocol: MaskedSum
    vectors: Vectors
    before: Meddle = lambda _, requests: requests
    after: Meddle = lambda _, replies: replies
    meddles: Meddle = lambda _, requests: requests
    states: dict[ClientId, bytes] = field(default_factory=dict)
    frames: list[tuple[Kind, ClientId, bytes]] = field(default_factory=list)
    replies: list[tuple[Kind, ClientId, bytes]] = field(default_factory=list)
    halves: dict[ClientId, MaskedSum] = field(default_factory=dict)

    def sum(self, task: Task, cohort: Sequence[ClientId] | None = None) -> Total:
        cohort, engine = sorted(self.vectors) if cohort is None else cohort, InProcessEngine(answer=self.answer)
        self.protocol = drive(self.protocol.setup(cohort), engine)
        length = len(next(iter(self.vectors.values())))
        return drive(self.protocol.server(cohort, task, length), engine)

    def answer(self, requests: Frames) -> Frames:
        if not requests:
            return {}
        kind = wire.unpack(next(iter(requests.values()))).kind
        seen = self.meddles(kind, self.before(kind, requests))
        replies = {client: self.step(client, request) for client, request in seen.items()}
        arrived = self.after(kind, replies)
        self.replies += [(kind, client, reply) for client, reply in arrived.items()]
        if isinstance(requests, Gather):
            for client, reply in arrived.items():
                requests.receive(client, reply)
            return {}
        return arrived

    def step(self, client: ClientId, request: bytes) -> bytes:
        frame = wire.unpack(request)
        self.frames.append((frame.kind, client, request))
        vector = self.vectors[client] if frame.kind is Kind.TASK else None
        state = self.states.get(client, b"")
        self.states[client], reply = self.halves.get(client, self.protocol).client(state, frame, vector, number=client)
        return reply


def losing(lost: Mapping[Kind, Iterable[ClientId]]) -> Meddle:
    """Return what loses some clients for good, from a stage on."""

    def meddle(kind: Kind, frames: Frames) -> Frames:
        gone = (
            {client for stage in STAGES[: STAGES.index(kind) + 1] for client in lost.get(stage, ())}
            if (kind in STAGES)
            else set()
        )
        return only(frames, [client for client in frames if client not in gone])

    return meddle


def clear_sum(vectors: Vectors, clients: Iterable[ClientId]) -> NDArray[np.int64]:
    total: NDArray[np.int64] = np.sum([vectors[client] for client in clients], axis=0)
    return total


def reason(frame: bytes) -> str:
    """Return why a client refused."""
    return wire.unpack_failure(wire.unpack(frame))[1]
