"""The nodes as the wrapped strategy sees them: only those that were greeted, have the mod, and are clients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from tacit.errors import RunError, WireError
from tacit.flow import ClientId
from tacit.flower.engine import FlowerEngine
from tacit.flower.strategy.pairing import GREETING, Introduction, without_mod

_AWAY = {3, 4, 5, 8}  # Flower's codes for a node, or its app's process, that is gone; others are the app's own errors
_LONGEST_REASON = 300


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
        self._greeted: set[int] = set()
        self._silent: set[int] = set()
        self.holders: dict[ClientId, int] = {}
        self.simulated = True
        self.shown: frozenset[int] = frozenset()

    def get_node_ids(self) -> list[int]:
        """Return the clients that are there."""
        present = sorted(self._engine.present())
        self._greet([node for node in present if node not in self._greeted | self._silent])
        there = [node for node in present if node in self._clients]
        self.shown = frozenset(there)
        return there

    def look_again(self) -> None:
        """Greet nodes that did not answer once more, when next somebody asks who is there."""
        self._silent.clear()

    def _greet(self, nodes: list[int]) -> None:
        if not nodes:
            return
        try:
            replies = self._engine.greet(GREETING, nodes)
        except WireError as error:
            raise RunError(f"{error} Its app needs tacit.flower.private_mod.") from error
        for node, failure in self._engine.failures.items():
            if failure.code not in _AWAY:
                raise without_mod(node, f"{failure.reason or failure.code}".strip()[:_LONGEST_REASON])
        self._silent |= set(nodes) - replies.keys()
        for node, frame in replies.items():
            said = Introduction.read(node, frame)
            self._greeted.add(node)
            self.simulated = self.simulated and said.simulated
            if said.client:
                self._clients.add(node)
                self._engine.nodes[node] = node
            if said.holder is not None:
                other = self.holders.get(said.holder, node)
                if other != node and other in self._engine.present():
                    raise RunError(f"Nodes {other} and {node} hold the same key, number {-said.holder}. One has to go.")
                self.holders[said.holder] = self._engine.nodes[said.holder] = node

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
