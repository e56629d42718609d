"""A run's progress as lines, for a server without a terminal."""

from __future__ import annotations

from tacit.errors import TacitError
from tacit.report.words import cohort_text, percent
from tacit.rounding import epsilon_text
from tacit.runs.result import Result, RoundRecord

# how the lines of a server begin, so that they are found in Flower's log
LINE, NOTE, ERROR = "tacit: ", "tacit note: ", "tacit error: "


class LoggingObserver:
    """Prints a line for each round and each thing the operator should know; Flower keeps what its apps print."""

    def note(self, text: str) -> None:
        """Print a note."""
        _say(NOTE, text)

    def doing(self, what: str, share: float | None = None) -> None:
        """Say nothing: the operator reads rounds."""

    def failed(self, error: TacitError) -> None:
        """Print why the run stopped; Flower's own account of it is a traceback."""
        _say(ERROR, str(error))

    def started(self, *, title: str, rounds: int, done: tuple[RoundRecord, ...]) -> None:
        """Print what begins."""
        more = f", {len(done)} done before" if done else ""
        _say(LINE, f"{title}: {rounds} rounds{more}")

    def progress(self, *, replied: int, asked: int) -> None:
        """Say nothing: one line per client would be too many."""

    def round_done(self, record: RoundRecord) -> None:
        """Print the round's line."""
        parts = [f"round {record.round}: {cohort_text(record).replace('/', ' of ')} clients"]
        if record.test_accuracy is not None:
            parts.append(f"accuracy {percent(record.test_accuracy)}")
        if record.epsilon is not None:
            parts.append(f"epsilon {epsilon_text(record.epsilon, digits=4)}")
        if record.wall_seconds is not None:
            parts.append(f"{record.wall_seconds:.1f} s")
        _say(LINE, ", ".join(parts))

    def finished(self, result: Result) -> None:
        """Print what came of it."""
        privacy = result.privacy
        if privacy is not None:
            spent = epsilon_text(privacy.epsilon, digits=4)
            _say(
                LINE,
                f"epsilon {spent} at delta {privacy.delta:g}, unit {privacy.unit}, {privacy.neighbours} "
                f"neighbours, against {privacy.against}",
            )
        _say(LINE, f"done: accuracy {percent(result.test_accuracy)}")


def _say(mark: str, text: str) -> None:
    print(f"{mark}{' '.join(text.split())}", flush=True)
