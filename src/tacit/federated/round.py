"""One round as a flow: the server's side, from the cohort to the new model."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit import wire
from tacit.federated.plan import Plan, State
from tacit.flow import ClientId, Flow, Frames, Gather, Stopwatch, only
from tacit.mechanisms.mechanism import Mechanism, Work
from tacit.protocols.protocol import Contribution, KeyHolder, SumProtocol
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


Finish = Callable[[ClientId, Vector, float], None]  # client, update, mean loss


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


class LocalClients:
    """Answers for every client: what an engine in this process is handed.

    What clients remember between requests is kept in ``states``; whoever gives a mapping can keep it elsewhere.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        trainer: Trainer,
        protocol: SumProtocol | None = None,
        examples: Callable[[ClientId], int],
        randomness: Randomness,
        stopwatch: Stopwatch,
        on_reply: Callable[[], None] = lambda: None,
        states: MutableMapping[ClientId, bytes] | None = None,
    ) -> None:
        self._plan = plan
        self._protocol = protocol or plan.protocol
        self._trainer = trainer
        self._examples = examples
        self._randomness = randomness
        self._stopwatch = stopwatch
        self._on_reply = on_reply
        self._states = {} if states is None else states

    def answer(self, requests: Frames) -> Frames:
        """Return every client's reply; those who were sent the same task train at once.

        Replies to requests that are gathered are handed over as they are made.
        """
        start = time.perf_counter()
        asked: defaultdict[bytes, list[ClientId]] = defaultdict(list)
        for client, request in requests.items():
            asked[request].append(client)
        replies: dict[ClientId, bytes] = {}
        send = requests.receive if isinstance(requests, Gather) else replies.__setitem__
        protecting: list[float] = []
        sending: list[float] = []  # the server's work on a reply, where it is gathered
        for request, clients in asked.items():
            if wire.unpack(request).kind is wire.Kind.TASK:
                self._train(request, clients, send, protecting, sending)
            else:
                replies |= {client: self._step(client, request, None) for client in clients}
        spent = {"protect": sum(protecting), "aggregate": sum(sending)}
        self._stopwatch.add("protect", spent["protect"] / self._trainer.workers)
        self._stopwatch.add("aggregate", spent["aggregate"] / self._trainer.workers)
        self._stopwatch.add("train", time.perf_counter() - start - sum(spent.values()) / self._trainer.workers)
        return replies

    def _train(
        self,
        request: bytes,
        clients: list[ClientId],
        send: Callable[[ClientId, bytes], None],
        protecting: list[float],
        sending: list[float],
    ) -> None:
        task = wire.unpack_task(request)
        turn = task.turn
        if len(clients) < self._trainer.workers:  # a core is free while they train
            length = self._plan.mechanism.length(len(task.model))
            for client in clients:
                self._protocol.prepare(self._states.get(client, b""), length)

        def finish(client: ClientId, update: Vector, loss: float) -> None:
            start = time.perf_counter()
            if self._plan.private or math.isfinite(loss):
                reply = self._step(client, request, self._contribute(client, task, update, loss))
            else:
                reply = wire.pack_failure(turn, wire.Failure.DIVERGED)
            made = time.perf_counter()
            send(client, reply)
            protecting.append(made - start)
            sending.append(time.perf_counter() - made)
            self._on_reply()

        draw = self._randomness.number
        keys = np.array([draw("train", turn.round_number, turn.attempt, c) >> 1 for c in clients], np.int64)
        self._trainer.train(task.model, clients, keys, turn.round_number, finish)

    def _contribute(self, client: ClientId, task: wire.Task, update: Vector, loss: float) -> Contribution:
        turn = task.turn
        work = Work(update=update, examples=self._examples(client), loss=loss, sent=task.model)
        own = self._randomness.within("client", turn.round_number, turn.attempt, client)
        return self._plan.mechanism.told(task.extras).on_client(work, own)

    def _step(self, client: ClientId, request: bytes, vector: Contribution | None) -> bytes:
        state = self._states.get(client, b"")
        self._states[client], reply = self._protocol.client(state, request, vector, number=client)
        return reply


@dataclass(frozen=True, kw_only=True)
class Parties:
    """Passes each request to its party: to a key holder what only those answer, the rest to clients.

    A client that holds the key as well is two parties under one number.
    """

    clients: Callable[[Frames], Frames]
    holders: Mapping[ClientId, KeyHolder]
    stopwatch: Stopwatch

    def __call__(self, requests: Frames) -> Frames:
        """Answer for everyone."""
        for_holders = [
            party
            for party, request in requests.items()
            if party in self.holders and wire.unpack(request).kind in wire.FOR_HOLDERS
        ]
        if not for_holders:
            return self.clients(requests)
        with self.stopwatch.measure("recover"):
            opened = {party: self.holders[party].answer(requests[party]) for party in for_holders}
        others = requests.keys() - opened.keys()
        return opened | (dict(self.clients(only(requests, sorted(others)))) if others else {})


@dataclass(frozen=True, kw_only=True)
class Unreliable:
    """Loses each client with probability ``rate`` for a whole round, before it does any work."""

    answer: Callable[[Frames], Frames]
    rate: float
    randomness: Randomness

    def __call__(self, requests: Frames) -> Frames:
        """Answer for the clients that are there."""
        present = [client for client, request in requests.items() if self._is_there(client, request)]
        return self.answer(only(requests, present)) if present else {}

    def _is_there(self, client: int, request: bytes) -> bool:
        frame = wire.unpack(request)
        if frame.kind is not wire.Kind.TASK:  # who answered its task is there to open the sum, too
            return True
        turn = frame.turn
        drawn = self.randomness.number("drop", turn.round_number, turn.attempt, client)
        return drawn >= self.rate * 2**63
