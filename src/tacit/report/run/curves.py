"""How a run learned: losses and accuracy."""

from __future__ import annotations

import csv
import io
from dataclasses import fields

from tacit.report.page import Download, Fold, Part, Row, Section, Series, Table, Text, bars, line
from tacit.report.run.baseline import Baseline
from tacit.report.words import keeps_training_scores, metrics_text, of_class, percent, places, shortened, stages
from tacit.runs.history import History
from tacit.runs.result import RoundRecord

_ON_TRAINING = ("train_loss", "train_accuracy", "train_data_loss")  # scores on the clients' own data


def section(history: History, *, full: bool, baseline: Baseline | None = None) -> Section:
    """Return the curves, and the same numbers as a table."""
    word, at = places(history)
    rounds = history.rounds
    if not rounds:
        return Section(title="Learning", parts=(Text(text="No round was finished."),))
    hidden = keeps_training_scores(history, full=full)
    losses = {
        "training loss": [None if hidden else record.train_loss for record in rounds],
        "test loss": [record.test_loss for record in rounds],
        "loss on the training data": [None if hidden else record.train_data_loss for record in rounds],
    }
    shown = {name: values for name, values in losses.items() if any(value is not None for value in values)}
    charts: list[Part] = []
    on_train = [None if hidden else record.train_accuracy for record in rounds]
    scored = any(value is not None for value in on_train)
    if any(record.test_accuracy is not None for record in rounds):
        series = [Series(name="test accuracy", x=at, y=[record.test_accuracy for record in rounds])]
        if scored:
            series.append(Series(name="on the training data", x=at, y=on_train))
        if baseline is not None and not history.alone:
            series.append(baseline.curve(style=2))
        chance = history.chance
        charts.append(
            line(
                title="Accuracy" if scored else "Test accuracy",
                series=series,
                x_title=word,
                y_title="accuracy",
                y_format=".2%",
                levels={} if chance is None else {f"chance ({percent(chance.share)})": chance.share},
            )
        )
    if shown:
        caption = ""
        if hidden:
            caption = "The training loss is left out: no noise protects it, and the data are the user's own."
        elif not shown.keys() & {"training loss", "loss on the training data"} and not history.alone:
            caption = "There is no training loss: in this mode no loss leaves a client."
        charts.append(
            line(
                title="Loss",
                series=[
                    Series(name=name, x=at, y=values, style=list(losses).index(name)) for name, values in shown.items()
                ],
                x_title=word,
                y_title="loss (mean cross-entropy)" if _cross_entropy(history) else "loss (mean)",
                caption=caption,
            )
        )
    parts: list[Part] = [Row(parts=charts)] if charts else [Text(text="No round was tested.")]
    rows, left_out = shortened(
        [
            (
                place,
                None if hidden else record.train_loss,
                record.test_loss,
                percent(record.test_accuracy),
                *((percent(right),) if scored else ()),
                record.attempts,
            )
            for place, record, right in zip(at, rounds, on_train, strict=True)
        ]
    )
    table = Table(
        columns=(
            word,
            "training loss",
            "test loss",
            "test accuracy",
            *(("training accuracy",) if scored else ()),
            "tries",
        ),
        rows=rows,
        align="r" * (6 if scored else 5),
        caption=left_out,
    )
    parts += _metrics(history)
    parts.append(Fold(summary="The numbers", parts=(table,)))
    parts.append(
        Download(label="All rounds as CSV", name=f"{history.name}-rounds.csv", text=rounds_csv(history, full=full))
    )
    return Section(title="Learning", parts=parts)


def _metrics(history: History) -> list[Part]:
    """Return what the test computed beside loss and accuracy: by round, and of each class at the end."""
    tested = [record for record in history.rounds if record.metrics]
    if not tested:
        return []
    word, at = places(history)
    last = tested[-1].metrics or {}
    classes = {name: value for metric, value in last.items() if (name := of_class(metric)) is not None}
    whole = [name for name in last if of_class(name) is None]
    charts: list[Part] = []
    if whole:
        curves = {name: [(record.metrics or {}).get(name) for record in history.rounds] for name in whole}
        charts.append(
            line(
                title="Metrics of the test data",
                series=[Series(name=name, x=at, y=values) for name, values in curves.items()],
                x_title=word,
                y_title="metric",
                caption=f"At the end: {metrics_text({name: last[name] for name in whole})}.",
            )
        )
    if classes:
        charts.append(
            bars(
                title="Test accuracy of each class",
                categories=list(classes),
                series={"accuracy": list(classes.values())},
                x_title="class",
                y_title="accuracy",
                y_format=".2%",
                caption="The share of each class that the model names right, at the end.",
            )
        )
    return [Row(parts=charts)]


def rounds_csv(history: History, *, full: bool) -> str:
    """Return every number of every round as CSV, seconds by stage included; what may not be told is empty."""
    hidden = keeps_training_scores(history, full=full)
    text = io.StringIO()
    names = [name.name for name in fields(RoundRecord) if name.name not in {"seconds", "metrics"}]
    spent = stages(history.rounds)
    metrics = list(dict.fromkeys(name for record in history.rounds for name in record.metrics or {}))
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*names, *metrics, *(f"seconds_{stage}" for stage in spent)])
    for record in history.rounds:
        told = [None if hidden and name in _ON_TRAINING else getattr(record, name) for name in names]
        told += [(record.metrics or {}).get(name) for name in metrics]
        writer.writerow([*told, *(record.seconds.get(stage) for stage in spent)])
    return text.getvalue()


def _cross_entropy(history: History) -> bool:
    """Runs on a named data set train with cross-entropy; data that were given may bring a loss of their own."""
    return bool(history.start.dataset) and not history.own_data
