from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flwr.app import ArrayRecord, Message, RecordDict

import tacit
from tacit.errors import RunError, WireError
from tacit.flow import ClientId, Stopwatch
from tacit.flower import envelope
from tacit.flower.engine import FlowerEngine
from tacit.flower.link import Link, timed
from tacit.modes.catalogue import resolve
from tacit.parties.hello import Introduction
from tests.flower.grid import Respond, grid
from tests.runs.common import digits


def _node(*parties: ClientId, version: str = tacit.__version__, examples: int | None = None) -> Respond:
    said = Introduction(version=version, parties=parties, examples=examples).to_frame()

    def respond(message: Message) -> list[Message]:
        frame = envelope.frame_of(message)
        return [envelope.reply(message, said if frame[4] == 9 else b"work", {})]  # 9: a greeting

    return respond


def _link(nodes: dict[int, Respond], parties: set[ClientId], patience: float = 0.05) -> tuple[Link, Any, list[str]]:
    notes: list[str] = []
    made = grid(nodes)
    engine = FlowerEngine(grid=made, deadline=0.2, note=notes.append, pause=lambda _: None)
    config = digits(flower={"patience": patience})
    return Link(engine=engine, config=resolve(config), parties=frozenset(parties), note=notes.append), made, notes


def _assemble(link: Link, minimum: int = 2) -> None:
    link.assemble(minimum_clients=minimum, pause=0.01)


def test_everyone_is_found_wherever_they_are() -> None:
    link, _, notes = _link({31: _node(1), 32: _node(0, -1)}, {0, 1, -1})
    _assemble(link)
    assert link.engine.nodes == {1: 31, 0: 32, -1: 32}
    assert notes == []
    assert link.exchange({0: b"x" * 20}) == {0: b"work"}


def test_the_run_goes_on_without_some_clients_where_the_rest_is_enough() -> None:
    link, _, notes = _link({31: _node(0), 32: _node(1)}, {0, 1, 2})
    _assemble(link)
    assert notes == ["Waiting for client 2 (up to 0.05 s).", "client 2 did not come; the run goes on without."]
    assert link.exchange({2: b"x" * 20}) == {}


@pytest.mark.parametrize(("parties", "who"), [({0, 1, 2}, "clients 1, 2"), ({0, -1}, "key holder 1")])
def test_too_few_or_a_missing_key_holder_stop_the_run(parties: set[ClientId], who: str) -> None:
    link, _, _ = _link({31: _node(0)}, parties)
    with pytest.raises(RunError, match=f"{who} did not come within 0.05 s"):
        _assemble(link, minimum=1 if -1 in parties else 2)


def test_a_node_that_comes_late_is_waited_for() -> None:
    link, made, notes = _link({31: _node(0)}, {0, 1}, patience=30)

    def arriving(text: str) -> None:
        notes.append(text)
        made.nodes[32] = _node(1)

    link.note = arriving
    _assemble(link)
    assert notes == ["Waiting for client 1 (up to 30 s)."]
    assert link.engine.nodes[1] == 32


def test_a_node_that_comes_back_is_asked_again_and_another_in_its_name_is_not() -> None:
    """Which client a node is, is its own word: whoever waits until client 1 is gone could be it from then on."""
    link, made, notes = _link({31: _node(0), 32: _node(1)}, {0, 1})
    _assemble(link)
    made.nodes = {31: _node(0), 40: _node(1)}
    assert link.exchange({0: b"x" * 20, 1: b"x" * 20}) == {0: b"work"}
    assert link.engine.nodes[1] == 32
    assert any("Node 40 came and is left out: Nodes 32 and 40 both say they are client 1" in note for note in notes)
    made.nodes = {31: _node(0), 32: _node(1), 40: _node(1)}
    assert link.exchange({0: b"x" * 20, 1: b"x" * 20}) == {0: b"work", 1: b"work"}


