"""The shape of a sum protocol, and what it promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tacit.flow import ClientId, Flow
from tacit.vectors import Integers, Vector
from tacit.wire import Task

Contribution = Vector | Integers  # what a client adds: floats, or whole numbers that are summed exactly


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

    def answer(self, request: bytes) -> bytes:
        """Return the reply to a KEY, ADMIT or OPEN request, or a FAILURE that says why not."""
        ...


class SumProtocol(Protocol):
    """How the sum of one vector a client is formed.

    :meth:`setup` runs before the first round, and returns the protocol as the server runs it from then on; run again,
    it makes clients ready that were not there yet. The client half is a step that keeps nothing: what it must remember
    between requests travels as ``state`` bytes, which the caller keeps to itself. A TASK request comes with the
    client's own vector; any other request without one.
    """

    @property
    def guarantee(self) -> Guarantee:
        """Who sees what."""
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
        self, state: bytes, request: bytes, vector: Contribution | None, *, number: ClientId = 0
    ) -> tuple[bytes, bytes]:
        """Return the new state and the reply of the client that knows itself as ``number``."""
        ...
