"""One round as a flow: the server's side, from the cohort to the new model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.federated.plan import Plan
from tacit.federated.server import State
from tacit.federated.stopwatch import Stopwatch
from tacit.flow import ClientId, Flow
from tacit.mechanisms.mechanism import Mechanism
from tacit.randomness import Randomness
from tacit.vectors import Vector
from tacit.wire import Task, Turn


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a round gave."""

    model: Vector
    state: State
    mechanism: Mechanism  # of the next round
    train_loss: float | None
    clipped: int | None
    clients: tuple[ClientId, ...]
    notes: tuple[str, ...] = ()


def round_flow(
    plan: Plan,
    mechanism: Mechanism,
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
    task = Task(turn=turn, model=sent, extras=mechanism.public())
    protocol = yield from plan.protocol.setup(cohort)  # for clients that were away before
    total = yield from protocol.server(cohort, task, mechanism.length(len(model)))
    with stopwatch.measure("recover"), np.errstate(over="ignore", invalid="ignore"):  # the runner looks at the model
        own = randomness.within("server", turn.round_number, turn.attempt)
        release = mechanism.on_server(total.vector, own, clients=len(total.clients))
        moved, new_state = plan.optimizer.step(sent, release.update, state)
    return Outcome(
        model=moved,
        state=new_state,
        mechanism=release.mechanism,
        train_loss=release.train_loss,
        clipped=release.clipped,
        clients=total.clients,
        notes=total.notes,
    )
