"""Mode dp over real nodes: who fails is the server's own secret, and ends no round."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Error, Message, RecordDict
from torch import nn

from tacit import wire
from tacit.flower import envelope
from tacit.flower.envelope import client_app
from tacit.flower.node import Own
from tacit.flower.serve import Serving, serve
from tests.flower.grid import Respond, grid
from tests.runs.common import Watching

RUN: dict[str, Any] = {
    "mode": "dp",
    "dp.noise": 1.0,
    "federate.clients": 3,
    "federate.per_round": 2,
    "federate.rounds": 6,
    "flower.patience": 0.05,
}
Bad = Callable[[Message], Message]


def _data(count: int) -> tuple[Any, Any]:
    generator = np.random.Generator(np.random.PCG64(count))
    return generator.standard_normal((count, 4)).astype(np.float32), np.arange(count) % 2


def _client(number: int, bad: Bad | None) -> Respond:
    app: Any = client_app(Own(model=lambda: nn.Linear(4, 2), data=lambda _: _data(20 + number)))
    context = Context(5, 100 + number, {"partition-id": number}, RecordDict(), RUN)

    def respond(message: Message) -> list[Message]:
        working = wire.unpack(envelope.frame_of(message)).kind is wire.Kind.TASK
        return [bad(message) if working and bad is not None else app(message, context)]

    return respond


@pytest.mark.parametrize(
    "bad",
    [
        lambda message: Message(Error(code=1, reason="no room for client 2's 22 examples"), reply_to=message),
        lambda message: Message(RecordDict({"arrays": ArrayRecord()}), reply_to=message),
        lambda message: envelope.reply(message, b"nonsense", {}),
    ],
    ids=["an error", "not of Tacit's", "nonsense"],
)
def test_a_client_that_fails_is_told_of_in_the_journal_alone(bad: Bad, tmp_path: Path) -> None:
    nodes = {100 + number: _client(number, bad if number == 2 else None) for number in range(3)}
    serving = Serving(model=lambda: nn.Linear(4, 2), test=lambda: _data(20))
    watching, out = Watching(), tmp_path / "run"
    result = serve(grid(nodes), RUN | {"out": str(out)}, serving=serving, observer=watching)
    assert [record.attempts for record in result.rounds] == [1] * 6
    assert {(record.clients_asked, record.clients_replied) for record in result.rounds} == {(None, None)}
    assert not any("lient 2" in note or "dropped" in note or "node 102" in note for note in watching.notes)
    records = [json.loads(line) for line in (out / "journal.jsonl").read_text().splitlines()]
    secrets = [record["text"] for record in records if record["type"] == "secret"]
    assert secrets
    assert all("lient 2" in text for text in secrets)
    assert not any("lient 2" in json.dumps(record) for record in records if record["type"] not in ("secret", "start"))
