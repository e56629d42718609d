"""The shape of a mechanism: what a client adds to the sum, and what is released of the sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tacit.accounting.events import Event
from tacit.randomness import Randomness
from tacit.vectors import Vector


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a client has after training."""

    update: Vector
    examples: int
    loss: float
    sent: Vector | None = None  # the model it started from, for mechanisms that are about weights


@dataclass(frozen=True, kw_only=True)
class Release:
    """What leaves the mechanism: the update that moves the model, and the mechanism of the next round.

    The mean training loss is None where the clients did not send theirs.
    """

    update: Vector
    train_loss: float | None
    mechanism: Mechanism
    clipped: int | None = None  # numbers of the clients' updates that were clipped one by one, where that is counted


class Rows(Protocol):
    """The updates of clients that were trained at once, one per row, wherever they are, such as in a GPU's memory."""

    def norms(self) -> NDArray[np.float64]:
        """Return the norm of each row in double precision; not finite where the row is not."""
        ...

    def weighted_sum(self, factors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum of rows times factors, each product rounded to float32; a factor of zero leaves a row out."""
        ...

    def row(self, place: int) -> Vector:
        """Return one row."""
        ...


@runtime_checkable
class AddsRows(Protocol):
    """A mechanism whose clients only scale their updates: it can add up a cohort's where they are."""

    def on_cohort(
        self, rows: Rows, examples: NDArray[np.int64], losses: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]] | None:
        """Return who is in the sum, and the sum of what ``on_client`` returns of them; None where it can't be made.

        Those who are not in it are to be answered for one by one.
        """
        ...


class Mechanism(Protocol):
    """Both sides of a round in one frozen object, so that clip, noise and what is charged can't disagree."""

    @property
    def event(self) -> Event | None:
        """What a release costs a client that is in it; None where nothing is claimed."""
        ...

    def fitted(self, layers: tuple[int, ...]) -> Self:
        """Return the mechanism for a model whose tensors have these sizes, which are public."""
        ...

    def length(self, parameters: int) -> int:
        """Return the length of the vectors that are summed, for a model of ``parameters``."""
        ...

    def public_state(self) -> bytes:
        """Return all that changes from round to round.

        It is public: it travels with the task to the clients, and a checkpoint keeps it.
        """
        ...

    def with_state(self, state: bytes) -> Self:
        """Return the mechanism of the round that ``state`` was taken from, as a client or a resumed run applies it."""
        ...

    def on_client(self, work: Work, randomness: Randomness) -> Vector | NDArray[np.int64]:
        """Return what the client adds to the sum: floats, or whole numbers where the sum has to be exact."""
        ...

    def on_server(self, total: NDArray[np.float64], randomness: Randomness, *, clients: int) -> Release:
        """Return what is released in place of the sum of so many clients' vectors.

        Raises:
            SpoiledError: where honest clients can't have given such a sum.
        """
        ...


@runtime_checkable
class Hides(Protocol):
    """A mechanism whose clients hide what they send by noise of their own.

    One that says nothing of it hides nothing from whoever sees a client's message.
    """

    @property
    def alone(self) -> Event:
        """What a client's message costs it against whoever sees that message, and nobody else's noise."""
        ...
