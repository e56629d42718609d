"""A response of the SuperLink is lost and the engine sends again: Flower's own Grid, handlers and store."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from flwr.common.constant import NOOP_FLWR_AID
from flwr.proto.message_pb2 import PushObjectResponse
from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid.http_grid import HttpGrid
from flwr.superlink.servicer.runtime import runtime_handlers

import tests.flower.grid  # noqa: F401 - messages can be made
from tacit.flower.engine import FlowerEngine


class _WaitedLongEnough(Exception):  # noqa: N818 - no error
    """Ends a trip."""


class _SuperLink:
    """A SuperLink in memory, some of whose responses to pushes never arrive."""

    def __init__(self, *, lost: int) -> None:
        manager = NoOpFederationManager()
        self.state = InMemoryLinkState(manager, ObjectStoreFactory(":flwr-in-memory:").store())
        manager.linkstate = self.state
        self.run_id = self.state.create_run(
            "app", "1", "hash", {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP
        )
        self.node = self.state.create_node(NOOP_FLWR_AID, "clinic", b"key", 1000.0)
        self.state.activate_node(self.node, 1000.0)
        self.lost = lost
        self.pushes = 0

    def PushMessages(self, request: Any) -> Any:  # noqa: N802 - Flower's name
        response = runtime_handlers.push_messages(request, self.state, cast(Any, SimpleNamespace(run_id=self.run_id)))
        self.pushes += 1
        if self.pushes <= self.lost:
            raise httpx.ReadTimeout("the response was lost")
        return response

    def PushObject(self, request: Any) -> PushObjectResponse:  # noqa: N802 - Flower's name
        self.state.object_store.put(request.object_id, request.object_content)
        return PushObjectResponse(stored=True)

    def PullMessages(self, request: Any) -> Any:  # noqa: N802 - Flower's name
        return runtime_handlers.pull_messages(request, self.state, cast(Any, SimpleNamespace(run_id=self.run_id)))


@pytest.fixture
def identity() -> Iterator[None]:
    """Let messages be of another run, for a while."""
    before = TaskIdentity.run_id
    yield
    TaskIdentity.run_id = before


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_a_request_whose_response_is_lost_is_delivered_once(lost: int, identity: None) -> None:
    link = _SuperLink(lost=lost)
    TaskIdentity.run_id = link.run_id
    grid = HttpGrid(token="token")
    grid._client = cast(Any, link)
    grid._run = cast(Any, SimpleNamespace(run_id=link.run_id))
    delivered: list[Any] = []
    waits = 0

    def pause(_: float) -> None:  # the node looks for messages whenever the server waits: between two pushes, too
        nonlocal waits
        delivered.extend(link.state.get_message_ins(link.node, limit=None))
        waits += link.pushes > lost
        if waits == 3:
            raise _WaitedLongEnough

    engine = FlowerEngine(grid=grid, deadline=600.0, pause=pause)
    engine.nodes[0] = link.node
    with pytest.raises(_WaitedLongEnough):  # this node never answers
        engine.exchange({0: b"train"})
    assert link.pushes == lost + 1
    assert len(delivered) == 1, "the same message has the same number, and is stored once"
