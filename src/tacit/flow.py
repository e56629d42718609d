"""Protocols as generators, and what it takes to run one.

A **flow** is a generator that yields a mapping of client to request bytes and is sent a mapping of client to reply
bytes; its ``return`` value is the result. It opens no socket and starts no process, so the same protocol runs in a
unit test, in a simulation of a thousand clients and between hospitals::

    def echo(cohort):                                       # a protocol: one trip, then a result
        replies = yield {client: b"hello" for client in cohort}
        return sorted(replies)                              # clients that are missing have dropped out

    drive(echo([1, 2]), engine)                             # any engine

An **engine** moves the bytes: :meth:`Engine.exchange` takes requests and returns the replies that arrived. It does
not look inside them. Protocols compose with ``yield from``, as any generators do.

A flow that can use replies one by one yields a :class:`Gather`: an engine may hand each reply over as it arrives, from
any thread, instead of keeping all of them to the end.

Clients are numbered from 0. Key holders that are no clients have negative numbers; bytes to and from them are counted
apart.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, ParamSpec, Protocol, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from tacit.errors import WireError

ClientId = int
Frames = Mapping[ClientId, bytes]

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
Flow = Generator[Frames, Frames, Result]


class Gather(dict[ClientId, bytes]):
    """Requests whose replies are taken one by one.

    Args:
        requests: what to send.
        receive: takes a reply as soon as it is there; called from any thread.
    """

    def __init__(self, requests: Frames, receive: Callable[[ClientId, bytes], None]) -> None:
        super().__init__(requests)
        self.receive = receive

    def handing(self, receive: Callable[[ClientId, bytes], None]) -> Gather:
        """Return the same requests, their replies handed to somebody else."""
        return Gather(self, receive)


@dataclass(frozen=True, kw_only=True)
class Joint:
    """The sum of several clients' vectors, by whoever computes for all of them in this process.

    Attributes:
        clients: who is in it.
        vector: the sum.
        reply_bytes: how long the reply of each would have been.
    """

    clients: tuple[ClientId, ...]
    vector: NDArray[np.float64]
    reply_bytes: int


class Addable(Gather):
    """Requests of a sum in the clear: nobody but the server's sum reads a reply.

    Whoever computes for many clients at once, such as a simulation on a GPU, may hand over :class:`Joint` sums in the
    place of their replies. Everybody else answers as ever, and an engine that copies the requests loses nothing.
    """

    def __init__(self, requests: Frames, receive: Callable[[ClientId, bytes], None]) -> None:
        super().__init__(requests, receive)
        self.joint: list[Joint] = []

    def handing(self, receive: Callable[[ClientId, bytes], None]) -> Addable:
        """Return the same requests, their replies handed to somebody else; joint sums stay with the first."""
        other = Addable(self, receive)
        other.joint = self.joint
        return other


def party_name(party: ClientId) -> str:
    """Return what a party is called where it is blamed.

    >>> party_name(3), party_name(-2)
    ('Client 3', 'Key holder 2')
    """
    return f"Client {party}" if party >= 0 else f"Key holder {-party}"


def only(requests: Frames, clients: Iterable[ClientId]) -> Frames:
    """Return the requests to some of the clients, still gathered where they were."""
    chosen = {client: requests[client] for client in clients}
    return Gather(chosen, requests.receive) if isinstance(requests, Gather) else chosen


class Engine(Protocol):
    """Anything that carries requests to clients and brings back what they answered."""

    @property
    def name(self) -> str:
        """The name in reports, such as ``in-process``."""
        ...

    def exchange(self, requests: Frames) -> Frames:
        """Deliver every request and return the replies that arrived; a missing key is a drop-out.

        Replies that were handed to a :class:`Gather` are not returned as well.
        """
        ...


class Traffic:
    """Counts the bytes that a flow sent and received.

    >>> traffic = Traffic()
    >>> traffic.sent({1: b"abc", 2: b"de"})
    >>> traffic.bytes_down
    5
    """

    def __init__(self) -> None:
        self.bytes_down = 0
        self.bytes_up = 0
        self.bytes_holders = 0  # both ways, to and from key holders that are no clients
        self._lock = threading.Lock()

    def sent(self, requests: Frames) -> None:
        """Count what the server sent."""
        self._count(requests, up=False)

    def received(self, replies: Frames) -> None:
        """Count what the clients sent."""
        self._count(replies, up=True)

    def _count(self, frames: Frames, *, up: bool) -> None:
        clients = sum(len(frame) for client, frame in frames.items() if client >= 0)
        with self._lock:
            self.bytes_holders += sum(map(len, frames.values())) - clients
            if up:
                self.bytes_up += clients
            else:
                self.bytes_down += clients


def drive(flow: Flow[Result], engine: Engine, traffic: Traffic | None = None) -> Result:
    """Pump ``flow`` through ``engine`` until it returns."""
    traffic = traffic or Traffic()
    try:
        requests = next(flow)
        while True:
            traffic.sent(requests)
            gather = _counted(requests, traffic) if isinstance(requests, Gather) else None
            replies = engine.exchange(requests if gather is None else gather)
            if strangers := replies.keys() - requests.keys():
                raise WireError(f"Clients {sorted(strangers)} answered, though nobody asked them.")
            if gather is None:
                traffic.received(replies)
            else:
                for client, reply in replies.items():
                    gather.receive(client, reply)
                replies = {}
            for joint in requests.joint if isinstance(requests, Addable) else ():
                traffic.bytes_up += len(joint.clients) * joint.reply_bytes
            requests = flow.send(replies)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    finally:
        flow.close()


def _counted(requests: Gather, traffic: Traffic) -> Gather:
    def receive(client: ClientId, reply: bytes) -> None:
        if client not in requests:
            raise WireError(f"Client {client} answered, though nobody asked it.")
        traffic.received({client: reply})
        requests.receive(client, reply)

    return requests.handing(receive)


@dataclass(frozen=True, kw_only=True)
class InProcessEngine:
    """Hands a whole batch of requests to one callable.

    The callable answers for all clients, so that the training room may train the cohort at once while the engine
    stays blind.
    """

    answer: Callable[[Frames], Frames]
    name: str = "in-process"

    def exchange(self, requests: Frames) -> Frames:
        """Return what the clients answered."""
        return self.answer(requests) if requests else {}


Stage = Literal["train", "protect", "travel", "aggregate", "recover", "evaluate"]
STAGES: tuple[Stage, ...] = get_args(Stage)


class Stopwatch:
    """Adds up seconds by stage, from any thread; one for each round.

    >>> watch = Stopwatch()
    >>> with watch.measure("train"):
    ...     pass
    >>> sorted(watch.seconds)
    ['aggregate', 'evaluate', 'protect', 'recover', 'train', 'travel']
    """

    def __init__(self) -> None:
        self.seconds: dict[Stage, float] = dict.fromkeys(STAGES, 0.0)
        self._lock = threading.Lock()

    def restart(self) -> None:
        """Begin a new round."""
        self.seconds = dict.fromkeys(STAGES, 0.0)

    def add(self, stage: Stage, seconds: float, *, out_of: Stage | None = None) -> None:
        """Charge ``seconds`` to ``stage``, and not to the stage ``out_of`` around it."""
        with self._lock:
            self.seconds[stage] += seconds
            if out_of is not None:
                self.seconds[out_of] -= seconds

    @contextmanager
    def measure(self, stage: Stage) -> Iterator[None]:
        """Charge the time of the block to ``stage``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, time.perf_counter() - start)

    def timing(
        self,
        stage: Stage,
        function: Callable[Arguments, Result],
        *,
        out_of: Stage | None = None,
        side_by_side: int = 1,
    ) -> Callable[Arguments, Result]:
        """Return ``function``, its time charged to ``stage``.

        Args:
            stage: what the time is for.
            function: what is timed.
            out_of: the stage whose time is measured around it, and less by this.
            side_by_side: how many calls run at the same time, each a part of the time by the clock.
        """

        def timed(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
            start = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                self.add(stage, (time.perf_counter() - start) / side_by_side, out_of=out_of)

        return timed
