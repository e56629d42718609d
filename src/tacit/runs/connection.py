"""What connects a run's server with its parties: everyone in this process, or another engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from tacit.federated.round import LocalClients, Parties, Timed, Unreliable
from tacit.flow import Engine, InProcessEngine, Stopwatch
from tacit.modes.catalogue import mode_of
from tacit.modes.keys import KeyParties, key_parties
from tacit.randomness import Randomness
from tacit.runs.job import Job


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Whom an engine tells what happens."""

    stopwatch: Stopwatch
    on_reply: Callable[[], None]
    note: Callable[[str], None]


class Connection(Protocol):
    """A way to the parties of a job: made before anything is written, opened when the rounds begin."""

    @property
    def name(self) -> str:
        """The engine's name in reports."""
        ...

    def open(self, job: Job, randomness: Randomness, watch: Watch) -> AbstractContextManager[Engine]:
        """Bring the parties up; they are gone when the context ends."""
        ...


class InProcess:
    """All parties live in this process: objects of their own that talk in frames."""

    name = InProcessEngine.name

    def __init__(self, job: Job) -> None:
        self._keys: KeyParties | None = None
        if mode_of(job.plan.mode).encrypted:
            self._keys = key_parties(job.config.paillier, job.plan.protocol, clients=len(job.holdings.rows))

    @contextmanager
    def open(self, job: Job, randomness: Randomness, watch: Watch) -> Iterator[Engine]:
        """Return the engine in this process."""
        timed = Timed(trainer=job.trainer, stopwatch=watch.stopwatch)
        clients = LocalClients(
            plan=job.plan,
            protocol=None if self._keys is None else self._keys.protocol,
            trainer=timed,
            examples=job.holdings.sizes.tolist(),
            randomness=randomness,
            on_reply=watch.on_reply,
        )
        answer = timed.answers(clients.answer)
        if job.config.federate.drop:
            trips = job.plan.protocol.trips
            answer = Unreliable(answer=answer, rate=job.config.federate.drop, randomness=randomness, trips=trips)
        if self._keys is not None:
            opened = {
                number: watch.stopwatch.timing("recover", holder.answer)
                for number, holder in self._keys.holders.items()
            }
            answer = Parties(clients=answer, holders=opened)
        yield InProcessEngine(answer=answer)
