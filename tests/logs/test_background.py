from __future__ import annotations

import threading
from collections.abc import Sequence

from tacit.logs.background import Background
from tacit.logs.log import About, Ending, Step

ABOUT = About(name="a", title="t", settings={}, config="", tags={}, folder=None)
END = Ending(status="finished", values={}, texts={})


class Told:
    """Remembers calls; fails or hangs at a round."""

    def __init__(self, *, fails: int = 0, hangs: threading.Event | None = None) -> None:
        self.calls: list[object] = []
        self._fails, self._hangs = fails, hangs

    def begin(self, about: About, done: Sequence[Step]) -> None:
        self.calls.append("begin")

    def step(self, step: Step) -> None:
        if self._hangs is not None:
            self._hangs.wait(30)
        if step.number == self._fails:
            raise OSError("no space\nleft")
        self.calls.append(step.number)

    def end(self, ending: Ending) -> None:
        self.calls.append("end")


def step(number: int) -> Step:
    return Step(number=number, at=0.0, values={})


def test_calls_come_in_order_and_the_end_waits_for_them() -> None:
    told = Told()
    log = Background(told, name="x")
    log.begin(ABOUT, ())
    for number in range(1, 100):
        log.step(step(number))
    log.end(END)
    assert told.calls == ["begin", *range(1, 100), "end"]
    assert log.failure() is None


def test_a_failure_is_told_once_and_ends_the_log() -> None:
    told = Told(fails=2)
    log = Background(told, name="x")
    log.begin(ABOUT, ())
    for number in (1, 2, 3):
        log.step(step(number))
    log.end(END)
    assert told.calls == ["begin", 1]
    assert log.failure() == "The log to x is not complete: it failed with OSError: no space. The run is not affected."
    assert log.failure() is None


def test_a_log_that_hangs_is_left_behind() -> None:
    release = threading.Event()
    log = Background(Told(hangs=release), name="x")
    log.begin(ABOUT, ())
    log.step(step(1))
    log.end(END, patience=0.05)
    assert "did not answer within 0.05 s" in str(log.failure())
    release.set()
