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
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Protocol, TypeVar

from tacit.errors import WireError

ClientId = int
Frames = Mapping[ClientId, bytes]

Result = TypeVar("Result")
Flow = Generator[Frames, Frames, Result]


class Engine(Protocol):
    """Anything that carries requests to clients and brings back what they answered."""

    @property
    def name(self) -> str:
        """The name in reports, such as ``in-process``."""
        ...

    def exchange(self, requests: Frames) -> Frames:
        """Deliver every request and return the replies that arrived; a missing key is a drop-out."""
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

    def sent(self, requests: Frames) -> None:
        """Count what the server sent."""
        self.bytes_down += sum(map(len, requests.values()))

    def received(self, replies: Frames) -> None:
        """Count what the clients sent."""
        self.bytes_up += sum(map(len, replies.values()))


def drive(flow: Flow[Result], engine: Engine, traffic: Traffic | None = None) -> Result:
    """Pump ``flow`` through ``engine`` until it returns."""
    traffic = traffic or Traffic()
    try:
        requests = next(flow)
        while True:
            traffic.sent(requests)
            replies = engine.exchange(requests)
            if strangers := replies.keys() - requests.keys():
                raise WireError(f"Clients {sorted(strangers)} answered, though nobody asked them.")
            traffic.received(replies)
            requests = flow.send(replies)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    finally:
        flow.close()
