from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import httpx
import pytest
from flwr.app import ArrayRecord, Error, Message, RecordDict

from tacit.errors import LinkError, WireError
from tacit.flow import ClientId, Gather
from tacit.flower import envelope
from tacit.flower.engine import FlowerEngine
from tests.flower.grid import Respond, grid


def _answering(answer: Callable[[ClientId, bytes], bytes], seconds: dict[str, float] | None = None) -> Respond:
    def respond(message: Message) -> list[Message]:
        frame = answer(envelope.party_of(message), envelope.frame_of(message))
        return [envelope.reply(message, frame, seconds or {})]

    return respond


ECHO = _answering(lambda party, frame: b"%d:%s" % (party, frame))


def _engine(nodes: dict[int, Respond], *failures: Exception, **settings: Any) -> tuple[FlowerEngine, list[str]]:
    notes: list[str] = []
    options: dict[str, Any] = {"deadline": 0.2, "pause": lambda _: None} | settings
    engine = FlowerEngine(grid=grid(nodes, *failures), note=notes.append, **options)
    engine.nodes |= {number: 100 + number for number in range(len(nodes))}
    return engine, notes


def test_requests_reach_their_party_and_replies_come_back() -> None:
    engine, notes = _engine({100: ECHO, 101: ECHO})
    engine.nodes[-1] = 101  # one node is a client and holds a key
    assert engine.exchange({0: b"a", 1: b"b", -1: b"c"}) == {0: b"0:a", 1: b"1:b", -1: b"-1:c"}
    assert notes == []


def test_equal_requests_share_one_record_so_that_they_are_sent_once() -> None:
    seen: list[ArrayRecord] = []

    def respond(message: Message) -> list[Message]:
        seen.append(next(iter(message.content.array_records.values())))
        return ECHO(message)

    engine, _ = _engine({100: respond, 101: respond})
    engine.exchange({0: b"same", 1: b"same"})
    assert seen[0] is seen[1]


def test_gathered_replies_are_handed_over_one_by_one() -> None:
    received: dict[ClientId, bytes] = {}
    replied: list[None] = []
    engine, _ = _engine({100: ECHO, 101: ECHO}, on_reply=lambda: replied.append(None))
    assert engine.exchange(Gather({0: b"a", 1: b"b"}, received.__setitem__)) == {}
    assert received == {0: b"0:a", 1: b"1:b"}
    assert len(replied) == 2


def test_no_more_requests_are_on_their_way_than_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, notes = _engine(dict.fromkeys(range(100, 110), ECHO), most=4)
    on_the_way: set[str] = set()
    largest = 0
    push, pull = engine._grid.push_messages, engine._grid.pull_messages

    def pushed(messages: Iterable[Message]) -> Iterable[str]:
        nonlocal largest
        numbers = list(push(messages))
        on_the_way.update(numbers)
        largest = max(largest, len(on_the_way))
        return numbers

    def pulled(numbers: Sequence[str]) -> Iterable[Message]:
        arrived = list(pull(list(numbers)[:3]))  # the others take longer
        on_the_way.difference_update(message.metadata.reply_to_message_id for message in arrived)
        return arrived

    monkeypatch.setattr(engine._grid, "push_messages", pushed)
    monkeypatch.setattr(engine._grid, "pull_messages", pulled)
    assert engine.exchange(dict.fromkeys(range(10), b"a")) == {number: b"%d:a" % number for number in range(10)}
    assert (largest, on_the_way, notes) == (4, set(), [])


def test_who_was_not_asked_before_the_deadline_has_dropped_out() -> None:
    silent: Respond = lambda _: []  # noqa: E731 - a node as short as that
    engine, notes = _engine({100: ECHO, 101: silent, 102: ECHO}, most=1, deadline=0.05)
    assert engine.exchange(dict.fromkeys(range(3), b"a")) == {0: b"0:a"}
    assert [note.split(":")[0] for note in notes] == [
        "Client 1 (node 101) has dropped out",
        "Client 2 (node 102) has dropped out",
    ]


def test_long_replies_are_fetched_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.flower.engine._FETCHED", 25)
    engine, notes = _engine(dict.fromkeys(range(100, 105), ECHO))
    asked: list[int] = []
    pull = engine._grid.pull_messages

    def counted(numbers: Sequence[str]) -> Iterable[Message]:
        asked.append(len(numbers))
        return pull(numbers)

    monkeypatch.setattr(engine._grid, "pull_messages", counted)
    assert len(engine.exchange(dict.fromkeys(range(5), b"ten bytes!"))) == 5
    assert asked == [2, 2, 1]
    assert len(engine.exchange(dict.fromkeys(range(5), b"short"))) == 5
    assert asked[3:] == [5]
    assert notes == []


def test_what_flower_cannot_read_costs_whoever_sent_it_and_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, notes = _engine(dict.fromkeys(range(100, 104), ECHO))
    pull, push = engine._grid.pull_messages, engine._grid.push_messages
    hostile: list[str] = []

    def pushed(messages: Sequence[Message]) -> Iterable[str]:
        numbers = list(push(messages))
        hostile[:] = numbers[1:2]
        return numbers

    def pulled(numbers: Sequence[str]) -> Iterable[Message]:
        if hostile[0] in numbers:
            raise IndexError("list index out of range")  # a chunk that is not among its children
        return pull(numbers)

    monkeypatch.setattr(engine._grid, "push_messages", pushed)
    monkeypatch.setattr(engine._grid, "pull_messages", pulled)
    for _ in range(2):
        assert engine.exchange(dict.fromkeys(range(4), b"x")).keys() == {0, 2, 3}
    lost = "Client 1 (node 101) has dropped out: its reply can't be read: IndexError: list index out of range"
    assert notes[1:] == [lost, lost]
    assert "fetched one by one from now on" in notes[0]


