"""A round on one screen: what the server asks for and releases, and what the clients answer.

The server's half (McMahan et al. 2017, with a mechanism and a sum protocol in place of the plain mean)::

    task = broadcast(plan, mechanism, model, turn)
    total = drive(sum_flow(plan, mechanism, cohort, task), engine)
    outcome = release(plan, mechanism, total, task, state, randomness)

The clients' half is :class:`LocalClients`: every client trains from the task's model, the mechanism makes its
contribution of the update, and the protocol makes the reply. :class:`Parties`, :class:`Unreliable` and :class:`Timed`
stand around it: key holders, drop-outs, and where the seconds go.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tacit import wire
from tacit.federated.plan import Plan, State
from tacit.flow import Addable, ClientId, Flow, Frames, Gather, Joint, Stopwatch, only
from tacit.mechanisms.correlated.mechanism import CorrelatedMechanism
from tacit.mechanisms.mechanism import AddsRows, Mechanism, Release, Rows, Work
from tacit.protocols.protocol import Contribution, SumProtocol, Total
from tacit.randomness import Randomness
from tacit.vectors import Vector
from tacit.wire import Task, Turn

Answer = Callable[[Frames], Frames]
Finish = Callable[[ClientId, Vector, float], None]  # client, update, mean loss
TakeRows = Callable[[Sequence[ClientId], Rows, NDArray[np.float64]], None]  # clients, their updates, mean losses


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a round gave."""

    model: Vector
    update: Vector  # what was released, by which the model moved
    state: State
    mechanism: Mechanism  # of the next round
    train_loss: float | None
    clipped: int | None
    clients: tuple[ClientId, ...]
    notes: tuple[str, ...] = ()


def broadcast(plan: Plan, mechanism: Mechanism, model: Vector, turn: Turn) -> Task:
    """Return what every client is asked: the model, as injectors leave it, and what the mechanism tells."""
    return Task(turn=turn, model=injected(plan, model, turn.round_number), extras=mechanism.public_state())


def injected(plan: Plan, model: Vector, round_number: int) -> Vector:
    """Return the model as injectors leave it."""
    for inject in plan.injectors:
        model = np.asarray(inject(model, round_number), np.float32)
    return model


def sum_flow(plan: Plan, mechanism: Mechanism, cohort: Sequence[ClientId], task: Task) -> Flow[Total]:
    """Ask the cohort, and sum what comes back."""
    protocol = yield from plan.protocol.setup(cohort)  # for clients that were away before
    return (yield from protocol.server(cohort, task, mechanism.length(len(task.model))))


def release(
    plan: Plan, mechanism: Mechanism, total: Total, task: Task, state: State, randomness: Randomness
) -> Outcome:
    """Release the sum through the mechanism, and move the model that was sent."""
    given = released(mechanism, total, task.turn, randomness)
    with np.errstate(over="ignore", invalid="ignore"):  # whoever asked looks at the model
        moved, new_state = plan.optimizer.step(task.model, given.update, state)
    return Outcome(
        model=moved,
        update=given.update,
        state=new_state,
        mechanism=given.mechanism,
        train_loss=given.train_loss,
        clipped=given.clipped,
        clients=total.clients,
        notes=total.notes,
    )


def released(mechanism: Mechanism, total: Total, turn: Turn, randomness: Randomness) -> Release:
    """Return what leaves the server: the mean, with the server's own noise where the mechanism has any."""
    own = randomness.within("server", turn.round_number, turn.attempt)
    with np.errstate(over="ignore", invalid="ignore"):  # whoever asked looks at the update
        return mechanism.on_server(total.vector, own, clients=len(total.clients))


def recalled(mechanism: Mechanism, tries: Sequence[int], parameters: int, randomness: Randomness) -> Mechanism:
    """Return the mechanism with the noise of past rounds in mind, where a seed can draw that again.

    Elsewhere it is lost with the process that drew it, as it should be: the mechanism then begins anew.

    Args:
        mechanism: of the next round.
        tries: of each round so far, which of its tries was released, from 0.
        parameters: of the model.
        randomness: the run's.
    """
    if not isinstance(mechanism, CorrelatedMechanism) or not randomness.simulation:
        return mechanism
    own = (randomness.within("server", number, attempt) for number, attempt in enumerate(tries, 1))
    return mechanism.remembering(own, parameters)


