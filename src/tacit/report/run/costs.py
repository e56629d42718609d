"""What a run cost: seconds by stage, and bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tacit.report.page import Chart, Part, Row, Section, Series, Table, Text, bars, line
from tacit.report.words import bytes_text, places, seconds_text, stages
from tacit.runs import remarks
from tacit.runs.history import History
from tacit.runs.journal import Disclosure

_MEANING = {
    "train": "local training, all clients of a round",
    "protect": "noise, clipping, encryption and masks on the clients",
    "travel": "messages on their way",
    "aggregate": "adding up, and what the server does meanwhile",
    "recover": "decryption, masks taken off, noise on the server, the step of the model",
    "evaluate": "testing",
    "other": "journal, checkpoint, and what is in no other stage",
}
_MOST_BARS = 120  # more rounds than these are drawn as lines
_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))


def section(history: History) -> Section:
    """Return the charts of time and traffic with their totals."""
    if not history.rounds:
        return Section(title="Time and traffic", parts=(Text(text="No round was finished."),))
    charts: list[Part] = []
    tables: list[Part] = []
    if all(record.seconds for record in history.rounds):
        charts.append(_seconds(history))
    if totals := _totals(history):
        tables.append(_stage_table(history, totals))
    if not history.alone:
        if not history.secret_cohort:
            charts.append(_bytes(history))
        tables.append(_bytes_table(history))
    title = "Time" if history.alone else "Time and traffic"
    parts = [*([Row(parts=charts)] if charts else []), Row(parts=tables)]
    return Section(title=title, parts=[*parts, *(Text(text=note) for note in _notes(history))])


def _totals(history: History) -> dict[str, float]:
    """Return the seconds of all rounds by stage; of a run that has not ended only where each round's are told."""
    if history.result is not None:
        return {stage: seconds for stage, seconds in history.result.stage_seconds.items() if seconds}
    return {name: sum(record.seconds.get(name, 0.0) for record in history.rounds) for name in stages(history.rounds)}


def _notes(history: History) -> list[str]:
    """Return what has to be said of these numbers where privacy is claimed."""
    if not history.plan.private:
        return []
    said = [remarks.ON_SECONDS]
    if not Disclosure(plan=history.plan).seconds_by_round:
        said.append("Those of a single round are not told: they grow with its cohort.")
    return [*said, remarks.ON_COHORTS] if history.secret_cohort else said


def _seconds(history: History) -> Chart:
    word, at = places(history)
    names = stages(history.rounds)
    series = {name: [record.seconds.get(name, 0.0) for record in history.rounds] for name in names}
    scale, unit = (
        (1_000, "milliseconds") if max(map(sum, zip(*series.values(), strict=True)), default=0) < 1 else (1, "seconds")
    )
    scaled = {name: [value * scale for value in values] for name, values in series.items()}
    each = "stretch" if history.alone else "round"
    return _over_rounds(
        title="Time by stage", word=word, at=at, series=scaled, y_title=f"{unit} per {each}", stacked=True
    )


def _bytes(history: History) -> Chart:
    word, at = places(history)
    series = _traffic(history)
    most = max((value for values in series.values() for value in values), default=0)
    unit, size = next(((name, size) for name, size in _UNITS if most >= size), _UNITS[-1])
    scaled = {name: [value / size for value in values] for name, values in series.items()}
    return _over_rounds(title="Traffic", word=word, at=at, series=scaled, y_title=f"{unit} per round", stacked=False)


def _over_rounds(
    *, title: str, word: str, at: list[int], series: dict[str, list[float]], y_title: str, stacked: bool
) -> Chart:
    """Draw bars, or lines where there would be too many bars."""
    if len(at) <= _MOST_BARS:
        return bars(title=title, categories=at, series=series, x_title=word, y_title=y_title, stacked=stacked)
    return line(
        title=title,
        series=[Series(name=name, x=at, y=values) for name, values in series.items()],
        x_title=word,
        y_title=y_title,
        from_zero=True,
        stacked=stacked,
    )


def _traffic(history: History) -> dict[str, list[float]]:
    rounds = history.rounds
    series: dict[str, list[float]] = {
        "from clients (up)": [record.bytes_up for record in rounds],
        "to clients (down)": [record.bytes_down for record in rounds],
    }
    if any(record.bytes_holders for record in rounds):
        series["key holders"] = [record.bytes_holders for record in rounds]
    return series


def _stage_table(history: History, totals: Mapping[str, float]) -> Table:
    whole = sum(totals.values()) or 1.0
    meaning = _MEANING | ({"train": "training"} if history.alone else {})
    rows = [
        (name, seconds_text(seconds), f"{seconds / whole:.1%}", meaning.get(name, ""))
        for name, seconds in totals.items()
    ]
    return Table(columns=("stage", "total", "share", "what it is"), rows=rows, align="lrrl")


def _bytes_table(history: History) -> Table:
    rounds = history.rounds
    answers = {
        "from clients (up)": sum(record.senders for record in rounds),
        "to clients (down)": sum(record.receivers for record in rounds),
    }
    rows = [
        (name, bytes_text(sum(values)), bytes_text(_mean(values)), _each(sum(values), answers.get(name)))
        for name, values in _traffic(history).items()
    ]
    return Table(columns=("traffic", "total", "per round", "per client per round"), rows=rows, align="lrrr")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _each(total: float, clients: float | None) -> str:
    return bytes_text(total / clients) if clients else "–"
