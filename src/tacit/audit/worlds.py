"""Worst cases: what one client, and everyone else, could have trained so that the one is seen best.

A mechanism has to hide a client whatever its data are, so the trainer is replaced by one that returns what an enemy
would choose: updates far beyond any clip, in one layer only, of alternating sign from round to round, of numbers that
are none. The other world is what the claim's neighbouring relation makes of the first.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.accounting.ledger import Neighbours
from tacit.federated.round import Finish
from tacit.flow import ClientId
from tacit.vectors import Vector

LAYERS = (96, 32)  # of the model whose updates are made up
SIZE = sum(LAYERS)
FAR = 1e4  # beyond any clip, and far from the end of floats


@functools.cache
def direction() -> Vector:
    """Return a vector of norm 1 whose signs alternate and whose sizes differ: noise that repeats cancels along it."""
    signs = np.where(np.arange(SIZE) % 2 == 0, 1.0, -1.0)
    sizes = 1.0 + np.arange(SIZE) / SIZE
    return np.asarray(signs * sizes / np.linalg.norm(sizes), np.float32)


def layer(number: int) -> Vector:
    """Return the part of the direction that lies in one layer, zero elsewhere, of norm 1."""
    start = sum(LAYERS[:number])
    found = np.zeros(SIZE, np.float32)
    found[start : start + LAYERS[number]] = direction()[start : start + LAYERS[number]]
    return np.asarray(found / np.linalg.norm(found), np.float32)


_ZERO = np.zeros(SIZE, np.float32)


@dataclass(frozen=True, kw_only=True)
class Attack:
    """What the client that is looked for does in each release of a trial, and what everyone else does.

    Attributes:
        name: in a few words.
        canary: its update, release by release.
        instead: what a client has in its place under replace-one; the opposite where nothing is said.
        others: everyone else's update, in all releases.
        lost: how many of the others never answer; they stay as silent in both worlds.
        share_lost: with which probability anyone's reply is lost.
    """

    name: str
    canary: tuple[Vector, ...]
    instead: tuple[Vector, ...] | None = None
    others: Vector = field(default_factory=lambda: _ZERO)
    lost: int = 0
    share_lost: float = 0.0

    def world(self, neighbours: Neighbours, *, first: bool) -> tuple[Vector, ...] | None:
        """Return what the client does in one of the two worlds; None where it is not there."""
        if first:
            return self.canary
        if neighbours == "add-remove":
            return None
        if neighbours == "zero-out":
            return tuple(_ZERO for _ in self.canary)
        return self.instead or tuple(-update for update in self.canary)


def attacks(releases: int) -> list[Attack]:
    """Return what is tried on every mode, in trials of so many releases."""
    far = FAR * direction()
    every = tuple(far for _ in range(releases))
    found = [Attack(name="an update beyond the clip", canary=every)]
    found += [
        Attack(name=f"an update in layer {number + 1} only", canary=tuple(FAR * layer(number) for _ in range(releases)))
        for number in range(len(LAYERS))
    ]
    if releases > 1:
        signs = [1.0 if number % 2 == 0 else -1.0 for number in range(releases)]
        found.append(Attack(name="updates that turn around", canary=tuple(np.float32(sign) * far for sign in signs)))
    broken = far.copy()
    broken[::7] = np.nan
    broken[3::7] = np.inf
    huge = np.asarray(3e38 * np.sign(direction()), np.float32)
    found += [
        Attack(name="others that cancel it", canary=every, others=-far),
        Attack(name="an update near the end of floats", canary=(huge,) * releases),
        Attack(name="an update that is no number", canary=(broken,) * releases, instead=every),
        Attack(name="replies that get lost", canary=every, share_lost=0.3),
    ]
    return found


@dataclass
class MadeUp:
    """A trainer that trains nothing: returns what a world says.

    Attributes:
        who: the client that is looked for.
        canary: its update in each release of a trial; it is asked in no world where it is not there.
        others: everyone else's.
        first_round: the number of the trial's first round.
    """

    who: ClientId
    canary: tuple[Vector, ...]
    others: Vector
    first_round: int = 1
    workers: int = 1

    def train(
        self, model: Vector, clients: Sequence[ClientId], keys: NDArray[np.int64], round_number: int, finish: Finish
    ) -> None:
        """Hand over the updates, with a loss of zero."""
        del model, keys
        own = self.canary[round_number - self.first_round] if self.canary else self.others
        for client in clients:
            finish(client, (own if client == self.who else self.others).copy(), 0.0)

    @property
    def layout(self) -> Any:
        """The model's size, where somebody asks."""
        return _Layout()


@dataclass(frozen=True)
class _Layout:
    size: int = SIZE
