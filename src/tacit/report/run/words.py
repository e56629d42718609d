"""Sentences that several sections of a run's report share."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tacit.runs.history import History
from tacit.runs.levels import Level
from tacit.runs.result import RoundRecord

MOST_ROWS = 1_000  # of a long table; the page stays small
_STAGES = ("train", "protect", "travel", "aggregate", "recover", "evaluate")


def places(history: History) -> tuple[str, list[int]]:
    """Return what the horizontal axis counts, and where each round stands on it."""
    if history.alone:
        return "step", [record.steps or record.round for record in history.rounds]
    return "round", [record.round for record in history.rounds]


def keeps_training_scores(history: History, *, full: bool) -> bool:
    """Return whether scores on the training data stay out: no noise protects them, and the data are not public."""
    return history.own_data and bool(history.levels) and not full


def number_text(value: float | None) -> str:
    """Return an epsilon or a noise for people.

    >>> number_text(4.88046), number_text(1234.6), number_text(None)
    ('4.880', '1,235', 'infinite')
    """
    if value is None:
        return "infinite"
    return f"{value:.4g}" if value >= 1_000_000 else f"{value:,.0f}" if value >= 1_000 else f"{value:#.4g}"


def short(value: float) -> str:
    """Return a setting as a person would write it.

    >>> short(1e-5), short(8.0)
    ('1e-5', '8')
    """
    return f"{value:g}".replace("e-0", "e-")


def guarantee(level: Level) -> str:
    """Return what belongs to an epsilon: delta, unit, neighbours, and against whom it holds."""
    privacy = level.privacy
    delta = short(privacy.delta or 0.0)
    return f"delta {delta}, unit: {privacy.unit}, neighbours: {privacy.neighbours}, against {privacy.against}"


def without_names(text: str) -> str:
    """Return a sentence that does not say which client it is about.

    >>> without_names("Epsilon is that of the worst of 40 clients (client 7); client 12 failed.")
    'Epsilon is that of the worst of 40 clients; a client failed.'
    """
    return re.sub(r"\b[Cc]lient \d+\b", "a client", re.sub(r" \(client \d+\)", "", text))


def stages(rounds: Sequence[RoundRecord]) -> list[str]:
    """Return the stages that took time, in the order of a round; unknown ones come last."""
    known = [*_STAGES, *sorted({stage for record in rounds for stage in record.seconds} - {*_STAGES})]
    return [stage for stage in known if any(record.seconds.get(stage) for record in rounds)]


def shortened(rows: Sequence[tuple[object, ...]]) -> tuple[list[tuple[object, ...]], str]:
    """Return the rows of a long table that are shown, and the sentence on those that are not."""
    if len(rows) <= MOST_ROWS:
        return list(rows), ""
    half = MOST_ROWS // 2
    return [*rows[:half], *rows[-half:]], f"The first and the last {half:,} of {len(rows):,} rows."
