"""A client's work on a task: train, protect, and keep what its half of the protocol has to remember."""

from __future__ import annotations

from tacit.federated.plan import Plan
from tacit.federated.round import LocalClients, Timed, Trainer
from tacit.flow import Stopwatch
from tacit.parties.calls import Answer
from tacit.parties.party import Request
from tacit.parties.refusals import without_details
from tacit.protocols.protocol import SumProtocol
from tacit.randomness import Randomness


def worked(
    request: Request, *, plan: Plan, protocol: SumProtocol, trainer: Trainer, examples: int, randomness: Randomness
) -> Answer:
    """Return the answer to a task whose turn is noted.

    Args:
        request: the task.
        plan: of the run.
        protocol: the plan's, with what this client's operator gave it.
        trainer: trains.
        examples: how many this client holds.
        randomness: this client's own.
    """
    party, memory = request.call.party, request.memory
    before = memory.change(lambda kept: kept)[0].state
    states = {party: before}
    watch = Stopwatch()
    timed = Timed(trainer=trainer, stopwatch=watch)
    clients = LocalClients(
        plan=plan,
        protocol=protocol,
        trainer=timed,
        examples={party: examples},
        randomness=randomness,
        states=states,
    )
    replies = timed.answers(clients.answer)({party: request.call.frame})
    memory.change(lambda kept: kept.worked(before, states[party]))
    seconds = {stage: watch.seconds[stage] for stage in ("train", "protect")}
    return Answer(frame=without_details(replies[party]), seconds=seconds)
