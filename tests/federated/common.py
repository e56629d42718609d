"""A plan and a trainer without torch, for the tests of this room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tacit.federated.plan import Everyone, Injector, Plan, ServerOptimizer
from tacit.federated.round import Finish
from tacit.mechanisms.mechanism import Mechanism
from tacit.mechanisms.weighted import WeightedMean, Weighting
from tacit.protocols.clear import ClearSum
from tacit.vectors import Vector


def make_plan(
    *,
    clients: int = 4,
    minimum: int = 1,
    weighting: Weighting = "uniform",
    injectors: tuple[Injector, ...] = (),
    mechanism: Mechanism | None = None,
    optimizer: ServerOptimizer | None = None,
) -> Plan:
    protocol = ClearSum(minimum_clients=minimum)
    return Plan(
        mode="plain",
        sampler=Everyone(population=clients),
        mechanism=mechanism or WeightedMean(weighting=weighting),
        protocol=protocol,
        guarantee=protocol.guarantee,
        optimizer=optimizer or ServerOptimizer(),
        injectors=injectors,
    )


@dataclass(kw_only=True)
class FakeTrainer:
    """Client c answers with an update of c + 1 everywhere, or the number it is told, and the loss it is told."""

    losses: dict[int, float] = field(default_factory=dict)
    updates: dict[int, float] = field(default_factory=dict)
    workers: int = 1
    models: list[Vector] = field(default_factory=list)
    keys: list[NDArray[np.int64]] = field(default_factory=list)

    def train(
        self, model: Vector, clients: Sequence[int], keys: NDArray[np.int64], round_number: int, finish: Finish
    ) -> None:
        self.models.append(model.copy())
        self.keys.append(keys)
        for client in reversed(clients):
            update = np.full(len(model), self.updates.get(client, client + 1.0), np.float32)
            finish(client, update, self.losses.get(client, 0.5))
