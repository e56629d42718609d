"""A server on Flower resolves its configuration once and plans once, whatever its nodes do."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from torch import nn

from tacit.config.run_config import RunConfig
from tacit.flower.deploy.nodes import runnable
from tacit.flower.envelope import client_app
from tacit.flower.node import Own
from tacit.flower.serve import Serving, serve
from tacit.runs.run import run
from tests.flower.grid import Respond, grid
from tests.flower.inside import carried
from tests.runs.common import Watching, digits
from tests.runs.counted import ONCE, counted

RUN: dict[str, Any] = {"mode": "dp", "dp.epsilon": 8.0, "federate.clients": 2, "federate.rounds": 2}
DATA = (np.eye(2, dtype=np.float32), np.array([0, 1]))


def _client(number: int, counts: Counter[str]) -> Respond:
    app = client_app(Own(model=lambda: nn.Linear(2, 2), data=lambda _: DATA))
    context = Context(5, 100 + number, {"partition-id": number}, RecordDict(), RUN)

    def respond(message: Message) -> list[Message]:
        before = counts.copy()
        reply: Message = app(message, context)
        counts.clear()
        counts.update(before)  # a node is a process of its own
        return [reply]

    return respond


def test_a_server_plans_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = counted(monkeypatch)
    nodes = {100 + number: _client(number, counts) for number in range(2)}
    serving = Serving(model=lambda: nn.Linear(2, 2), test=lambda: DATA)
    assert len(serve(grid(nodes), RUN, serving=serving, observer=Watching()).rounds) == 2
    assert counts == ONCE


def test_a_deployment_is_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = counted(monkeypatch)
    runnable(RunConfig(mode="dp", dp={"epsilon": 8.0}, out=tmp_path / "run"))
    assert counts == ONCE


def test_a_simulation_plans_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = counted(monkeypatch)
    carried(monkeypatch)
    run(digits(engine="flower", federate={"clients": 2, "rounds": 1}, mode="dp", dp={"epsilon": 8.0}))
    assert counts == ONCE