def test_a_client_that_was_missing_may_come_and_a_stranger_stops_nothing() -> None:
    link, made, notes = _link({31: _node(0), 32: _node(1)}, {0, 1, 2})
    _assemble(link)
    made.nodes |= {33: _node(2), 40: _node(7), 41: _node(0, version="0.0.1"), 42: lambda _: []}
    assert link.exchange({2: b"x" * 20}) == {2: b"work"}
    assert sum("is left out" in note for note in notes) == 2


def test_a_stranger_whose_answer_is_nothing_of_tacits_stops_nothing_either() -> None:
    link, made, notes = _link({31: _node(0), 32: _node(1)}, {0, 1, 2})
    _assemble(link)
    made.nodes[40] = lambda message: [Message(RecordDict({"arrays": ArrayRecord()}), reply_to=message)]
    made.nodes[41] = lambda message: [envelope.reply(message, b"no frame", {})]
    assert link.exchange({0: b"x" * 20, 2: b"x" * 20}) == {0: b"work"}
    assert sum("came and is left out" in note for note in notes) == 2
    late, _, _ = _link({31: _node(0), 40: made.nodes[40]}, {0, 1})
    with pytest.raises(WireError, match=r"node 40\) sent something else"):
        _assemble(late)


def test_a_stranger_that_never_answers_does_not_hold_up_every_round() -> None:
    link, made, _ = _link({31: _node(0), 32: _node(1)}, {0, 1, 2})
    _assemble(link)
    greetings: list[Message] = []

    def silent(message: Message) -> list[Message]:
        greetings.append(message)
        return []

    made.nodes[42] = silent
    for _ in range(6):
        assert link.exchange({0: b"x" * 20, 2: b"x" * 20}) == {0: b"work"}
    assert len(greetings) == 3


def test_a_client_whose_examples_were_not_counted_is_not_asked() -> None:
    link, made, notes = _link({31: _node(0, examples=100), 32: _node(1, examples=60)}, {0, 1, 2})
    _assemble(link)
    made.nodes = {31: _node(0, examples=100), 33: _node(2, examples=10)}
    assert link.exchange({2: b"x" * 20}) == {}
    assert any("client 2 was not there with its number of examples" in note for note in notes)


@pytest.mark.parametrize(
    ("nodes", "what"),
    [
        ({31: _node(0), 32: _node(0)}, "Nodes 31 and 32 both say they are client 0"),
        ({31: _node(0), 32: _node(5)}, "Node 32 says it is client 5, and the run has clients 0, 1"),
        ({31: _node(0), 32: _node(-2)}, "Node 32 says it is key holder 2"),
        ({31: _node(0), 32: _node(1, version="0.0.1")}, r"Node 32 runs tacit 0\.0\.1"),
    ],
)
def test_nodes_that_do_not_fit_stop_the_run(nodes: dict[int, Respond], what: str) -> None:
    link, _, _ = _link(nodes, {0, 1})
    with pytest.raises(RunError, match=what):
        _assemble(link)


def _charged(wall: float, worked: list[dict[str, float]], side_by_side: int | None) -> dict[str, float]:
    watch = Stopwatch()
    charge: Callable[..., None] = timed(watch, side_by_side)
    charge(wall, worked)
    return {stage: seconds for stage, seconds in watch.seconds.items() if seconds}


def test_nodes_that_work_at_once_take_as_long_as_the_longest() -> None:
    worked = [{"train": 3.0, "protect": 1.0}, {"train": 1.0, "protect": 1.0}]
    spent = _charged(5.0, worked, None)
    assert spent == pytest.approx({"train": 4 * 4 / 6, "protect": 4 * 2 / 6, "travel": 1.0})


def test_nodes_that_take_turns_take_their_sum_over_how_many_fit() -> None:
    spent = _charged(10.0, [{"train": 1.0}] * 16, 2)
    assert spent == pytest.approx({"train": 8.0, "travel": 2.0})


def test_no_more_is_charged_than_the_trip_took() -> None:
    assert _charged(1.0, [{"train": 5.0}], None) == pytest.approx({"train": 1.0})
    assert _charged(1.0, [], None) == {"travel": 1.0}
