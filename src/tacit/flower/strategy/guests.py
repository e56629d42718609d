"""The nodes as the wrapped strategy sees them: only those that were greeted, have the mod, and are clients."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from tacit import wire
from tacit.config.run_config import RunConfig
from tacit.errors import RunError, WireError
from tacit.flow import ClientId, Frames
from tacit.flower.engine import FlowerEngine, reason_of
from tacit.flower.link import Door
from tacit.flower.strategy.settings import MOD, without_mod
from tacit.modes.keys import key_parties
from tacit.protocols.paillier import PaillierSum
from tacit.protocols.protocol import KeyHolder, SumProtocol

_AWAY = {3, 4, 5, 8}  # Flower's codes for a node, or its app's process, that is gone; others are the app's own errors
_LOG = logging.getLogger("flwr")


class Guests(Grid):
    """A Grid that greets nodes before anybody may choose them, and keeps apart those that only hold keys.

    Attributes:
        holders: the nodes of the key holders, by the holders' numbers.
        simulated: whether every node so far is a virtual one.
        shown: the clients that were there when last somebody asked.
    """

    def __init__(self, *, grid: Grid, engine: FlowerEngine) -> None:
        self.grid = grid
        self._engine = engine
        self._clients: set[int] = set()
        self._door = Door(engine=engine, tries=1)  # a round waits for nobody twice
        self.holders: dict[ClientId, int] = {}
        self.simulated = True
        self.shown: frozenset[int] = frozenset()

    def get_node_ids(self) -> list[int]:
        """Return the clients that are there."""
        present = sorted(self._engine.present())
        self._greet(present)
        there = [node for node in present if node in self._clients]
        self.shown = frozenset(there)
        return there

    def look_again(self) -> None:
        """Greet nodes that did not answer once more, when next somebody asks who is there."""
        self._door.again()

    def _greet(self, present: list[int]) -> None:
        with _held_back() as records:
            arrived = list(self._door.greet(present))
        strangers = {node: said for node, said in self._door.failures.items() if said.code not in _AWAY}
        if strangers:
            node, failure = next(iter(strangers.items()))
            raise without_mod(node, reason_of(failure), more=len(strangers) - 1)
        for record in records:
            _LOG.handle(record)
        for node, said in arrived:
            if isinstance(said, WireError):
                raise RunError(f"{said} Its app needs {MOD}.") from said
            if isinstance(said, RunError):
                raise said
            self.simulated = self.simulated and said.simulated
            for party in said.parties:
                self._welcome(party, node)

    def _welcome(self, party: ClientId, node: int) -> None:
        """Note a client, which is known by its node's number, or a key holder."""
        if party >= 0:
            self._clients.add(node)
            self._engine.nodes[node] = node
            return
        other = self.holders.get(party, node)
        if other != node and other in self._engine.present():
            raise RunError(f"Nodes {other} and {node} hold the same key, number {-party}. One has to go.")
        self.holders[party] = self._engine.nodes[party] = node

    def set_run(self, run: Any) -> None:
        """Pass on."""
        self.grid.set_run(run)

    @property
    def run(self) -> Any:
        """The Grid's."""
        return self.grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Pass on."""
        return self.grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Pass on."""
        return self.grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Pass on."""
        return self.grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Pass on."""
        return self.grid.send_and_receive(messages, timeout=timeout)


@contextmanager
def _held_back() -> Iterator[list[logging.LogRecord]]:
    """Collect what Flower logs of apps that raise, which those without the mod do when they are greeted.

    In a simulation it is four tracebacks per node, above the one sentence that says what to do.
    """
    records: list[logging.LogRecord] = []

    def keep(record: logging.LogRecord) -> bool:
        held = record.levelno >= logging.ERROR or "has dropped out" in record.getMessage()
        if held:
            records.append(record)
        return not held

    _LOG.addFilter(keep)
    try:
        yield records
    finally:
        _LOG.removeFilter(keep)


_PAUSE = 0.5


def exchange_for(
    protocol: SumProtocol,
    config: RunConfig,
    *,
    guests: Guests,
    engine: FlowerEngine,
    note: Callable[[str], None],
    pause: Callable[[float], None] = time.sleep,
) -> Callable[[Frames], Frames]:
    """Return what carries the requests of a protocol that are no tasks."""
    if not isinstance(protocol, PaillierSum):
        return engine.exchange
    if guests.simulated and not guests.holders:
        note(
            "All nodes are simulated: the server's process plays the key holders. In a real run they are SuperNodes "
            "of their own (tacit-key in --node-config)."
        )
        return _local(protocol, config, engine)
    end = time.monotonic() + config.flower.patience
    while missing := set(protocol.holders) - guests.holders.keys():
        if time.monotonic() > end:
            names = ", ".join(str(-number) for number in sorted(missing, reverse=True))
            raise RunError(
                f"Key holder {names} is not there: no node has said that it holds that key. Start a SuperNode with "
                "--node-config 'tacit-key=\"FILE\"', and without partition-id where it has no data to train on."
            )
        pause(_PAUSE)
        guests.get_node_ids()
    return engine.exchange


def _local(protocol: PaillierSum, config: RunConfig, engine: FlowerEngine) -> Callable[[Frames], Frames]:
    holders = key_parties(config.paillier, protocol, clients=1).holders
    shared: KeyHolder | None = holders.get(0)  # where all clients have the key, one answers for all

    def exchange(requests: Frames) -> Frames:
        frames = {party: wire.unpack(request) for party, request in requests.items()}
        if any(frame.kind not in wire.FOR_HOLDERS for frame in frames.values()):
            return engine.exchange(requests)  # clients enrol; tasks travel with the strategy's messages
        return {party: (shared or holders[party]).answer(frame) for party, frame in frames.items()}

    return exchange
