"""What a run tells whoever watches it."""

from __future__ import annotations

import sys
import threading
import time
from typing import Protocol, TextIO

from tacit.runs.result import Result, RoundRecord


class Observer(Protocol):
    """Watches a run; the terminal is one, a test another."""

    def note(self, text: str) -> None:
        """Something the user should know, said once."""
        ...

    def doing(self, what: str) -> None:
        """Something that takes a while begins, such as loading data or a test; it lasts until the next word."""
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

    def doing(self, what: str) -> None:
        """Say nothing."""

    def started(self, *, title: str, rounds: int, done: tuple[RoundRecord, ...]) -> None:
        """Say nothing."""

    def progress(self, *, replied: int, asked: int) -> None:
        """Say nothing."""

    def round_done(self, record: RoundRecord) -> None:
        """Say nothing."""

    def finished(self, result: Result) -> None:
        """Say nothing."""


_EVERY = 2.0  # seconds after which a round in flight says how far it is


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

    def doing(self, what: str) -> None:
        """Say nothing: a line per step would be many."""

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
