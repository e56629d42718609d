"""Numbers and facts of runs in words: the one place that decides how they are told."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tacit.report.page import Cell
    from tacit.runs.history import History
    from tacit.runs.result import RoundRecord

MOST_ROWS = 1_000  # of a long table; the page stays small
RELATIONS = {  # what two data sets differ in that are hard to tell apart, {} being a client or an example
    "add-remove": "one {} more or less: whether it was there at all is hidden",
    "replace-one": "one {} exchanged for another: whose data they were is hidden, how many there are is not",
    "zero-out": "one {} that contributed nothing: what it contributed is hidden, not that it took part",
}
_NAMES = 20  # of clients that are told in a line
STAGES = ("train", "protect", "travel", "aggregate", "recover", "evaluate")  # of a round, in its order


class Promised(Protocol):
    """What a claim says beside its epsilon, planned or reached."""

    @property
    def delta(self) -> float: ...  # noqa: D102  # their names say it
    @property
    def unit(self) -> str: ...  # noqa: D102 - the property's name says it
    @property
    def neighbours(self) -> str: ...  # noqa: D102 - the property's name says it
    @property
    def against(self) -> str: ...  # noqa: D102 - the property's name says it


def bytes_text(count: float) -> str:
    """Return a size.

    >>> bytes_text(873_870), bytes_text(12)
    ('874 kB', '12 B')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.3g} {unit}"


def seconds_text(seconds: float) -> str:
    """Return a duration.

    >>> seconds_text(0.0421), seconds_text(4.2), seconds_text(75)
    ('42 ms', '4.2 s', '1 min 15 s')
    """
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def time_text(time: str) -> str:
    """Return a moment of a journal.

    >>> time_text("2026-03-01T10:02:03+00:00")
    '2026-03-01 10:02:03 UTC'
    """
    return time.replace("T", " ").replace("+00:00", " UTC")


def cohort_text(record: RoundRecord) -> str:
    """Return how many clients a round had, as far as that may be told: those who replied of those who were asked."""
    if record.clients_asked is None:
        return f"about {record.clients_expected:.3g}"
    return (
        str(record.clients_asked)
        if record.clients_replied is None
        else f"{record.clients_replied}/{record.clients_asked}"
    )


def relation_text(neighbours: str | None, unit: str | None) -> str:
    """Return a neighbouring relation and what it hides.

    >>> relation_text("zero-out", "client")
    'zero-out (one client that contributed nothing: what it contributed is hidden, not that it took part)'
    """
    told = RELATIONS.get(neighbours or "")
    return str(neighbours) if told is None else f"{neighbours} ({told.format(unit)})"


def percent(share: float | None) -> str:
    """Return a share in percent, or a dash.

    >>> percent(0.98765), percent(None)
    ('98.77%', '-')
    """
    return "-" if share is None else f"{100 * share:.2f}%"


def value_text(value: object) -> str:
    """Return a setting's value.

    >>> value_text(0.30000000000000004), value_text("iid")
    ('0.3', 'iid')
    """
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def places(history: History) -> tuple[str, list[int]]:
    """Return what the horizontal axis counts, and where each round stands on it."""
    if history.alone:
        return "step", [record.steps or record.round for record in history.rounds]
    return "round", [record.round for record in history.rounds]


def metrics_text(metrics: Mapping[str, float]) -> str:
    """Return metrics and their numbers in a line.

    >>> metrics_text({"auc": 0.91234, "f1": 0.8})
    'auc 0.9123, f1 0.8000'
    """
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())


def names_text(names: Sequence[str]) -> str:
    """Return clients' names in a line, the first of them where they are many."""
    more = len(names) - _NAMES
    return ", ".join(names[:_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def of_class(metric: str) -> str | None:
    """Return the class that a metric is about, or None where it is about all of them.

    >>> of_class("accuracy of sick"), of_class("auc")
    ('sick', None)
    """
    what, _, name = metric.partition(" of ")
    return name if what == "accuracy" and name else None


def keeps_training_scores(history: History, *, full: bool) -> bool:
    """Return whether scores on the training data stay out: no noise protects them, and the data are not public."""
    return history.own_data and bool(history.levels) and not full


def short(value: float) -> str:
    """Return a setting as a person would write it.

    >>> short(1e-5), short(8.0)
    ('1e-5', '8')
    """
    return f"{value:g}".replace("e-0", "e-")


def guarantee(privacy: Promised) -> str:
    """Return what belongs to an epsilon: delta, unit, neighbours, and against whom it holds."""
    delta = short(privacy.delta)
    return f"delta {delta}, unit: {privacy.unit}, neighbours: {privacy.neighbours}, against {privacy.against}"


def without_names(text: str) -> str:
    """Return a sentence that does not say which client it is about.

    >>> without_names("Epsilon is that of the worst of 40 clients (client 7); client 12 failed.")
    'Epsilon is that of the worst of 40 clients; a client failed.'
    """
    return re.sub(r"\b[Cc]lient \d+\b", "a client", re.sub(r" \(client \d+\)", "", text))


def stages(rounds: Sequence[RoundRecord]) -> list[str]:
    """Return the stages that took time, in the order of a round; unknown ones come last."""
    known = [*STAGES, *sorted({stage for record in rounds for stage in record.seconds} - {*STAGES})]
    return [stage for stage in known if any(record.seconds.get(stage) for record in rounds)]


def shortened(rows: Sequence[tuple[Cell, ...]]) -> tuple[list[tuple[Cell, ...]], str]:
    """Return the rows of a long table that are shown, and the sentence on those that are not."""
    if len(rows) <= MOST_ROWS:
        return list(rows), ""
    half = MOST_ROWS // 2
    return [*rows[:half], *rows[-half:]], f"The first and the last {half:,} of {len(rows):,} rows."
