"""The server's half of a protected app: charge, ask, sum and release, as every other run does.

A round is that of :mod:`tacit.federated.round`, and its charge that of :mod:`tacit.runs.account`. Three things differ,
because the loop is Flower's and the strategy is somebody else's:

- The strategy chooses the cohort and sends the tasks, so no engine pumps the whole flow. :meth:`Session.ask` runs it up
  to its first requests, which travel with the strategy's messages; :meth:`Session.release` goes on with the replies
  and drives the rest, such as the opening of a sum, through the engine.
- The model travels as the strategy's own arrays, and a task has none. What is released is handed to the strategy as
  the mean of one client, and the strategy moves the model.
- Flower's loop does not ask a second time: a round with too few replies is lost, not tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit import wire
from tacit.config.agreement import agreed
from tacit.config.overrides import merge
from tacit.config.run_config import RunConfig, from_yaml
from tacit.errors import RunError
from tacit.federated.plan import Plan, Privacy
from tacit.federated.round import injected, released
from tacit.flow import ClientId, Engine, Flow, Frames, Gather, Result, drive
from tacit.flower.strategy.arrays import Shape
from tacit.mechanisms.mechanism import Mechanism, Release
from tacit.modes.catalogue import mode_of
from tacit.protocols.protocol import Total
from tacit.randomness import Randomness
from tacit.runs import journal
from tacit.runs.account import Account
from tacit.runs.folder import CONFIG, JOURNAL
from tacit.runs.journal import Attempt, Record
from tacit.runs.ledger import charges_of, replay
from tacit.storage import is_there, make_folder, write_atomically
from tacit.vectors import Vector, first_not_finite

_NO_MODEL = np.empty(0, np.float32)  # the task's model travels as the strategy's own arrays


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """An engine made of a function."""

    exchange: Callable[[Frames], Frames]
    name: str = "flower"


class Session:
    """A protected run at the server, from its first cohort on."""

    def __init__(
        self, *, plan: Plan, config: RunConfig, rounds: int, shape: Shape, cohort: Sequence[ClientId], engine: Engine
    ) -> None:
        self._rounds = rounds
        self._engine = engine
        self.shape = shape
        self._randomness = Randomness.of(seed=config.seed)
        self._book = None if config.out is None else _Book(config.out, _effective(config, plan))
        earlier = [] if self._book is None else list(self._book.charges())
        self.earlier = sum(one.charge is not None for one in earlier)
        claim = plan.claim
        if self.earlier and claim is not None:
            # Who was charged before was known by numbers of another run of Flower's: from now on everyone is charged.
            claim = replace(claim, by_participation=False)
        self._account = None if claim is None else Account(claim)
        replay(earlier, self._account)
        self._mechanism: Mechanism = plan.mechanism.fitted(shape.layers)
        self._plan = replace(plan, protocol=drive(plan.protocol.setup(cohort), engine))
        self._flow: Flow[tuple[Total, Release]] | None = None
        self._requests: Frames = {}

    @property
    def privacy(self) -> Privacy | None:
        """What the run can claim now; None where it claims nothing."""
        return None if self._account is None else self._account.privacy()

    def injected(self, model: Vector, round_number: int) -> Vector:
        """Return the model that is broadcast."""
        return injected(self._plan, model, round_number)

    @property
    def asks_everyone(self) -> bool:
        """Whether the claim holds for rounds that leave out nobody who is there, and for no others."""
        claim = self._plan.claim
        return claim is not None and claim.neighbours == "add-remove"

    @property
    def injects(self) -> bool:
        """Whether what is broadcast is another model than the strategy's."""
        return bool(self._plan.injectors)

    def ask(self, cohort: Sequence[ClientId], round_number: int) -> Frames:
        """Charge the round, write it down, and return what its clients are to be sent."""
        if self._flow is not None:
            self._flow.close()
        planned = max(1, self._rounds - round_number + 1)
        turn = wire.Turn(round_number=round_number)
        charge = None
        if self._account is not None:
            charge = self._account.charge(self._mechanism, turn=turn, planned=planned, cohort=cohort)
        asked = tuple(cohort)
        self.record(Attempt(round=round_number, attempt=0, charge=charge, clients=len(cohort), asked=asked))
        drive(self._plan.protocol.setup(cohort), self._engine)  # for clients that were away before
        self._flow = self._round(cohort, turn)
        self._requests = next(self._flow)
        while not _tasks(self._requests):  # what comes before them, such as shares of masks
            self._requests = self._flow.send(self._engine.exchange(self._requests))
        return self._requests

    def release(self, replies: Frames) -> tuple[Total, Release]:
        """Return the sum's clients and what is released of it, given the replies to the last requests."""
        flow, self._flow = self._flow, None
        assert flow is not None, "a round is asked before it is released"
        total, release = resumed(flow, self._requests, replies, self._engine)
        where = first_not_finite(release.update)
        if where is not None:
            raise RunError(f"The update became {release.update[where]}. Lower the clients' learning rate.")
        self._mechanism = release.mechanism
        return total, release

    def record(self, entry: Record) -> None:
        """Write down what is about to be sent, or what came of it."""
        if self._book is not None:
            self._book.write(entry)

    def _round(self, cohort: Sequence[ClientId], turn: wire.Turn) -> Flow[tuple[Total, Release]]:
        mechanism = self._mechanism
        task = wire.Task(turn=turn, model=_NO_MODEL, extras=mechanism.public_state())
        length = mechanism.length(sum(self.shape.layers))
        total = yield from self._plan.protocol.server(cohort, task, length)
        return total, released(mechanism, total, turn, self._randomness)


