from __future__ import annotations

import json

import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.supercore.constant import HEAD_BODY_DIVIDER
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

import tests.flower.grid  # noqa: F401 - messages can be made
from tacit import wire
from tacit.errors import ClientError, WireError
from tacit.flower import envelope
from tacit.flower.envelope import client_app
from tacit.parties.calls import Answer, Call


def _request(frame: bytes = b"frame", party: int = 3) -> Message:
    message = envelope.request(envelope.record_of(frame), party=party, node=7, ttl=60.0)
    message.metadata.__dict__["_message_id"] = "one"
    return message


def test_a_request_carries_its_frame_and_its_party() -> None:
    message = _request(b"\x00" * 1000, party=-2)
    assert (envelope.frame_of(message), envelope.party_of(message)) == (b"\x00" * 1000, -2)
    assert (message.metadata.dst_node_id, message.metadata.message_type) == (7, "train.tacit")
    assert message.metadata.ttl == 60.0


def test_the_frame_is_the_data_of_an_array_which_flower_sends_in_chunks() -> None:
    (record,) = _request(b"abc").content.array_records.values()
    assert record["frame"].data == b"abc"
    assert record["frame"].shape == (3,)


def _inflated(frame: bytes, order: list[int]) -> bytes:
    """Return the frame that Flower puts together of a record whose sender gave its chunks in another order."""
    array = envelope.record_of(frame)["frame"]
    head, _, body = array.deflate().partition(HEAD_BODY_DIVIDER)
    told = json.loads(body)
    told["arraychunk_ids"] = order
    forged = json.dumps(told).encode()
    name, children, _ = head.split(b" ")
    content = b" ".join([name, children, str(len(forged)).encode()]) + HEAD_BODY_DIVIDER + forged
    data: bytes = Array.inflate(content, array.children).data
    return data


@pytest.mark.parametrize(
    "order",
    [
        pytest.param([0, 1, 2, 3, 3], id="one twice"),
        pytest.param([0, 1, 1, 3], id="one twice and one missing"),
        pytest.param([0, 1, 2], id="the last missing"),
        pytest.param([1, 0, 2, 3], id="out of order"),
        pytest.param([0, 1, 2, 3, 4], id="one too many"),
        pytest.param([0] * 100, id="one very often"),
        pytest.param([], id="none"),
    ],
)
def test_chunks_that_make_no_frame_are_refused(order: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flwr.app.message.array.FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE", 100)
    turn = wire.Turn(round_number=3)
    frame = wire.pack_vector(turn, np.arange(90, dtype=np.float32))  # four chunks
    assert _inflated(frame, [0, 1, 2, 3]) == frame
    with pytest.raises((ClientError, ValueError, IndexError)):  # ours, or Flower's, see test_engine.py
        wire.expect(wire.Kind.VECTOR, turn, 1, _inflated(frame, order))


def test_no_message_is_as_long_as_a_long_frame() -> None:
    message = _request(bytes(range(256)) * (48 << 10))  # 12 MB
    longest = max(len(part.deflate()) for part in get_all_nested_objects(message).values())
    assert longest < 6_000_000


def test_a_reply_carries_seconds() -> None:
    message = envelope.reply(_request(), b"answer", {"train": 1.5})
    assert (envelope.frame_of(message), envelope.seconds_of(message)) == (b"answer", {"train": 1.5})
    assert message.metadata.reply_to_message_id == "one"


def test_seconds_that_make_no_sense_are_left_out() -> None:
    message = envelope.reply(_request(), b"", {})
    message.content["tacit.seconds"] = MetricRecord({"train": -1.0, "protect": [1.0], "recover": 2.0})
    assert envelope.seconds_of(message) == {"recover": 2.0}
    del message.content["tacit.seconds"]
    assert envelope.seconds_of(message) == {}


def test_a_message_of_something_else_is_refused() -> None:
    message = Message(RecordDict({"config": ConfigRecord({"lr": 0.1})}), 7, "train")
    with pytest.raises(WireError, match=r"with a frame of Tacit's \(tacit.frame\), got config"):
        envelope.frame_of(message)
    with pytest.raises(WireError, match=r"says whom it is for \(tacit.call\), got config"):
        envelope.party_of(message)
    empty = Message(RecordDict(), 7, "train")
    with pytest.raises(WireError, match="got nothing"):
        envelope.frame_of(empty)
    message.content["tacit.call"] = ConfigRecord({"party": "three"})
    with pytest.raises(WireError, match="Expected a party's number, got 'three'"):
        envelope.party_of(message)


# At a node


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
