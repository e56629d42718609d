from __future__ import annotations

from flwr.app import Context, Message, RecordDict

import tests.flower.grid  # noqa: F401 - messages can be made
from tacit.flower import envelope
from tacit.flower.calls import Answer, Call, client_app


def _context() -> Context:
    return Context(run_id=5, node_id=7, node_config={"partition-id": 2}, state=RecordDict(), run_config={"mode": "dp"})


def _ask(app: object, context: Context, party: int, frame: bytes) -> Message:
    message = envelope.request(envelope.record_of(frame), party=party, node=7, ttl=60.0)
    reply: Message = app(message, context)  # type: ignore[operator]
    return reply


def test_a_handler_sees_the_request_and_the_nodes_settings() -> None:
    calls: list[Call] = []

    def handler(call: Call) -> Answer:
        calls.append(call)
        return Answer(frame=b"done", seconds={"train": 1.0})

    reply = _ask(client_app(handler), _context(), 2, b"work")
    assert envelope.frame_of(reply) == b"done"
    assert envelope.seconds_of(reply) == {"train": 1.0}
    node, run = {"partition-id": 2}, {"mode": "dp"}
    assert calls == [Call(party=2, frame=b"work", node=node, run=run, run_id=5)]


def test_each_party_of_a_node_has_a_state_of_its_own_between_messages() -> None:
    app = client_app(lambda call: Answer(frame=call.memory, memory=call.memory + call.frame))
    context = _context()
    assert envelope.frame_of(_ask(app, context, 2, b"a")) == b""
    assert envelope.frame_of(_ask(app, context, -1, b"z")) == b""
    assert envelope.frame_of(_ask(app, context, 2, b"b")) == b"a"
    assert envelope.frame_of(_ask(app, context, 2, b"c")) == b"ab"
    assert envelope.frame_of(_ask(app, context, -1, b"y")) == b"z"
