"""The sum of signs: the same promises as every protocol's, and that a bad report loses nothing but itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import wire
from tacit.errors import ClientError, DropoutError, RemoteError, WireError
from tacit.flow import Frames, InProcessEngine, drive
from tacit.protocols.protocol import Total
from tacit.protocols.reports import Report, ReportCode, ReportCount
from tacit.protocols.signs import SignSum
from tacit.vectors import Vector
from tacit.wire import Kind, Task, Turn

TURN = Turn(round_number=3, attempt=1)
TASK = Task(turn=TURN, model=np.arange(8, dtype=np.float32))
Meddle = Callable[[Frames], Frames]


def contribution(indices: Sequence[int], sign: int, bit: int, dimensions: int = 8) -> Vector:
    vector = np.zeros(dimensions + 2, np.float32)
    vector[list(indices)] = sign
    vector[-2:] = bit, 1.0
    return vector


def some(clients: int, dimensions: int = 8, chosen: int = 3, seed: int = 8) -> list[Vector]:
    generator = np.random.default_rng(seed)
    return [
        contribution(
            generator.choice(dimensions, chosen, replace=False).tolist(),
            int(generator.choice([-1, 1])),
            int(generator.integers(2)),
            dimensions,
        )
        for _ in range(clients)
    ]


def summed(vectors: Sequence[Vector], *, minimum: int = 1, chosen: int = 3, meddle: Meddle = lambda r: r) -> Total:
    protocol = SignSum(minimum_clients=minimum, named=lambda _: chosen)

    def answer(requests: Frames) -> Frames:
        return meddle({c: protocol.client(b"", wire.unpack(request), vectors[c])[1] for c, request in requests.items()})

    flow = protocol.server(range(len(vectors)), TASK, len(vectors[0]))
    return drive(flow, InProcessEngine(answer=answer))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 12), st.integers(3, 200), st.integers(0, 10_000))
def test_the_sum_is_numpys(clients: int, dimensions: int, seed: int) -> None:
    vectors = some(clients, dimensions, seed=seed)
    total = summed(vectors)
    assert total.vector.tolist() == np.sum(vectors, axis=0, dtype=np.float64).tolist()  # whole numbers: exactly
    assert total.vector.dtype == np.float64
    assert (total.clients, total.notes) == (tuple(range(clients)), ())


def test_only_the_set_the_sign_and_the_bit_travel() -> None:
    sent: dict[int, bytes] = {}

    def keep(replies: Frames) -> Frames:
        sent.update(replies)
        return replies

    summed(some(1, dimensions=66_404, chosen=176), chosen=176, meddle=keep)
    assert len(sent[0]) == 228  # eight of header, 1756 + 2 bits
    summed(some(1, dimensions=21_840, chosen=14), chosen=14, meddle=keep)
    assert len(sent[0]) == 29
    summed([contribution([0, 4, 7], -1, 1)], meddle=keep)
    assert sent[0][wire.BRIEF_BYTES :] == bytes([41 << 2 | 0b01])


def test_who_dropped_out_is_not_in_the_sum() -> None:
    vectors = some(5)
    total = summed(vectors, meddle=lambda r: {c: f for c, f in r.items() if c not in (0, 3)})
    assert total.clients == (1, 2, 4)
    assert total.vector.tolist() == sum(vectors[c] for c in (1, 2, 4)).tolist()  # type: ignore[union-attr]


def _replace(client: int, change: Callable[[bytes], bytes]) -> Meddle:
    return lambda replies: {c: change(f) if c == client else f for c, f in replies.items()}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda frame: b"", "damaged"),
        (lambda frame: frame[:5], "damaged"),
        (lambda frame: frame[:-1], "Expected 1 bytes for 3 of 8 coordinates, got 0"),
        (lambda frame: frame + b"\x00", "Expected 1 bytes for 3 of 8 coordinates, got 2"),
        (lambda frame: frame[:-1] + b"\xff", "out of range"),  # 63, and there are 56 sets
        (lambda frame: b"\xb2" + frame[1:], "damaged"),
        (lambda frame: frame[:1] + b"\x4d" + frame[2:], "damaged"),
        (lambda frame: wire.pack_brief(Kind.VECTOR, TURN, frame[8:]), "VECTOR"),
        (lambda frame: wire.pack_brief(Kind.SIGNS, Turn(round_number=2, attempt=1), frame[8:]), "stale"),
        (lambda frame: wire.pack_brief(Kind.SIGNS, Turn(round_number=3, attempt=0), frame[8:]), "stale"),
        (lambda frame: wire.pack_failure(TURN, wire.Failure.NOT_FINITE), "its update is not finite"),
        (lambda frame: wire.pack_task(TASK), "TASK"),
    ],
)
def test_a_bad_report_is_refused_and_named_and_the_others_count(change: Callable[[bytes], bytes], reason: str) -> None:
    vectors = some(5)
    total = summed(vectors, meddle=_replace(3, change))
    assert total.clients == (0, 1, 2, 4)
    assert total.vector.tolist() == sum(vectors[c] for c in (0, 1, 2, 4)).tolist()  # type: ignore[union-attr]
    (note,) = total.notes
    assert "lient 3" in note
    assert reason in note


@pytest.mark.parametrize("replied", [0, 1, 2])
def test_too_few_replies_fail_closed(replied: int) -> None:
    with pytest.raises(DropoutError, match=rf"{replied} of 5 clients sent a reply that counts in round 3, 3 needed"):
        summed(some(5), minimum=3, meddle=lambda r: {c: f for c, f in r.items() if c < replied})


def test_refused_reports_do_not_make_up_the_minimum() -> None:
    with pytest.raises(DropoutError, match=r"4 of 5 .* 5 needed.*client 3 .*out of range"):
        summed(some(5), minimum=5, meddle=_replace(3, lambda frame: frame[:-1] + b"\xff"))


def test_a_reply_from_outside_the_cohort_is_refused() -> None:
    with pytest.raises(RemoteError, match="17"):
        summed(some(3), meddle=lambda r: {**r, 17: r[0]})


@pytest.mark.parametrize(
    ("vector", "words"),
    [
        (np.array([1, -1, 1, 0, 0, 0, 0, 0, 0, 1], np.float32), "one sign at all named coordinates"),
        (np.array([2, 2, 2, 0, 0, 0, 0, 0, 0, 1], np.float32), "The sign is 2: expected"),
        (np.array([0.5, 0.5, 0.5, 0, 0, 0, 0, 0, 0, 1], np.float32), "The sign is 0: expected"),
        (np.array([1, 1, 1, 0, 0, 0, 0, 0, 0.5, 1], np.float32), "a bit and a one"),
        (np.array([1, 1, 1, 0, 0, 0, 0, 0, 0, 2], np.float32), "a bit and a one"),
        (np.zeros(10, np.float32), "one sign at all named coordinates"),
    ],
)
def test_a_client_sends_nothing_else(vector: Vector, words: str) -> None:
    protocol = SignSum(minimum_clients=1, named=lambda _: 3)
    with pytest.raises(WireError, match=words):
        protocol.client(b"", wire.unpack(wire.pack_task(TASK)), vector)
    with pytest.raises(WireError, match="TASK"):
        protocol.client(b"", wire.unpack(wire.pack_task(TASK)), None)


def report(indices: Sequence[int], sign: int = 1, bit: int = 0) -> Report:
    return Report(indices=np.array(indices), sign=sign, bit=bit)


@pytest.mark.parametrize("sign", [0, 2, -2])
def test_a_sign_is_plus_or_minus_one(sign: int) -> None:
    with pytest.raises(WireError, match=rf"The sign is {sign}: expected \+1 or -1"):
        report([0, 1, 2], sign)


def test_a_bit_is_a_bit() -> None:
    with pytest.raises(WireError, match="The bit is 2"):
        report([0, 1, 2], 1, 2)


@pytest.mark.parametrize(
    ("indices", "reason"),
    [
        ([1, 1, 5], "Coordinate 1 is there twice"),
        ([5, 1, 7], "Coordinate 5 comes before 1"),
        ([1, 5, 8], "Coordinate 8 is out of range"),
        ([-1, 5, 7], "Coordinate -1 is out of range"),
        ([1, 5], "Expected 3 coordinates, got 2"),
        ([1, 2, 3, 4], "Expected 3 coordinates, got 4"),
    ],
)
def test_the_tally_refuses_names_and_loses_nothing_else(indices: list[int], reason: str) -> None:
    count = ReportCount(dimensions=8, chosen=3, round_number=6)
    count.add(1, report([0, 4, 7]))
    with pytest.raises(ClientError, match=rf"report of client 9 in round 6 was refused: {reason}") as caught:
        count.add(9, report(indices))
    assert (caught.value.client, caught.value.round_number) == (9, 6)
    count.add(2, report([4, 5, 6], -1, 1))
    assert count.votes().tolist() == [1, 0, 0, 0, 0, -1, -1, 1]
    assert (count.clients, count.ones) == ((1, 2), 1)


def test_a_client_that_reports_twice_counts_once() -> None:
    count = ReportCount(dimensions=8, chosen=3, round_number=6)
    count.add(1, report([0, 4, 7]))
    with pytest.raises(ClientError, match="client 1 in round 6 was refused: it reported twice"):
        count.add(1, report([0, 1, 2], -1, 1))
    assert count.votes().tolist() == [1, 0, 0, 0, 1, 0, 0, 1]
    assert (count.clients, count.ones) == ((1,), 0)


def test_an_empty_tally() -> None:
    assert ReportCount(dimensions=3, chosen=1, round_number=1).votes().tolist() == [0, 0, 0]


@pytest.mark.parametrize(("dimensions", "chosen"), [(8, 3), (66_404, 176), (21_840, 14), (5, 5)])
def test_a_report_takes_the_bits_of_its_set_and_two_more(dimensions: int, chosen: int) -> None:
    code = ReportCode(dimensions=dimensions, chosen=chosen)
    indices = np.sort(np.random.default_rng(1).choice(dimensions, chosen, replace=False))
    for sign, bit in ((1, 0), (1, 1), (-1, 0), (-1, 1)):
        data = code.encode(Report(indices=indices, sign=sign, bit=bit))
        assert len(data) == code.size
        back = code.decode(data)
        assert (back.indices.tolist(), back.sign, back.bit) == (indices.tolist(), sign, bit)


def test_the_guarantee_is_stated() -> None:
    guarantee = SignSum(minimum_clients=1, named=lambda _: 1).guarantee
    assert "no values" in guarantee.server
    assert all((guarantee.clients, guarantee.outsider))


def test_setup_needs_no_trip() -> None:
    protocol = SignSum(minimum_clients=1, named=lambda _: 1)
    assert drive(protocol.setup([0]), InProcessEngine(answer=lambda _: {})) is protocol
    protocol.prepare(b"", 3)
