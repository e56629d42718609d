from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit import wire
from tacit.errors import ClientError, WireError
from tacit.vectors import Vector
from tacit.wire import Failure, Kind, Task, Turn

HEADER = 20
TURNS = st.builds(Turn, round_number=st.integers(0, 2**32 - 1), attempt=st.integers(0, 2**16 - 1))
VECTORS = st.lists(st.floats(width=32), max_size=40).map(lambda values: np.array(values, np.float32))
TURN = Turn(round_number=5, attempt=1)
FRAME = wire.pack_vector(TURN, np.array([1.5, -2.0], np.float32))


@given(TURNS, VECTORS, st.binary(max_size=40))
def test_a_task_round_trips_bit_for_bit(turn: Turn, model: Vector, extras: bytes) -> None:
    task = wire.unpack_task(wire.unpack(wire.pack_task(Task(turn=turn, model=model, extras=extras))))
    assert (task.turn, task.extras) == (turn, extras)
    assert task.model.dtype == np.float32
    assert task.model.tobytes() == model.tobytes()


@given(TURNS, VECTORS)
def test_a_vector_round_trips_bit_for_bit(turn: Turn, vector: Vector) -> None:
    body = wire.expect(Kind.VECTOR, turn, 3, wire.pack_vector(turn, vector))
    assert wire.unpack_floats(body).tobytes() == vector.tobytes()


@given(TURNS, st.sampled_from(Kind), st.binary(max_size=60))
def test_any_frame_round_trips(turn: Turn, kind: Kind, body: bytes) -> None:
    frame = wire.unpack(wire.pack(kind, turn, body))
    assert (frame.kind, frame.turn, bytes(frame.body)) == (kind, turn, body)


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_a_wire_error_or_a_frame(data: bytes) -> None:
    try:
        wire.unpack_task(wire.unpack(data))
    except WireError:
        return
    assert data.startswith(b"TCT")


def test_the_layout_of_a_frame_is_fixed() -> None:
    assert wire.pack(Kind.VECTOR, Turn(round_number=258, attempt=3), b"ab") == (
        b"TCT\x01\x02" + b"\x00" + b"\x00\x03" + b"\x00\x00\x01\x02" + b"\x00" * 7 + b"\x02" + b"ab"
    )
    assert FRAME[HEADER:] == b"\x00\x00\xc0\x3f\x00\x00\x00\xc0"  # little-endian whatever the machine


def test_vectors_of_other_layouts_are_sent_as_float32() -> None:
    strided = np.arange(6, dtype=np.float32)[::2]
    body = wire.unpack(wire.pack_vector(TURN, strided)).body
    assert wire.unpack_floats(body).tolist() == [0.0, 2.0, 4.0]


@pytest.mark.parametrize("length", range(len(FRAME)))
def test_every_truncation_is_refused(length: int) -> None:
    with pytest.raises(WireError):
        wire.unpack(FRAME[:length])


def test_extra_bytes_are_refused() -> None:
    with pytest.raises(WireError, match=r"body of 8 bytes, got 9"):
        wire.unpack(FRAME + b"\x00")


