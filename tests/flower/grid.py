"""A Grid in memory, whose nodes are functions.

Flower lets messages be made inside one of its runs only; importing this file makes the process look like one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 5, 1, 1
Respond = Callable[[Message], list[Message]]


@dataclass
class FakeGrid:
    """Hands each message to its node's function when it is pushed, and the replies over when they are pulled."""

    nodes: dict[int, Respond]
    failures: list[Exception] = field(default_factory=list)  # raised by the next calls, one each
    pulled: int = 0
    _replies: dict[str, list[Message]] = field(default_factory=dict)

    def get_node_ids(self) -> Iterable[int]:
        self._fail()
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        self._fail()
        pushed = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(uuid4())
            respond = self.nodes.get(message.metadata.dst_node_id)
            if respond is not None:
                pushed.append(message.metadata.message_id)
                self._replies[message.metadata.message_id] = respond(message)
        return pushed

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        self._fail()
        self.pulled += 1
        return [reply for number in message_ids for reply in self._replies.pop(number, [])]

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)


def grid(nodes: dict[int, Respond], *failures: Exception) -> Any:
    made: Grid = FakeGrid(nodes, list(failures))  # type: ignore[assignment]
    return made