def test_requests_that_a_superlink_does_not_take_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, notes = _engine({100: ECHO, 101: ECHO})
    monkeypatch.setattr(engine._grid, "push_messages", lambda _: [])  # what Flower returns for 413, Content Too Large
    assert engine.exchange({0: b"x", 1: b"x"}) == {}
    assert "took none of 2 requests" in notes[0]
    assert "refuses messages of this length" in notes[0]


def test_a_missing_late_or_error_reply_is_a_drop_out() -> None:
    def fails(message: Message) -> list[Message]:
        return [Message(Error(code=1, reason="out of memory"), reply_to=message)]

    engine, notes = _engine({100: ECHO, 101: fails, 102: lambda _: []})
    engine.nodes[3] = 999  # never connected
    assert engine.exchange(dict.fromkeys([0, 1, 2, 3, 4], b"x")) == {0: b"0:x"}
    told = "\n".join(sorted(notes))
    assert "Client 1 (node 101) has dropped out: out of memory" in told
    assert "Client 2 (node 102) has dropped out: no answer within 0.2 s" in told
    assert "Client 3 (node 999) has dropped out: it is not connected" in told
    assert "Client 4 has dropped out: no node answers for it" in told


def test_what_came_before_the_end_is_seen_however_long_the_sending_or_the_last_pause_took() -> None:
    engine, notes = _engine({100: ECHO}, deadline=0.0)
    assert engine.exchange({0: b"a"}) == {0: b"0:a"}
    assert notes == []


def test_the_first_of_two_answers_counts() -> None:
    engine, notes = _engine({100: lambda message: ECHO(message) + _answering(lambda *_: b"other")(message)})
    assert engine.exchange({0: b"x"}) == {0: b"0:x"}
    assert notes == ["Node 100 answered twice; its first answer counts."]


def test_an_answer_in_anothers_name_is_not_used() -> None:
    def forged(message: Message) -> list[Message]:
        reply = ECHO(message)[0]
        reply.metadata.__dict__["_src_node_id"] = 666
        return [reply]

    engine, notes = _engine({100: forged})
    assert engine.exchange({0: b"x"}) == {}
    assert notes == ["Node 666 answered for node 100; the answer is not used."]


def test_a_reply_that_is_not_tacits_is_a_drop_out_in_a_round_and_told_before() -> None:
    engine, notes = _engine({100: lambda message: [Message(RecordDict({"arrays": ArrayRecord()}), reply_to=message)]})
    assert engine.exchange({0: b"x"}) == {}
    assert "Client 0 (node 100) sent something else" in notes[0]
    (told,) = engine.greet(b"x", [100]).values()
    assert isinstance(told, WireError)
    assert re.search(r"\(node 100\) sent something else.*got arrays.*app of Tacit's", str(told))


def test_an_unreachable_superlink_is_tried_again_and_then_given_up() -> None:
    waits: list[float] = []
    engine, notes = _engine({100: ECHO}, httpx.ConnectError("refused"), httpx.ConnectError("refused"))
    engine._pause = waits.append
    assert engine.exchange({0: b"x"}) == {0: b"0:x"}
    assert notes == [f"The SuperLink can't be reached: refused. Trying again in {wait} s." for wait in (1, 2)]
    assert waits == [1.0, 2.0]
    engine, notes = _engine({100: ECHO}, *[httpx.ConnectError("refused")] * 5)
    with pytest.raises(LinkError, match=r"can't be reached: refused\. Tried 5 times"):
        engine.exchange({0: b"x"})
    assert len(notes) == 4


def test_a_trip_tells_its_seconds_and_the_nodes_own() -> None:
    trips: list[tuple[float, Any]] = []
    worked = _answering(lambda *_: b"", {"train": 2.0, "protect": 0.5})
    engine, _ = _engine({100: worked, 101: worked}, on_trip=lambda wall, each: trips.append((wall, each)))
    engine.exchange({0: b"x", 1: b"x"})
    ((wall, each),) = trips
    assert 0 <= wall < 0.2
    assert each == [{"train": 2.0, "protect": 0.5}] * 2


def test_nodes_are_greeted_by_their_numbers() -> None:
    engine, _ = _engine({100: ECHO, 101: lambda _: []})
    assert engine.greet(b"hello", [100, 101]) == {100: b"0:hello"}
    assert engine.present() == {100, 101}


def test_nobody_is_waited_for_where_nobody_was_asked() -> None:
    engine, notes = _engine({})
    assert engine.exchange({}) == {}
    assert notes == []


def test_another_message_type_and_more_in_every_call() -> None:
    seen: list[tuple[str, dict[str, Any]]] = []

    def respond(message: Message) -> list[Message]:
        call = dict(message.content.config_records[envelope.CALL])
        seen.append((message.metadata.message_type, call))
        return ECHO(message)

    engine, _ = _engine({100: respond}, message_type="train")
    engine.terms = {"version": "1"}
    assert engine.exchange({0: b"a"}) == {0: b"0:a"}
    assert seen == [("train", {"party": 0, "version": "1"})]


def test_errors_of_the_last_trip_are_kept_by_their_nodes() -> None:
    engine, _ = _engine({100: lambda message: [Message(Error(code=8, reason="gone"), reply_to=message)], 101: ECHO})
    assert engine.exchange({0: b"a", 1: b"b"}) == {1: b"1:b"}
    assert {node: error.reason for node, error in engine.failures.items()} == {100: "gone"}
    engine.exchange({1: b"b"})
    assert engine.failures == {}
