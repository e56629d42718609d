"""The shape of a mechanism, and the one that does nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tacit.randomness import Randomness
from tacit.vectors import Vector


class Mechanism(Protocol):
    """Clip and noise in one object, so that the two can't disagree."""

    def on_client(self, update: Vector, randomness: Randomness) -> Vector:
        """Return what leaves the client in place of its update."""
        ...

    def on_server(self, total: Vector, randomness: Randomness) -> Vector:
        """Return what is released in place of the sum."""
        ...


@dataclass(frozen=True, kw_only=True)
class Unprotected:
    """Leaves updates and sums as they are; no differential privacy is claimed."""

    def on_client(self, update: Vector, randomness: Randomness) -> Vector:  # noqa: ARG002
        """Return the update."""
        return update

    def on_server(self, total: Vector, randomness: Randomness) -> Vector:  # noqa: ARG002
        """Return the sum."""
        return total
