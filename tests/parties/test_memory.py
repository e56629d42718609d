"""What a node of a deployment holds its server to."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from tacit import wire
from tacit.errors import StorageError
from tacit.flower.node import Own
from tacit.flower.serve import configuration
from tacit.modes.catalogue import resolve
from tacit.parties.calls import Answer, Call
from tacit.parties.hello import GREETING, Terms
from tacit.parties.memory import InFile, InState, Memory, kept_in
from tacit.parties.refusals import RefusalError

pytestmark = pytest.mark.usefixtures("tmp_path")  # a node keeps its memory in its home
RUN: dict[str, Any] = {
    "mode": "local-dp",
    "dp.noise": 2.0,
    "dp.clip": 0.5,
    "federate.clients": 3,
    "federate.rounds": 4,
    "federate.retries": 1,
}


def _own(examples: int = 8) -> Own:
    def data(_: Any) -> tuple[Any, Any]:
        return np.zeros((examples, 400), np.float32), np.arange(examples) % 2

    return Own(model=lambda: nn.Linear(400, 2), data=data)


def _task(number: int = 1, attempt: int = 0) -> bytes:
    turn = wire.Turn(round_number=number, attempt=attempt)
    return wire.pack_task(wire.Task(turn=turn, model=np.zeros(802, np.float32)))


def _ask(frame: bytes, own: Own | None = None, **changes: Any) -> Answer:
    said = Terms.of(resolve(configuration(changes.get("run", RUN)))).to_record()
    call = Call(party=1, frame=frame, said=said, node={"partition-id": 1}, run=RUN, run_id=5)
    return (own or _own())(replace(call, **changes))


def _said(answer: Answer) -> wire.Failure | None:
    frame = wire.unpack(answer.frame)
    if frame.kind is not wire.Kind.FAILURE:
        return None
    assert len(frame.body) == 1, "a code, and no words"
    return wire.unpack_failure(frame)[0]


def test_a_charged_round_gives_one_answer_whatever_is_asked() -> None:
    assert _said(_ask(_task())) is None
    for _ in range(40):
        assert _said(_ask(_task())) is wire.Failure.REPEATED
    assert _said(_ask(_task(1, 1))) is None, "the second try that the settings announce, which is charged again"
    assert _said(_ask(_task(1, 2))) is wire.Failure.BEYOND
    assert _said(_ask(_task(5))) is wire.Failure.BEYOND
    assert _said(_ask(_task(4))) is None
    assert _said(_ask(_task(3))) is wire.Failure.REPEATED


def test_a_node_answers_for_itself_only() -> None:
    """Its data are its own whatever number it is asked as: else every number would be another answer to a round."""
    assert _said(_ask(_task())) is None
    for party in (0, 2, -1, 10**9):
        assert _said(_ask(_task(), party=party)) is wire.Failure.PARTY


@pytest.mark.parametrize(
    "changes",
    [{"dp.noise": 0.0}, {"mode": "plain"}, {"federate.rounds": 1}, {"federate.clients": 4}, {"federate.retries": 99}],
    ids=["noise", "mode", "rounds", "clients", "retries"],
)
def test_settings_hold_from_the_first_message_on(changes: dict[str, Any]) -> None:
    frame = _ask(GREETING).frame
    assert wire.unpack(frame).kind is wire.Kind.HELLO
    run = {key: value for key, value in {**RUN, **changes}.items() if changes.get("mode") is None or key[:2] != "dp"}
    assert _said(_ask(_task(), run=run)) is wire.Failure.CHANGED
    assert _said(_ask(_task())) is None


def test_what_a_party_may_set_for_itself_may_change() -> None:
    assert _said(_ask(_task())) is None
    assert _said(_ask(_task(2), run=RUN | {"flower.deadline": 5.0, "out": "elsewhere"})) is None


def test_a_client_of_dp_sgd_keeps_the_size_that_is_accounted() -> None:
    run = {"mode": "dp-sgd", "dpsgd.noise": 1.0, "federate.clients": 3}
    assert _said(_ask(_task(), run=run)) is None
    assert _said(_ask(_task(2), own=_own(9), run=run)) is wire.Failure.CHANGED


def test_words_of_an_error_stay_on_the_node() -> None:
    def data(_: Any) -> tuple[Any, Any]:
        raise ValueError("patient 17")

    answer = _ask(_task(), own=Own(model=lambda: nn.Linear(400, 2), data=data))
    assert _said(answer) is wire.Failure.INTERNAL
    assert b"patient" not in answer.frame


@pytest.mark.parametrize(
    "frame", [b"", b"TCT", b"\x00" * 40, wire.pack(wire.Kind.VECTOR, wire.Turn(round_number=1), b"")]
)
def test_bytes_that_are_no_request(frame: bytes) -> None:
    assert _said(_ask(frame)) in (wire.Failure.REQUEST, wire.Failure.INTERNAL)


def test_nodes_that_only_play_keep_it_in_flowers_state() -> None:
    answer = _ask(_task(), simulated=True, node={"partition-id": 1, "num-partitions": 3})
    assert _said(answer) is None
    again = _ask(_task(), simulated=True, node={"partition-id": 1, "num-partitions": 3}, memory=answer.memory)
    assert _said(again) is wire.Failure.REPEATED
    assert again.memory == answer.memory
    assert _ask(_task()).memory == b"", "a real node does not leave it to Flower"


_TAKER = """
import sys
from pathlib import Path
from tacit import wire
from tacit.parties.memory import InFile
from tacit.parties.refusals import RefusalError
taken = 0
for number in range(1, 41):
    try:
        turn = wire.Turn(round_number=number)
        InFile(path=Path(sys.argv[1])).change(lambda memory: memory.answering(turn, rounds=99, retries=0))
        taken += 1
    except RefusalError:
        pass
