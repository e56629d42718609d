"""The shape of a sum protocol, and what it promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.flow import ClientId, Flow
from tacit.vectors import Vector
from tacit.wire import Task


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """Who sees what, in words that every report prints."""

    server: str
    clients: str
    outsider: str


@dataclass(frozen=True, kw_only=True)
class Total:
    """The sum of the clients' vectors, and whose they are."""

    vector: NDArray[np.float64]
    clients: tuple[ClientId, ...]


class SumProtocol(Protocol):
    """How the sum of one vector a client is formed.

    The client half is a pure step: what it must remember between requests travels as ``state`` bytes, which the
    caller keeps. A TASK request comes with the client's own vector; any other request without one.
    """

    @property
    def guarantee(self) -> Guarantee:
        """Who sees what."""
        ...

    def server(self, cohort: Sequence[ClientId], task: Task, length: int) -> Flow[Total]:
        """Ask ``cohort`` to work on ``task`` and sum their vectors of ``length``."""
        ...

    def client(self, state: bytes, request: bytes, vector: Vector | None) -> tuple[bytes, bytes]:
        """Return the client's new state and its reply."""
        ...
