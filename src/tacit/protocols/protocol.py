"""The shape of a sum protocol, what it promises, and how every one of them treats replies that do not count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ClientError, DropoutError
from tacit.flow import ClientId, Flow
from tacit.vectors import Integers, Vector
from tacit.wire import Frame, Kind, Task

Contribution = Vector | Integers  # what a client adds: floats, or whole numbers that are summed exactly

_TOLD = 5  # reasons that an error gives in full


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """Who sees what, in words that every report prints."""

    server: str
    clients: str
    outsider: str


@dataclass(frozen=True, kw_only=True)
class Total:
    """The sum of the clients' vectors, whose they are, and what people should know of how it came about."""

    vector: NDArray[np.float64]
    clients: tuple[ClientId, ...]
    notes: tuple[str, ...] = ()


class KeyHolder(Protocol):
    """A party that holds a private key or a share of one, which never leaves it."""

    @property
    def memory(self) -> bytes:
        """What it must remember of the run, should it start anew."""
        ...

    def answer(self, request: Frame) -> bytes:
        """Return the reply to a KEY, ADMIT or OPEN request, or a FAILURE that says why not."""
        ...


class SumProtocol(Protocol):
    """How the sum of one vector per client is formed.

    :meth:`setup` runs before the first round, and returns the protocol as the server runs it from then on; run again,
    it makes clients ready that were not there yet. The client half is a step that keeps nothing: what it must remember
    between requests travels as ``state`` bytes, which the caller keeps to itself. A TASK request comes with the
    client's own vector; any other request without one. Requests come as frames: whoever received the bytes has read
    them, once.
    """

    @property
    def guarantee(self) -> Guarantee:
        """Who sees what."""
        ...

    @property
    def trips(self) -> tuple[Kind, ...]:
        """The kinds of requests that a client answers in a round, in their order."""
        ...

    def setup(self, cohort: Sequence[ClientId]) -> Flow[Self]:
        """Make ready, such as by asking for keys; ``cohort`` are clients that can be asked, and will be."""
        ...

    def server(self, cohort: Sequence[ClientId], task: Task, length: int) -> Flow[Total]:
        """Ask ``cohort`` to work on ``task`` and sum their vectors of ``length``."""
        ...

    def prepare(self, state: bytes, length: int) -> None:
        """Begin on a client, before it trains, what can be done meanwhile for a vector of ``length``."""
        ...

    def client(
        self, state: bytes, request: Frame, vector: Contribution | None, *, number: ClientId = 0
    ) -> tuple[bytes, bytes]:
        """Return the new state and the reply of the client that knows itself as ``number``."""
        ...


@dataclass(frozen=True, kw_only=True)
class Refusals:
    """Whose replies of a round were refused, and why; every protocol treats them alike.

    A reply that is damaged, stale, a failure, or not what the protocol asked for is left out of the sum. Its sender is
    named in a note of the round. With fewer left than the minimum the protocol raises :meth:`too_few`, which gives the
    reasons.
    """

    round_number: int
    reasons: dict[ClientId, str] = field(default_factory=dict)

    def add(self, client: ClientId, error: ClientError) -> None:
        """Refuse a reply; where a client sent several, the first reason is kept."""
        self.reasons.setdefault(client, str(error))

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know of the round, in the order of the clients' numbers."""
        return tuple(f"{self.reasons[client]} The sum is without it." for client in sorted(self.reasons))

    def too_few(self, counted: int, *, asked: int, minimum: int) -> DropoutError:
        """Return the error with which a round fails closed where fewer than ``minimum`` replies count."""
        told = [self.reasons[client] for client in sorted(self.reasons)[:_TOLD]]
        others = sorted(self.reasons)[_TOLD:]
        if others:
            told.append(f"So were replies of {len(others)} more clients: {', '.join(map(str, others))}.")
        return DropoutError(
            " ".join(
                [
                    f"{counted} of {asked} clients sent a reply that counts in round {self.round_number}, {minimum} "
                    "needed: a smaller sum could expose one client. Raise federate.per_round, or lower "
                    "federate.minimum_clients.",
                    *(["Refused were:"] if told else []),
                    *told,
                ]
            )
        )
