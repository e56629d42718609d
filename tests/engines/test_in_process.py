from __future__ import annotations

from tacit.engines.in_process import InProcessEngine
from tacit.flow import Engine, Frames


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