class Trainer(Protocol):
    """Trains a cohort from one model; the training room has the implementation."""

    @property
    def workers(self) -> int:
        """How many clients, or chunks of them, train at the same time."""
        ...

    def train(
        self,
        model: Vector,
        clients: Sequence[ClientId],
        keys: NDArray[np.int64],
        round_number: int,
        finish: Finish,
    ) -> None:
        """Train ``clients`` and call ``finish`` for each, from any thread."""
        ...


@runtime_checkable
class AddsUpdates(Protocol):
    """A trainer that can leave updates where they are, such as in a GPU's memory, for a mechanism to add them up."""

    @property
    def adds(self) -> bool:
        """Whether it is worth it."""
        ...

    def train_rows(
        self,
        model: Vector,
        clients: Sequence[ClientId],
        keys: NDArray[np.int64],
        round_number: int,
        take: TakeRows,
    ) -> None:
        """Train ``clients``, and hand over those of a chunk, their updates as rows, and their losses."""
        ...


class LocalClients:
    """Answers for every client: what an engine in this process is handed.

    ``examples`` says how many each client holds. What clients remember between requests is kept in ``states``; whoever
    gives a mapping can keep it elsewhere.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        trainer: Trainer,
        protocol: SumProtocol | None = None,
        examples: Sequence[int] | Mapping[ClientId, int],
        randomness: Randomness,
        on_reply: Callable[[], None] | None = None,
        states: MutableMapping[ClientId, bytes] | None = None,
    ) -> None:
        self._mechanism = plan.mechanism
        self._private = plan.private
        self._protocol = protocol or plan.protocol
        self._trainer = trainer
        self._examples = examples
        self._randomness = randomness
        self._on_reply = on_reply
        self._states = {} if states is None else states

    def answer(self, requests: Frames) -> Frames:
        """Return every client's reply; those who were sent the same task train at once.

        Replies to requests that are gathered are handed over as they are made.
        """
        asked: defaultdict[bytes, list[ClientId]] = defaultdict(list)
        for client, request in requests.items():
            asked[request].append(client)
        replies: dict[ClientId, bytes] = {}
        send = requests.receive if isinstance(requests, Gather) else replies.__setitem__
        joint = requests.joint if isinstance(requests, Addable) else None
        for request, clients in asked.items():
            frame = wire.unpack(request)
            if frame.kind is wire.Kind.TASK:
                self._train(wire.unpack_task(frame), frame, clients, send, joint)
            else:
                replies |= {client: self._step(client, frame, None) for client in clients}
        return replies

    def _train(
        self,
        task: Task,
        request: wire.Frame,
        clients: list[ClientId],
        send: Callable[[ClientId, bytes], None],
        joint: list[Joint] | None,
    ) -> None:
        turn = task.turn
        mechanism = self._mechanism.with_state(task.extras)
        if len(clients) < self._trainer.workers:  # a core is free while they train
            length = mechanism.length(len(task.model))
            for client in clients:
                self._protocol.prepare(self._states.get(client, b""), length)

        def finish(client: ClientId, update: Vector, loss: float) -> None:
            # Where privacy is claimed a client answers whatever its loss: that it could not would tell of its data.
            if self._private or math.isfinite(loss):
                work = Work(update=update, examples=self._examples[client], loss=loss, sent=task.model)
                own = self._randomness.within("client", turn.round_number, turn.attempt, client)
                reply = self._step(client, request, mechanism.on_client(work, own))
            else:
                reply = wire.pack_failure(turn, wire.Failure.DIVERGED)
            send(client, reply)
            if self._on_reply is not None:
                self._on_reply()

        def take(own: Sequence[ClientId], rows: Rows, losses: NDArray[np.float64]) -> None:
            examples = np.array([self._examples[client] for client in own], np.int64)
            found = mechanism.on_cohort(rows, examples, losses) if isinstance(mechanism, AddsRows) else None
            present = np.zeros(len(own), np.bool_) if found is None else found[0]
            if found is not None and joint is not None and present.any():
                among = tuple(client for client, there in zip(own, present, strict=True) if there)
                joint.append(Joint(clients=among, vector=found[1], reply_bytes=wire.vector_bytes(len(found[1]))))
            for place, client in enumerate(own):
                if not present[place]:
                    finish(client, rows.row(place), float(losses[place]))
                elif self._on_reply is not None:
                    self._on_reply()

        draw = self._randomness.number
        keys = np.array([draw("train", turn.round_number, turn.attempt, c) >> 1 for c in clients], np.int64)
        trainer = self._trainer
        if joint is not None and isinstance(mechanism, AddsRows) and isinstance(trainer, AddsUpdates) and trainer.adds:
            trainer.train_rows(task.model, clients, keys, turn.round_number, take)
        else:
            trainer.train(task.model, clients, keys, turn.round_number, finish)

    def _step(self, client: ClientId, request: wire.Frame, vector: Contribution | None) -> bytes:
        state = self._states.get(client, b"")
        self._states[client], reply = self._protocol.client(state, request, vector, number=client)
        return reply


@dataclass(frozen=True, kw_only=True)
class Parties:
    """Passes each request to its party: to a key holder what only those answer, the rest to clients.

    A client that holds the key as well is two parties under one number.
    """

    clients: Answer
    holders: Mapping[ClientId, Callable[[wire.Frame], bytes]]

    def __call__(self, requests: Frames) -> Frames:
        """Answer for everyone."""
        read = {party: wire.unpack(request) for party, request in requests.items() if party in self.holders}
        for_holders = {party: frame for party, frame in read.items() if frame.kind in wire.FOR_HOLDERS}
        if not for_holders:
            return self.clients(requests)
        opened = {party: self.holders[party](frame) for party, frame in for_holders.items()}
        others = requests.keys() - opened.keys()
        return opened | (dict(self.clients(only(requests, sorted(others)))) if others else {})


@dataclass(frozen=True, kw_only=True)
class Unreliable:
    """Drop-outs, simulated: loses each client with probability ``rate`` for the rest of a round.

    Where a round has several trips, which of them it does not see any more is drawn too.

    Attributes:
        answer: answers for the clients that are there.
        rate: the probability.
        randomness: draws.
        trips: the kinds of requests of a round, in their order.
    """

    answer: Answer
    rate: float
    randomness: Randomness
    trips: tuple[wire.Kind, ...] = (wire.Kind.TASK,)

    def __call__(self, requests: Frames) -> Frames:
        """Answer for the clients that are there."""
        present = [client for client, request in requests.items() if self._is_there(client, request)]
        return self.answer(only(requests, present)) if present else {}

    def _is_there(self, client: ClientId, request: bytes) -> bool:
        frame = wire.unpack(request)
        if frame.kind not in self.trips:  # who answered its task is there to open the sum, too
            return True
        who = (frame.turn.round_number, frame.turn.attempt, client)
        if self.randomness.number("drop", *who) >= self.rate * 2**63:
            return True
        gone = self.randomness.number("drop at", *who) % len(self.trips)
        return self.trips.index(frame.kind) < gone


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Takes the seconds of local clients from outside: a trainer around theirs, and answers around theirs.

    >>> timed = Timed(trainer=trainer, stopwatch=stopwatch)  # doctest: +SKIP
    >>> answer = timed.answers(LocalClients(trainer=timed, ...).answer)  # doctest: +SKIP

    Workers make replies side by side, so each second of theirs is a part of one by the clock.
    """

    trainer: Trainer
    stopwatch: Stopwatch

    @property
    def workers(self) -> int:
        """How many clients, or chunks of them, train at the same time."""
        return self.trainer.workers

    def train(
        self,
        model: Vector,
        clients: Sequence[ClientId],
        keys: NDArray[np.int64],
        round_number: int,
        finish: Finish,
    ) -> None:
        """Train; what is done with each update is its protection."""
        protect = self.stopwatch.timing("protect", finish, out_of="train", side_by_side=self.workers)
        self.trainer.train(model, clients, keys, round_number, protect)

    @property
    def adds(self) -> bool:
        """Whether updates may be added up where they are."""
        return isinstance(self.trainer, AddsUpdates) and self.trainer.adds

    def train_rows(
        self,
        model: Vector,
        clients: Sequence[ClientId],
        keys: NDArray[np.int64],
        round_number: int,
        take: TakeRows,
    ) -> None:
        """Train; what is done with the updates is their protection."""
        assert isinstance(self.trainer, AddsUpdates)
        protect = self.stopwatch.timing("protect", take, out_of="train")
        self.trainer.train_rows(model, clients, keys, round_number, protect)

    def answers(self, answer: Answer) -> Answer:
        """Return ``answer``; what is neither protection nor the server's work on a gathered reply is training."""

        def timed(requests: Frames) -> Frames:
            if isinstance(requests, Gather):
                receive = self.stopwatch.timing(
                    "aggregate", requests.receive, out_of="protect", side_by_side=self.workers
                )
                requests = requests.handing(receive)
            with self.stopwatch.measure("train"):
                return answer(requests)

        return timed