@pytest.mark.parametrize("bit", range(HEADER * 8))
def test_every_bit_flip_of_a_header_is_refused(bit: int) -> None:
    damaged = bytearray(FRAME)
    damaged[bit // 8] ^= 1 << (bit % 8)
    with pytest.raises(ClientError, match="Client 8") as caught:
        wire.expect(Kind.VECTOR, TURN, 8, bytes(damaged))
    assert caught.value.client == 8
    kind_or_turn = bit // 8 == 4 or 6 <= bit // 8 < 12
    if not kind_or_turn:
        with pytest.raises(WireError):
            wire.unpack(bytes(damaged))


def test_another_version_says_what_to_do() -> None:
    with pytest.raises(WireError, match=r"wire version 1, got 2. Install the same version"):
        wire.unpack(FRAME[:3] + b"\x02" + FRAME[4:])


def test_an_unknown_kind_lists_the_known_ones() -> None:
    with pytest.raises(WireError, match=r"TASK.*VECTOR.*FAILURE.*got 77"):
        wire.unpack(FRAME[:4] + bytes([77]) + FRAME[5:])


@pytest.mark.parametrize("turn", [Turn(round_number=4, attempt=1), Turn(round_number=5, attempt=0)])
def test_a_stale_reply_is_refused(turn: Turn) -> None:
    with pytest.raises(ClientError, match=r"Client 2 .*stale") as caught:
        wire.expect(Kind.VECTOR, TURN, 2, wire.pack_vector(turn, np.zeros(2, np.float32)))
    assert (caught.value.client, caught.value.round_number) == (2, 5)


def test_a_reply_of_another_kind_is_refused() -> None:
    with pytest.raises(ClientError, match=r"answered with TASK .* expected VECTOR"):
        wire.expect(Kind.VECTOR, TURN, 2, wire.pack_task(Task(turn=TURN, model=np.zeros(1, np.float32))))


def test_a_failure_frame_carries_a_code_and_its_details() -> None:
    with pytest.raises(ClientError, match=r"Client 6 failed in round 5: other keys – sorry") as caught:
        wire.expect(Kind.VECTOR, TURN, 6, wire.pack_failure(TURN, Failure.REFUSED, "other keys – sorry"))
    assert (caught.value.client, caught.value.round_number) == (6, 5)


@pytest.mark.parametrize("failure", Failure)
def test_a_code_alone_says_what_happened_and_what_to_do(failure: Failure) -> None:
    frame = wire.unpack(wire.pack_failure(TURN, failure))
    assert bytes(frame.body) == bytes([failure])
    assert wire.unpack_failure(frame) == (failure, failure.words)


@pytest.mark.parametrize("failure", [Failure.DIVERGED, Failure.NOT_FINITE])
def test_what_is_about_data_has_no_room_for_details(failure: Failure) -> None:
    with pytest.raises(WireError, match="travels without details"):
        wire.pack_failure(TURN, failure, "the loss is 3.14")
    with pytest.raises(ClientError, match=r"Client 6 sent a damaged reply.*without details") as caught:
        wire.expect(Kind.VECTOR, TURN, 6, wire.pack(Kind.FAILURE, TURN, bytes([failure]) + b"the loss is 3.14"))
    assert "3.14" not in str(caught.value)


def test_a_failure_frame_with_bad_text_is_still_a_failure() -> None:
    with pytest.raises(ClientError, match="Client 6 failed"):
        wire.expect(Kind.VECTOR, TURN, 6, wire.pack(Kind.FAILURE, TURN, bytes([Failure.REFUSED]) + b"\xff\xfe"))


@pytest.mark.parametrize("body", [b"", b"\x00", b"\xff\xfe"])
def test_a_failure_without_a_known_code_is_a_damaged_reply(body: bytes) -> None:
    with pytest.raises(ClientError, match="Client 6 sent a damaged reply: Expected a code among"):
        wire.expect(Kind.VECTOR, TURN, 6, wire.pack(Kind.FAILURE, TURN, body))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\x00\x00", "extras in 4 bytes"),
        (b"\x00\x00\x00\x09abc", "9 bytes of extras, got 3"),
        (bytes(4) + b"\x01\x02\x03", "protocol in 4 bytes"),
        (bytes(4) + b"\x00\x00\x00\x09abc", "9 bytes of words"),
        (bytes(8) + b"\x01\x02\x03", "multiple of 4"),
    ],
)
def test_a_damaged_task_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(WireError, match=words):
        wire.unpack_task(wire.unpack(wire.pack(Kind.TASK, TURN, body)))


def test_a_vector_is_no_task() -> None:
    with pytest.raises(WireError, match="TASK frame, got VECTOR"):
        wire.unpack_task(wire.unpack(FRAME))


@given(TURNS, st.binary(max_size=40))
def test_a_brief_frame_round_trips(turn: Turn, body: bytes) -> None:
    frame = wire.unpack_brief(wire.pack_brief(Kind.SIGNS, turn, body))
    assert (frame.kind, frame.turn, bytes(frame.body)) == (Kind.SIGNS, turn, body)
    assert bytes(wire.expect(Kind.SIGNS, turn, 3, wire.pack_brief(Kind.SIGNS, turn, body))) == body
    assert len(wire.pack_brief(Kind.SIGNS, turn, body)) == wire.BRIEF_BYTES + len(body) == 8 + len(body)


def test_no_other_frame_begins_like_a_brief_one() -> None:
    assert wire.pack(Kind.VECTOR, TURN, b"")[:1] != wire.pack_brief(Kind.SIGNS, TURN, b"")[:1]
    failure = wire.pack_failure(TURN, Failure.REFUSED)
    assert wire.unpack_brief(failure).kind is Kind.FAILURE
    with pytest.raises(WireError, match="at least 8 bytes, got 3"):
        wire.unpack_brief(wire.pack_brief(Kind.SIGNS, TURN, b"")[:3])
    with pytest.raises(ClientError, match="Client 3 sent a damaged reply"):
        wire.expect(Kind.VECTOR, TURN, 3, wire.pack_brief(Kind.VECTOR, TURN, b"1234"))