print(taken)
"""


def test_processes_at_once_take_each_turn_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _TAKER, str(tmp_path / "folder" / "memory.json")]
    takers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    taken = [int(taker.communicate()[0]) for taker in takers]
    assert sum(taken) <= 40
    assert InFile(path=tmp_path / "folder" / "memory.json").change(lambda memory: memory)[0].last == (40, 1)


def test_runs_that_a_stranger_names_take_no_more_room_than_there_is(tmp_path: Path) -> None:
    """Those that were answered, or that nobody can read, stay; of the others the oldest are forgotten."""

    def named(number: int) -> InFile:
        return InFile(path=tmp_path / f"run-{number}.json", most=8)

    def greeted(number: int) -> None:
        named(number).change(lambda kept: kept.held_to({"mode": "dp"}))
        os.utime(named(number).path, ns=(number, number))

    for number in range(200):
        greeted(number)
        if number in (0, 5):
            named(number).change(lambda kept: kept.answering(wire.Turn(round_number=1), rounds=9, retries=0))
        if number == 7:
            named(number).path.write_bytes(b"{")
        files = sorted(path.name for path in tmp_path.iterdir())
        assert len(files) <= 2 * 8, "a memory and a lock for each"
        assert f"run-{number}.json" in files
    assert {"run-0.json", "run-5.json", "run-7.json", "run-199.json", "run-198.json"} <= set(files)
    for number in range(200, 208):
        with contextlib.suppress(StorageError):
            named(number).change(lambda kept: kept.answering(wire.Turn(round_number=1), rounds=9, retries=0))
    with pytest.raises(StorageError, match="remembers 8 runs that were answered, which is all there is room for"):
        greeted(300)
    assert not list(tmp_path.glob("*300*"))
    assert named(0).change(lambda kept: kept)[0].last == (1, 1)


def test_memory_is_for_its_owner_alone_and_where_the_operator_wants_it(tmp_path: Path) -> None:
    keeper = kept_in({"tacit-memory": str(tmp_path / "here")}, "run-1-0")
    keeper.change(lambda memory: memory.held_to({"mode": "dp"}))
    assert (tmp_path / "here" / "run-1-0.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "here").stat().st_mode & 0o777 == 0o700
    home = kept_in({}, "run-1-0").path
    assert home == tmp_path / "lonely-flower" / "tacit" / "run-1-0.json"


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b'{"told": 3, "last": [1, 1]}', b'{"told": {}, "last": []}', b"[" * 10_000]
)
def test_a_damaged_memory_is_not_taken_for_an_empty_one(data: bytes) -> None:
    with pytest.raises(StorageError, match="damaged"):
        InState(data).change(lambda memory: memory)


def test_memory_there_and_back_and_long_texts_as_their_hash() -> None:
    kept = (
        Memory()
        .held_to({"a": "x" * 10_000, "b": "short"})
        .answering(wire.Turn(round_number=3, attempt=1), rounds=3, retries=1)
    )
    assert Memory.from_bytes(kept.to_bytes()) == kept
    assert len(kept.to_bytes()) < 300
    with pytest.raises(RefusalError, match="says a sha256:"):
        kept.held_to({"a": "x" * 9_999 + "y"})


def test_a_client_is_not_asked_before_its_next_round_is_due() -> None:
    memory = Memory().answering(wire.Turn(round_number=2), rounds=9, retries=1, separation=3)
    again = memory.answering(wire.Turn(round_number=2, attempt=1), rounds=9, retries=1, separation=3)
    for soon in (3, 4):
        with pytest.raises(RefusalError, match=rf"round {soon} after round 2, .* every 3-th round"):
            again.answering(wire.Turn(round_number=soon), rounds=9, retries=1, separation=3)
    assert again.answering(wire.Turn(round_number=5), rounds=9, retries=1, separation=3).last == (5, 1)


def test_an_announced_epsilon_is_not_spent_twice_by_tries_of_every_round() -> None:
    """It is that of one release per round: with three tries of each a lying server would have three."""
    memory = Memory()
    for number, attempt in [(1, 0), (1, 1), (2, 0)]:
        turn = wire.Turn(round_number=number, attempt=attempt)
        memory = memory.answering(turn, rounds=3, retries=2, most=3)
    with pytest.raises(RefusalError, match="after 3 answers: the epsilon that was announced is spent"):
        memory.answering(wire.Turn(round_number=3), rounds=3, retries=2, most=3)
    assert memory.answering(wire.Turn(round_number=3), rounds=3, retries=2).answered == 4  # by noise: each is charged


def test_a_node_that_was_told_an_epsilon_answers_as_often_as_that_lasts() -> None:
    run = {key: value for key, value in RUN.items() if key != "dp.noise"} | {"dp.epsilon": 8.0, "federate.rounds": 2}
    answers = [_said(_ask(_task(number, attempt), run=run)) for number in (1, 2) for attempt in (0, 1)]
    assert answers == [None, None, wire.Failure.BEYOND, wire.Failure.BEYOND]


def test_a_task_does_not_undo_what_was_asked_while_it_was_worked_on() -> None:
    memory = Memory(state=b"shared")
    assert memory.worked(b"shared", b"masked").state == b"masked"
    with pytest.raises(RefusalError, match="while this task was worked on"):
        Memory(state=b"a later turn").worked(b"shared", b"masked")
