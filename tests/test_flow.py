from __future__ import annotations

from collections.abc import Sequence

import pytest

from tacit.errors import WireError
from tacit.flow import STAGES, ClientId, Engine, Flow, Frames, Gather, InProcessEngine, Stopwatch, Traffic, drive, only


def _two_trips(cohort: Sequence[ClientId]) -> Flow[list[tuple[int, bytes]]]:
    first = yield dict.fromkeys(cohort, b"one")
    second = yield dict.fromkeys(first, b"three")
    return sorted(second.items())


def _echo(requests: Frames) -> Frames:
    return {client: request + bytes([client]) for client, request in requests.items()}


def test_a_flow_is_pumped_to_its_result_and_its_bytes_are_counted() -> None:
    traffic = Traffic()
    result = drive(_two_trips([4, 2]), InProcessEngine(answer=_echo), traffic)
    assert result == [(2, b"three\x02"), (4, b"three\x04")]
    assert (traffic.bytes_down, traffic.bytes_up) == (2 * 3 + 2 * 5, 2 * 4 + 2 * 6)


def test_a_missing_reply_is_a_drop_out() -> None:
    engine = InProcessEngine(answer=lambda requests: {c: r for c, r in _echo(requests).items() if c != 2})
    assert drive(_two_trips([1, 2, 3]), engine) == [(1, b"three\x01"), (3, b"three\x03")]


def test_flows_compose() -> None:
    def outer() -> Flow[int]:
        inner = yield from _two_trips([1])
        more = yield {7: b""}
        return len(inner) + len(more)

    assert drive(outer(), InProcessEngine(answer=_echo)) == 2


def test_a_flow_without_a_trip_returns_at_once() -> None:
    closed: list[int] = []

    def silent() -> Flow[str]:
        if closed:
            yield {}
        return "done"

    def never(requests: Frames) -> Frames:
        raise AssertionError

    assert drive(silent(), InProcessEngine(answer=never)) == "done"


def test_a_reply_from_somebody_who_was_not_asked_is_refused() -> None:
    engine = InProcessEngine(answer=lambda requests: {**_echo(requests), 99: b"me too"})
    with pytest.raises(WireError, match=r"\[99\]"):
        drive(_two_trips([1, 2]), engine)


@pytest.mark.parametrize("where", ["engine", "flow"])
def test_an_error_closes_the_flow_and_passes(where: str) -> None:
    closed = []

    def careful() -> Flow[None]:
        try:
            yield {1: b""}
            raise KeyError("flow")
        finally:
            closed.append(True)

    def answer(requests: Frames) -> Frames:
        if where == "engine":
            raise KeyError("engine")
        return requests

    flow = careful()  # held here, so that only drive() can have closed it
    with pytest.raises(KeyError, match=where):
        drive(flow, InProcessEngine(answer=answer))
    assert closed == [True]


class _Streaming:
    """Hands replies over as they come where it may, in reverse order."""

    name = "streaming"

    def exchange(self, requests: Frames) -> Frames:
        replies = {client: request * 2 for client, request in reversed(list(requests.items()))}
        if not isinstance(requests, Gather):
            return replies
        for client, reply in replies.items():
            requests.receive(client, reply)
        return {}


class _Waiting:
    """Knows nothing of gathering."""

    name = "waiting"

    def exchange(self, requests: Frames) -> Frames:
        return {client: request * 2 for client, request in requests.items()}


@pytest.mark.parametrize("engine", [_Streaming(), _Waiting()], ids=["streaming", "waiting"])
def test_gathered_replies_are_taken_one_by_one_and_counted_once(engine: Engine) -> None:
    taken: dict[int, bytes] = {}

    def flow() -> Flow[str]:
        left = yield Gather({1: b"ab", 2: b"cde", -1: b"key"}, taken.__setitem__)
        assert left == {}
        replies = yield {1: b"x"}
        assert replies == {1: b"xx"}
        return "done"

    traffic = Traffic()
    assert drive(flow(), engine, traffic) == "done"
    assert taken == {1: b"abab", 2: b"cdecde", -1: b"keykey"}
    assert (traffic.bytes_down, traffic.bytes_up, traffic.bytes_holders) == (6, 12, 9)


def test_a_gathered_reply_from_somebody_who_was_not_asked_is_refused() -> None:
    class Inventing:
        name = "inventing"

        def exchange(self, requests: Frames) -> Frames:
            assert isinstance(requests, Gather)
            requests.receive(99, b"me too")
            return {}

    def flow() -> Flow[None]:
        yield Gather({1: b"ab"}, taken.__setitem__)

    taken: dict[int, bytes] = {}
    with pytest.raises(WireError, match="Client 99 answered"):
        drive(flow(), Inventing())
    assert not taken


def test_some_of_gathered_requests_are_still_gathered() -> None:
    taken: dict[int, bytes] = {}
    some = only(Gather({1: b"a", 2: b"b", 3: b"c"}, taken.__setitem__), [1, 3])
    assert dict(some) == {1: b"a", 3: b"c"}
    assert isinstance(some, Gather)
    some.receive(1, b"reply")
    assert taken == {1: b"reply"}
    assert not isinstance(only({1: b"a", 2: b"b"}, [2]), Gather)


def test_the_in_process_engine_asks_nobody_for_no_request() -> None:
    def never(requests: Frames) -> Frames:
        raise AssertionError

    engine = InProcessEngine(answer=never)
    assert engine.exchange({}) == {}
    assert engine.name == "in-process"


def test_the_whole_batch_is_handed_over_at_once() -> None:
    seen = []

    def answer(requests: Frames) -> Frames:
        seen.append(dict(requests))
        return {1: b"yes"}

    engine: Engine = InProcessEngine(answer=answer)
    assert engine.exchange({1: b"a", 2: b"b"}) == {1: b"yes"}
    assert seen == [{1: b"a", 2: b"b"}]


def test_stages_add_up_and_start_again() -> None:
    watch = Stopwatch()
    watch.add("train", 1.5)
    watch.add("train", 0.5)
    watch.add("protect", 1.0)
    assert watch.seconds == dict.fromkeys(STAGES, 0.0) | {"train": 2.0, "protect": 1.0}
    watch.restart()
    assert set(watch.seconds) == set(STAGES)
    assert not any(watch.seconds.values())


def test_a_block_is_charged_even_where_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([10.0, 13.0])
    monkeypatch.setattr("tacit.flow.time.perf_counter", lambda: next(ticks))
    watch = Stopwatch()
    with pytest.raises(KeyError), watch.measure("evaluate"):
        raise KeyError
    assert watch.seconds["evaluate"] == 3.0
