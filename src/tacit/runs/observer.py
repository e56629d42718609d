"""What a run tells whoever watches it."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable
from typing import Protocol, TextIO

from tacit.runs.result import Result, RoundRecord


class Observer(Protocol):
    """Watches a run; the terminal is one, a test another."""

    def note(self, text: str) -> None:
        """Something the user should know, said once."""
        ...

    def doing(self, what: str, share: float | None = None) -> None:
        """Something that takes a while begins, such as loading data or a test; it lasts until the next word.

        With ``share``, which may come from any thread, so much of it is done: from 0 to 1, which ends it.
        """
        ...

    def started(self, *, title: str, rounds: int, done: tuple[RoundRecord, ...]) -> None:
        """The first round begins; ``done`` are the rounds of an earlier session."""
        ...

    def progress(self, *, replied: int, asked: int) -> None:
        """A client of the round in flight has answered; may come from any thread."""
        ...

    def round_done(self, record: RoundRecord) -> None:
        """A round is complete and on disk."""
        ...

    def finished(self, result: Result) -> None:
        """The run is complete."""
        ...


class Silent:
    """Watches and says nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def doing(self, what: str, share: float | None = None) -> None:
        """Say nothing."""

    def started(self, *, title: str, rounds: int, done: tuple[RoundRecord, ...]) -> None:
        """Say nothing."""

    def progress(self, *, replied: int, asked: int) -> None:
        """Say nothing."""

    def round_done(self, record: RoundRecord) -> None:
        """Say nothing."""

    def finished(self, result: Result) -> None:
        """Say nothing."""


_LONG, _PAUSE = 2.0, 0.2  # seconds after which a computation is told of, and between two words of it
_EVERY = 2.0  # seconds after which a round in flight says how far it is
_SELDOM = 10.0  # and after which a computation of one client does


class Lines:
    """Prints a line per round: what a script or a notebook shows unless it asks for quiet.

    Lines go to standard error, so that what a script prints stays its own; a notebook's to its output.

    >>> Lines(sys.stdout).started(title="digits, mlp, 10 clients (iid)", rounds=3, done=())
    digits, mlp, 10 clients (iid): 3 rounds
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._rounds = 0
        self._done = 0
        self._spoke = time.monotonic()
        self._lock = threading.Lock()

    def note(self, text: str) -> None:
        """Print it."""
        self._say(text)

    def doing(self, what: str, share: float | None = None) -> None:
        """Print how far a long computation is; what has no end in sight is no line."""
        if share is not None and share < 1.0 and time.monotonic() - self._spoke > _SELDOM:
            self._say(f"round {self._done + 1}/{self._rounds}: {what}, {share:.0%}")

    def started(self, *, title: str, rounds: int, done: tuple[RoundRecord, ...]) -> None:
        """Print what runs."""
        self._rounds, self._done = rounds, len(done)
        self._say(f"{title}: {rounds} rounds" + (f", {len(done)} of them done before" if done else ""))

    def progress(self, *, replied: int, asked: int) -> None:
        """Print how far a long round is."""
        if time.monotonic() - self._spoke > _EVERY and replied < asked:
            self._say(f"round {self._done + 1}/{self._rounds}: {replied} of {asked} have answered")

    def round_done(self, record: RoundRecord) -> None:
        """Print the round."""
        self._done = record.round
        told = {
            "train loss": _number(record.train_loss),
            "test loss": _number(record.test_loss),
            "accuracy": None if record.test_accuracy is None else f"{record.test_accuracy:.1%}",
            "epsilon": _number(record.epsilon),
        }
        said = "  ".join(f"{name} {value}" for name, value in told.items() if value is not None)
        took = "" if record.wall_seconds is None else f"  {record.wall_seconds:.1f} s"
        self._say(f"round {record.round}/{self._rounds}  {said}{took}")

    def finished(self, result: Result) -> None:
        """Say nothing: the result is returned, and prints itself."""

    def _say(self, text: str) -> None:
        with self._lock:
            self._spoke = time.monotonic()
            print(text, file=self._stream or (sys.stdout if in_notebook() else sys.stderr), flush=True)


class Computing:
    """Tells an observer how far computations are that take longer than a moment; several threads may be at one.

    Args:
        observer: who watches.
        clock: tells the seconds.
    """

    def __init__(self, observer: Observer, clock: Callable[[], float] = time.monotonic) -> None:
        self._observer, self._clock = observer, clock
        self._lock = threading.Lock()
        self._at: dict[int, tuple[str, float, float]] = {}  # by thread: what, since when, how much is done
        self._spoke = -math.inf

    def __call__(self, what: str, share: float) -> None:
        """Take a thread's word; the mean of all threads at the same thing is told, and the end of the last of them."""
        thread, now = threading.get_ident(), self._clock()
        with self._lock:
            known = self._at.pop(thread, None)
            began = now if known is None or known[0] != what else known[1]
            if share < 1.0:
                self._at[thread] = what, began, share
            shares = [done for name, _, done in self._at.values() if name == what]
            if now - began < _LONG or (shares and now - self._spoke < _PAUSE):
                return
            self._spoke = now
        self._observer.doing(what, sum(shares) / len(shares) if shares else 1.0)


def in_notebook() -> bool:
    """Return whether this is a Jupyter kernel, whose standard error is shown as a warning."""
    return "ipykernel" in sys.modules


def watching(observer: Observer | None, *, quiet: bool) -> Observer:
    """Return the observer that was given, or lines, or silence where that was asked for."""
    if observer is not None:
        return observer
    return Silent() if quiet else Lines()


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.4f}"
