from __future__ import annotations

import pytest

from tacit.federated.stopwatch import STAGES, Stopwatch


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
    monkeypatch.setattr("tacit.federated.stopwatch.time.perf_counter", lambda: next(ticks))
    watch = Stopwatch()
    with pytest.raises(KeyError), watch.measure("evaluate"):
        raise KeyError
    assert watch.seconds["evaluate"] == 3.0
