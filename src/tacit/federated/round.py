"""One round as a flow: the server's side, from the cohort to the new model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.federated import contribution
from tacit.federated.plan import Plan
from tacit.federated.server import State
from tacit.federated.stopwatch import Stopwatch
from tacit.flow import ClientId, Flow
from tacit.randomness import Randomness
from tacit.vectors import Vector
from tacit.wire import Task, Turn


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a round gave."""

    model: Vector
    state: State
    train_loss: float
    clients: tuple[ClientId, ...]


def round_flow(
    plan: Plan,
    cohort: Sequence[ClientId],
    model: Vector,
    state: State,
    turn: Turn,
    randomness: Randomness,
    stopwatch: Stopwatch,
) -> Flow[Outcome]:
    """Broadcast the model, sum what comes back, release it through the mechanism and move the model."""
    sent = model
    for inject in plan.injectors:
        sent = np.asarray(inject(sent, turn.round_number), np.float32)
    length = contribution.length(len(model))
    total = yield from plan.protocol.server(cohort, Task(turn=turn, model=sent), length)
    with stopwatch.measure("recover"), np.errstate(over="ignore", invalid="ignore"):  # the runner looks at the model
        average = contribution.average(total.vector)
        update = plan.mechanism.on_server(average.update, randomness.within("server", turn.round_number, turn.attempt))
        moved, new_state = plan.optimizer.step(sent, update, state)
    return Outcome(model=moved, state=new_state, train_loss=average.loss, clients=total.clients)
