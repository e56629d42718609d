"""The server's side of a federation on Flower: who is where, and where the seconds went."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import Error

from tacit.config.resolved import Resolved
from tacit.errors import RunError, WireError
from tacit.flow import ClientId, Frames, Stage, Stopwatch
from tacit.flower.engine import FlowerEngine, Seconds
from tacit.parties.hello import GREETING, Introduction, Terms

_PAUSE = 0.5
_GREETINGS = 3  # of a node that does not answer: each takes as long as a trip may, and who never answers is no party
_OF_NODES: tuple[Stage, ...] = ("train", "protect", "recover")


@dataclass(kw_only=True)
class Door:
    """Greets the nodes of a run, each until it has said who it is.

    Attributes:
        engine: moves the frames, and says the run's terms with each.
        tries: how often a node is asked that does not answer.
        failures: of the last greeting, the errors that Flower, or an app of another kind, answered with.
    """

    engine: FlowerEngine
    tries: int = _GREETINGS
    failures: Mapping[int, Error] = field(default_factory=dict)
    _known: set[int] = field(default_factory=set)
    _asked: Counter[int] = field(default_factory=Counter)

    def greet(self, present: Iterable[int]) -> Iterator[tuple[int, Introduction | RunError | WireError]]:
        """Greet who is new, and yield what each said of itself, or why it can't take part."""
        new = sorted(node for node in set(present) - self._known if self._asked[node] < self.tries)
        self.failures = {}
        if not new:
            return
        self._asked.update(new)
        replies = self.engine.greet(GREETING, new)
        self.failures = self.engine.failures
        for node, reply in sorted(replies.items()):
            self._known.add(node)
            yield node, reply if isinstance(reply, WireError) else _introduced(node, reply)

    def again(self) -> None:
        """Ask those once more that never answered, when next somebody looks."""
        self._asked.clear()


@dataclass(kw_only=True)
class Link:
    """An engine that knows its nodes: greets them before the first round, and those that come later.

    Which client a node is, is its own word. So a number belongs to the node that was first to say it, until the run
    ends: with node authentication that is the holder of one registered key, which comes back under the same number of
    Flower's after a restart. Another node that claims it is left out, and so is one that tells another number of
    examples than the account was opened with.

    Attributes:
        engine: moves the frames.
        config: what all sides have to agree on.
        parties: who is expected.
        introductions: what each party said of itself.
    """

    engine: FlowerEngine
    config: Resolved
    parties: frozenset[ClientId]
    introductions: dict[ClientId, Introduction] = field(default_factory=dict)
    note: Callable[[str], None] = lambda _: None
    _assembled: bool = False

    def __post_init__(self) -> None:
        self.engine.terms = Terms.of(self.config).to_record()
        self._door = Door(engine=self.engine)

    @property
    def name(self) -> str:
        """The engine's."""
        return self.engine.name

    def exchange(self, requests: Frames) -> Frames:
        """Deliver; where a party's node is gone, those that came since are asked who they are first."""
        present = self.engine.present()
        if any(self.engine.nodes.get(party) not in present for party in requests):
            self._greet(present)
        return self.engine.exchange(requests)

    def assemble(self, *, minimum_clients: int, pause: float = _PAUSE) -> None:
        """Wait until everyone is there, or go on without some clients where the rest is enough."""
        self._gather(minimum_clients, pause)
        self._assembled = True

    def _gather(self, minimum_clients: int, pause: float) -> None:
        end = time.monotonic() + self.config.flower.patience
        told = False
        while True:
            self._greet(self.engine.present())
            missing = self.parties - self.engine.nodes.keys()
            if not missing:
                return
            if time.monotonic() > end:
                break
            if not told:
                told = True
                self.note(f"Waiting for {_named(missing)} (up to {self.config.flower.patience:g} s).")
            time.sleep(pause)
        there = [party for party in self.engine.nodes if party >= 0]
        if len(there) < minimum_clients or any(party < 0 for party in missing):
            raise RunError(
                f"{_named(missing)} did not come within {self.config.flower.patience:g} s. Start their SuperNodes "
                "and run again, or raise flower.patience."
            )
        self.note(f"{_named(missing)} did not come; the run goes on without.")

    def _greet(self, present: Iterable[int]) -> None:
        for node, said in self._door.greet(present):
            try:
                if not isinstance(said, Introduction):
                    raise said
                for party in said.parties:
                    self._welcome(party, node, said)
            except (RunError, WireError) as error:
                if not self._assembled:
                    raise
                self.note(f"Node {node} came and is left out: {error}")  # a stranger stops no run that is under way

    def _welcome(self, party: ClientId, node: int, said: Introduction) -> None:
        if party not in self.parties:
            raise RunError(
                f"Node {node} says it is {_named([party])}, and the run has {_named(self.parties)}. "
                "Check its partition-id, tacit-key and federate.clients."
            )
        other = self.engine.nodes.get(party)
        if other is not None and other != node:
            raise RunError(
                f"Nodes {other} and {node} both say they are {_named([party])}, which is the first's as long as the "
                "run lasts. Give each its own number, and a node the same key when it is started again."
            )
        known = self.introductions.get(party)
        if self._assembled and said.examples != (known and known.examples):
            raise RunError(
                f"{_named([party])} was not there with its number of examples when the account was opened, and could "
                "not be charged rightly. It can take part when the run is started again."
            )
        self.engine.nodes[party] = node
        self.introductions[party] = said


def _introduced(node: int, frame: bytes) -> Introduction | RunError | WireError:
    try:
        return Introduction.read(node, frame)
    except (RunError, WireError) as error:
        return error


def timed(stopwatch: Stopwatch, side_by_side: int | None) -> Callable[[float, Sequence[Seconds]], None]:
    """Return what charges a trip to the stages, as in one process.

    Nodes work at the same time: all at once, or ``side_by_side`` of them in a simulation. Their work takes at least
    the longest of them, and at least their sum over how many fit; the rest of the trip is travel.
    """

    def charge(wall: float, worked: Sequence[Seconds]) -> None:
        sums = {stage: sum(seconds.get(stage, 0.0) for seconds in worked) for stage in _OF_NODES}
        total = sum(sums.values())
        longest = max((sum(seconds.values()) for seconds in worked), default=0.0)
        busy = min(wall, max(longest, total / (side_by_side or max(len(worked), 1))))
        for stage in _OF_NODES:
            stopwatch.add(stage, busy * sums[stage] / total if total else 0.0)
        stopwatch.add("travel", wall - busy)

    return charge


def _named(parties: Iterable[ClientId]) -> str:
    clients = sorted(party for party in parties if party >= 0)
    holders = sorted(-party for party in parties if party < 0)
    names = []
    if clients:
        shown = f"{clients[0]} to {clients[-1]}" if len(clients) > 5 else ", ".join(map(str, clients))
        names.append(f"client{'s' * (len(clients) > 1)} {shown}")
    if holders:
        names.append(f"key holder{'s' * (len(holders) > 1)} {', '.join(map(str, holders))}")
    return " and ".join(names)
