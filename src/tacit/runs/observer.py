"""What a run tells whoever watches it."""

from __future__ import annotations

from typing import Protocol

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