def _tasks(requests: Frames) -> bool:
    return all(wire.unpack(request).kind is wire.Kind.TASK for request in requests.values())


def resumed(flow: Flow[Result], requests: Frames, replies: Frames, engine: Engine) -> Result:
    """Go on with a flow whose first requests somebody else has carried.

    >>> def twice():
    ...     first = yield {1: b"a"}
    ...     second = yield {1: first[1] + b"b"}
    ...     return second[1]
    >>> flow = twice()
    >>> resumed(flow, next(flow), {1: b"x"}, Exchange(exchange=lambda requests: requests))
    b'xb'
    """

    def rest() -> Flow[Result]:
        if isinstance(requests, Gather):
            for client, reply in replies.items():
                requests.receive(client, reply)
        following = {} if isinstance(requests, Gather) else replies
        while True:
            try:
                more = flow.send(following)
            except StopIteration as stop:
                result: Result = stop.value
                return result
            following = yield more

    try:
        return drive(rest(), engine)
    finally:
        flow.close()


def _effective(config: RunConfig, plan: Plan) -> RunConfig:
    """Return the settings as they came to hold: where the server adds the noise, whom it asks sets the relation."""
    if not mode_of(plan.mode).central or plan.claim is None:
        return config
    dp = config.dp.model_copy(update={"neighbours": plan.claim.neighbours})
    return config.model_copy(update={"dp": dp})


class _Book:
    """The journal of a folder; what earlier runs with the same settings spent there counts on.

    Flower's loop has no end that a strategy hears of, so that the journal is opened for each record. That nobody else
    wrote to it since is seen by its length.
    """

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self._path = folder / JOURNAL
        make_folder(folder, mode=0o700)
        if is_there(folder / CONFIG):
            values: dict[str, Any] = {}
            merge(values, from_yaml(folder / CONFIG))
            if agreed(RunConfig(**values)) != agreed(config):
                raise RunError(
                    f"{folder} holds a run with other settings, or with other clients asked, and charges of both can't "
                    "be added up. Choose another folder."
                )
        with journal.Journal(self._path) as opened:
            opened.renew()  # nobody knows how the last run ended
            write_atomically(folder / CONFIG, config.to_yaml().encode(), mode=0o600)
            self._length = self._path.stat().st_size

    def charges(self) -> Iterator[Attempt]:
        """Yield the tries so far, with what they were charged."""
        return charges_of(self._path.parent)

    def write(self, record: Record) -> None:
        """Write a record, and wait until it is on disk."""
        with journal.Journal(self._path) as open_journal:
            if self._path.stat().st_size != self._length:
                raise RunError(
                    f"Another run has written to {self._path.parent} since this one began, and neither knows what the "
                    "other spends. Nothing was sent. Choose another folder for one of them."
                )
            open_journal.append(record)
            self._length = self._path.stat().st_size
