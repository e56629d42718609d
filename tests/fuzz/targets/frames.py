"""What travels in frames: headers, tasks, failures, reports of signs, and what a mechanism tells its clients."""

from __future__ import annotations

import functools
import struct

import numpy as np

from tacit import wire
from tacit.federated.plan import Plan
from tacit.flow import Frames, drive
from tacit.mechanisms.mechanism import Work
from tacit.modes.catalogue import plan_of, resolve
from tacit.protocols.reports import Report, ReportCode
from tacit.protocols.signs import SignSum
from tacit.randomness import Randomness
from tests.fuzz.harness import Target
from tests.runs.common import digits

TURN = wire.Turn(round_number=3, attempt=1)
_LENGTH_AT = 12


def whole(data: bytes) -> bytes:
    """Return a frame whose header says how long its body is."""
    return data[:_LENGTH_AT] + struct.pack(">Q", len(data) - 20) + data[20:] if len(data) >= 20 else data


def _frames() -> list[bytes]:
    task = wire.Task(turn=TURN, model=np.linspace(-1, 1, 7, dtype=np.float32), extras=b"extras")
    return [
        wire.pack_task(task),
        wire.pack_vector(TURN, np.array([1.0, np.nan, -0.0], np.float32)),
        *(wire.pack_failure(TURN, failure) for failure in wire.Failure),
        wire.pack_failure(TURN, wire.Failure.REFUSED, "a reason in words, with an é."),
        *(wire.pack(kind, TURN, bytes(range(24))) for kind in wire.Kind),
        wire.pack_brief(wire.Kind.SIGNS, TURN, b"signs"),
    ]


def _frame(data: bytes) -> None:
    brief = data[:1] == b"\xb1"
    frame = wire.unpack_brief(data)
    pack = wire.pack_brief if brief else wire.pack
    assert pack(frame.kind, frame.turn, bytes(frame.body)) == data
    if frame.kind is wire.Kind.FAILURE:
        failure, words = wire.unpack_failure(frame)
        assert failure in wire.Failure
        assert words.isprintable()
    kind = wire.Kind.SIGNS if brief else frame.kind
    assert bytes(wire.expect(kind, TURN, 4, data)) == bytes(frame.body)


def _task(data: bytes) -> None:
    task = wire.unpack_task(wire.unpack(data))
    assert wire.pack_task(task) == data


def _signs_seeds() -> list[bytes]:
    code = ReportCode(dimensions=40, chosen=5)
    report = Report(indices=np.array([0, 3, 8, 20, 39]), sign=1, bit=0)
    return [
        wire.pack_brief(wire.Kind.SIGNS, TURN, code.encode(report)),
        wire.pack_failure(TURN, wire.Failure.INTERNAL),
    ]


class _Answers:
    """An engine whose third client answers with the input, and the others truthfully."""

    name = "fuzzed"

    def __init__(self, data: bytes) -> None:
        self._data = data

    def exchange(self, requests: Frames) -> Frames:
        honest = _signs_seeds()[0]
        return {client: self._data if client == 2 else honest for client in requests}


def _signs(data: bytes) -> None:
    protocol = SignSum(minimum_clients=2, named=lambda _: 5)
    task = wire.Task(turn=TURN, model=np.zeros(40, np.float32))
    total = drive(protocol.server(range(3), task, 42), _Answers(data))
    votes = total.vector[:-2]
    assert total.clients in ((0, 1), (0, 1, 2))
    assert np.abs(votes).sum() <= 5 * len(total.clients)
    assert (votes[[0, 3, 8, 20, 39]] >= 2 - (len(total.clients) > 2)).all(), "the others' votes count"


@functools.cache
def _plans() -> tuple[Plan, ...]:
    jobs = (
        digits(mode="dp", dp={"noise": 0.4, "clip": "adaptive"}),
        digits(mode="dp", dp={"noise": 1.0}),
        digits(mode="signds", signds={"sign_k": 0.25}),
        digits(mode="nbafl", nbafl={"smallest": 10}),
    )
    return tuple(plan_of(resolve(job), 5) for job in jobs)


def _told_seeds() -> list[bytes]:
    plans = _plans()
    return [bytes([place]) + plan.mechanism.fitted((40,)).public_state() for place, plan in enumerate(plans)]


def _told(data: bytes) -> None:
    mechanism = _plans()[data[0] % 4 if data else 0].mechanism.with_state(data[1:])
    zeros = np.zeros(40, np.float32)
    work = Work(update=np.linspace(-1, 1, 40, dtype=np.float32), examples=10, loss=1.0, sent=zeros)
    given = mechanism.on_client(work, Randomness.of(seed=1))
    assert np.isfinite(np.asarray(given)).all()


TARGETS = (
    Target(name="frames", seeds=_frames, check=_frame, mend=whole, inputs=6000),
    Target(name="tasks", seeds=lambda: _frames()[:1], check=_task, mend=whole, inputs=4000),
    Target(name="signs", seeds=_signs_seeds, check=_signs, mend=whole, inputs=2500),
    Target(name="told", seeds=_told_seeds, check=_told, inputs=2500),
)
