"""Several ways to train the same thing: runs that can be gone on with, and what is shown of them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tacit.errors import RunError
from tacit.report.page import Chart, Row, Series, line
from tacit.runs.result import Result
from tacit.studies.plan import with_values
from tacit.studies.pool import finished, run_all, workers_for
from tacit_labs.harness.experiment import Progress

MEASURES = {  # of a round's record -> title, format
    "train_accuracy": ("Training accuracy", ".1%"),
    "test_accuracy": ("Test accuracy", ".1%"),
    "train_data_loss": ("Training loss", ".4g"),
    "test_loss": ("Test loss", ".4g"),
}


def learned(
    ways: Mapping[str, Mapping[str, Any]],
    folder: Path,
    *,
    what: str,
    progress: Progress,
    workers: int | None = None,
) -> dict[str, Result]:
    """Return the result of each way; those that an earlier session finished are read, those it began go on.

    Args:
        ways: the settings of each run by its name.
        folder: where the runs are kept.
        what: said to ``progress``.
        progress: is told of the rounds of all runs together.
        workers: how many run at once; by default one per core, or one on a GPU.
    """
    places = {
        name: folder / f"{index}-{zlib.crc32(repr(sorted(settings.items())).encode()):08x}"  # other settings, other run
        for index, (name, settings) in enumerate(ways.items())
    }
    done = {name: result for name, place in places.items() if (result := finished(place)) is not None}
    left = [name for name in ways if name not in done]
    rounds = {name: len(result.rounds) for name, result in done.items()}
    total = sum(int(settings["federate"]["rounds"]) for settings in ways.values())

    def on_round(index: int, number: int) -> None:
        rounds[left[index]] = number
        progress(f"{what}, rounds", done=sum(rounds.values()), total=total)

    if left:
        progress(f"{what}, rounds", done=sum(rounds.values()), total=total)
        at_once = workers_for(workers, ways[left[0]], len(left))
        runs = [with_values(ways[name], {"out": str(places[name])}) for name in left]
        with closing(run_all(runs, workers=at_once, on_round=on_round)) as outcomes:
            for outcome in outcomes:
                name = left[outcome.index]
                if outcome.result is None:
                    raise RunError(f"{what} ({name}) failed: {outcome.error}")
                done[name] = outcome.result
    return {name: done[name] for name in ways}


def local_sgd(*, epochs: int, batch: int, rate: float, momentum: float) -> dict[str, Any]:
    """Return how clients train by plain SGD at a constant rate, by dotted keys."""
    return {
        "train.local_epochs": epochs,
        "train.batch_size": batch,
        "optimizer.lr": rate,
        "optimizer.momentum": momentum,
        "optimizer.schedule": "constant",
    }


def upload(result: Result) -> float:
    """Return the bytes that a client sent up in a round, in the mean."""
    replies = sum(record.senders for record in result.rounds)
    return result.bytes_up / replies if replies else 0.0


def curves(
    results: Mapping[str, Result],
    *,
    title: str,
    measure: str,
    y_title: str,
    y_format: str,
    styles: Mapping[str, int],
    beside: Sequence[Series] = (),
) -> Chart:
    """Return a measure of the rounds, ``test_accuracy`` or ``test_loss``, a line per way in its own style.

    Lines that stand ``beside`` are those of a source.
    """
    series = list(beside)
    for name, result in results.items():
        seen = [(record.round, getattr(record, measure)) for record in result.rounds]
        known = [(number, value) for number, value in seen if value is not None]
        series.append(
            Series(name=name, x=[number for number, _ in known], y=[value for _, value in known], style=styles[name])
        )
    return line(title=title, series=series, x_title="round", y_title=y_title, y_format=y_format)


def four_curves(rounds: Mapping[str, Mapping[str, Sequence[float | None]]], *, styles: Mapping[str, int]) -> list[Row]:
    """Return accuracy and loss on the training and the test data over the rounds, as the reports draw them.

    Args:
        rounds: by way and measure, a value per round.
        styles: of each way.
    """
    charts = []
    for measure, (title, form) in MEASURES.items():
        series = [
            Series(name=name, x=list(range(1, len(known[measure]) + 1)), y=known[measure], style=styles[name])
            for name, known in rounds.items()
            if any(value is not None for value in known[measure])
        ]
        unit = "accuracy" if "accuracy" in measure else "mean cross-entropy"
        charts.append(line(title=title, series=series, x_title="round", y_title=unit, y_format=form))
    return [Row(parts=charts[:2]), Row(parts=charts[2:])]


def by_round(result: Result) -> dict[str, list[float | None]]:
    """Return accuracy and loss on both kinds of data, a value per round."""
    return {measure: [getattr(record, measure) for record in result.rounds] for measure in MEASURES}
