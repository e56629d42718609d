"""The report's first section: what a run reached, what it cost and who sees what."""

from __future__ import annotations

from tacit.report.page import Card, Cards, Cell, Note, Part, Section, Table
from tacit.report.words import (
    bytes_text,
    epsilon_text,
    guarantee,
    keeps_training_scores,
    percent,
    places,
    seconds_text,
    short,
    without_names,
)
from tacit.runs.history import History
from tacit.runs.remarks import ON_COHORTS, ON_SECONDS, ON_TRAINING

_WHO = {"server": "the server", "clients": "other clients", "outsider": "an outsider on the network"}


def section(history: History, *, full: bool) -> Section:
    """Return the summary."""
    parts: list[Part] = []
    if history.status != "finished":
        planned = (
            f"{len(history.rounds)} of {history.config.federate.rounds} {'stretches' if history.alone else 'rounds'}"
        )
        word = "The run stopped" if history.status == "stopped" else "The run has not ended"
        parts.append(Note(text=f"**{word}** after {planned}. {_told(history, history.reason, full=full)}", tone="warn"))
    parts.append(Cards(cards=(_accuracy(history, full=full), *_privacy(history), _time(history), *_traffic(history))))
    elsewhere = (ON_SECONDS, ON_COHORTS, ON_TRAINING)  # said where these numbers are
    parts += [Note(text=_told(history, note, full=full)) for note in history.notes if note not in elsewhere]
    parts.append(_facts(history))
    if not history.alone:
        sees = history.plan.guarantee
        rows = [(_WHO[who], getattr(sees, who)) for who in _WHO]
        parts.append(Table(columns=("who", "sees"), rows=rows, caption="Who sees what"))
    return Section(title="Summary", parts=parts)


def _told(history: History, text: str, *, full: bool) -> str:
    return without_names(text) if history.secret_cohort and not full else text


def _accuracy(history: History, *, full: bool) -> Card:
    result = history.result
    scores = [record.test_accuracy for record in history.rounds if record.test_accuracy is not None]
    details = [] if scores else ["no round was tested"]
    if result is not None and result.train_accuracy is not None and not keeps_training_scores(history, full=full):
        exact = ", which no noise protects" if history.plan.private else ""
        details.append(f"training data {percent(result.train_accuracy)}{exact}")
    return Card(
        label="test accuracy",
        value=percent(scores[-1]) if scores else "–",
        detail="; ".join(details),
        tone="good" if scores else "plain",
    )


def _privacy(history: History) -> list[Card]:
    if not history.levels:
        return [Card(label="differential privacy", value="none claimed", detail="epsilon is unbounded", tone="warn")]
    cards = []
    for level in history.levels:
        budget = "" if level.budget is None else f"of a budget of {short(level.budget)}; "
        cards.append(
            Card(
                label=f"epsilon for one {level.privacy.unit}",
                value=epsilon_text(level.privacy.epsilon, digits=4),
                detail=budget + guarantee(level.privacy),
                tone="warn" if level.privacy.epsilon is None or level.privacy.epsilon > 20 else "good",
            )
        )
    return cards


def _time(history: History) -> Card:
    told = [record.wall_seconds for record in history.rounds if record.wall_seconds is not None]
    seconds = history.result.seconds if history.result else sum(told) if len(told) == len(history.rounds) else None
    word, at = places(history)
    total = at[-1] if at else 0
    detail = f"{total:,} {word}{'' if total == 1 else 's'}"
    if history.result is not None:
        detail += f", and {seconds_text(history.result.setup_seconds)} set-up"
    return Card(label="time", value="–" if seconds is None else seconds_text(seconds), detail=detail)


def _traffic(history: History) -> list[Card]:
    if history.alone:
        return []
    up, down = (sum(getattr(record, name) for record in history.rounds) for name in ("bytes_up", "bytes_down"))
    replies = sum(record.senders for record in history.rounds)
    each = f"; {bytes_text(up / replies)} up for each answer" if replies else ""
    detail = f"{bytes_text(up)} up, {bytes_text(down)} down{each}"
    return [Card(label="traffic", value=bytes_text(up + down), detail=detail)]


def _facts(history: History) -> Table:
    config, start, result = history.config, history.start, history.result
    model = result.model if result else start.get("model", config.model.name)
    parameters = result.parameters if result else start.get("parameters")
    rows: list[tuple[Cell, ...]] = [
        ("mode", config.mode),
        ("data", _data(history)),
        ("model", f"{model}" + ("" if parameters is None else f", {parameters:,} parameters")),
    ]
    if not history.alone:
        sampler = history.plan.sampler
        every = "all in every round" if sampler.expected == history.clients else f"{sampler.expected:g} per round"
        if every.endswith("per round") and type(sampler).__name__ == "Poisson":
            every += " in the mean (Poisson sampling)"
        rows.append(("clients", f"{history.clients:,}, {every}; split: {config.data.split or 'given'}"))
    seeded = "a simulation: with the seed every draw can be repeated, the noise included"
    if "simulation" in start:
        drawn = f"seed {config.seed}, {seeded}" if start["simulation"] else "from the operating system"
        rows.append(("randomness", drawn))
    if "time" in start:
        rows.append(("began", str(start["time"]).replace("T", " ").replace("+00:00", " UTC")))
    return Table(columns=(), rows=rows)


def _data(history: History) -> str:
    name = history.start.get("dataset", history.config.data.name)
    words = "the user's own" if history.own_data else str(name)
    return f"{words}, {history.start['examples']:,} training examples" if "examples" in history.start else words
