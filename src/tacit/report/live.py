"""A run in the terminal: a row per round that stays, and below the rows a bar that moves within a round."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tacit.report.page import terminal
from tacit.report.run.summary import ending
from tacit.report.words import bytes_text, cohort_text, of_class, percent, seconds_text
from tacit.rounding import epsilon_text
from tacit.runs.result import Result, RoundRecord

_NEARLY = 0.97  # of a round is the most that a guess by the clock shows: only its end ends it
_RECENT = 5  # rounds that say how long the next one takes
_BAR = 30  # letters


@dataclass(frozen=True, kw_only=True)
class _Column:
    """A column of the table of rounds; those of a lower rank go first where the window is narrow."""

    name: str
    width: int
    text: Callable[[RoundRecord], str]
    rank: int = 9
    style: str = ""


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _train_loss(record: RoundRecord) -> float | None:
    """Return the mean loss while clients trained or, where they do not tell it, the model's on their data."""
    return record.train_data_loss if record.train_loss is None else record.train_loss


def _spent(record: RoundRecord) -> str:
    return "-" if record.epsilon is None else epsilon_text(record.epsilon)


def _took(record: RoundRecord) -> str:
    return "-" if record.wall_seconds is None else seconds_text(record.wall_seconds)


_SHARED = (
    _Column(name="train loss", width=10, text=lambda record: _number(_train_loss(record)), rank=2),
    _Column(name="test loss", width=9, text=lambda record: _number(record.test_loss), rank=4),
    _Column(name="accuracy", width=8, text=lambda record: percent(record.test_accuracy), style="bold green"),
    _Column(name="epsilon", width=8, text=_spent),
)
_TIME = _Column(name="time", width=10, text=_took, rank=3)
_COLUMNS = (
    _Column(name="round", width=5, text=lambda record: f"{record.round}"),
    _Column(name="clients", width=9, text=cohort_text, rank=5),
    *_SHARED,
    _Column(name="up", width=7, text=lambda record: bytes_text(record.bytes_up), rank=1),
    _TIME,
)
_ALONE = (_Column(name="step", width=7, text=lambda record: f"{record.steps or 0:,}"), *_SHARED, _TIME)
_ON_TRAIN = _Column(name="on train", width=8, text=lambda record: percent(record.train_accuracy))  # evaluate.train
_GAP = 2  # letters between columns
_METRICS = 3  # columns for metrics that were asked for; the end has all of them


class TerminalObserver:
    """Shows rounds as they come: the same columns in every mode, a dash where there is nothing to tell.

    Args:
        console: where to print; a console that is not a terminal gets one line per round and no bar.
        quiet: say nothing but the end.
        units: what a round's bar counts.
        clock: tells the seconds.
    """

    def __init__(
        self,
        console: Console,
        *,
        quiet: bool = False,
        units: str = "clients",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._quiet = quiet
        self._units = units
        self._clock = clock
        self._live: Live | None = None
        self._rounds = 0  # of the whole run; none before the first begins
        self._done = 0
        self._heads: tuple[_Column, ...] = ()  # whose heading stands above the rows
        self._scored = False  # whether a round was scored on the training data
        self._metrics: tuple[_Column, ...] = ()  # that were asked for
        self._doing = ""
        self._part: tuple[str, float] | None = None  # of the round in flight: what is computed, and how far it is
        self._spinner = Spinner("dots")
        self._replied = self._asked = 0
        self._began = self._round_began = clock()
        self._lasted: list[float] = []  # seconds of the rounds that were watched

    def note(self, text: str) -> None:
        """Print a note."""
        if not self._quiet:
            self._console.print(Text(text, style="yellow"))

    def doing(self, what: str, share: float | None = None) -> None:
        """Say what is going on until the next word, where there is a terminal; elsewhere lines are for what is done.

        What says how much of it is done has a bar of its own until it ends.
        """
        if share is None:
            self._doing, self._part = what, None
        else:
            self._part = (what, share) if share < 1.0 else None
        if not self._quiet and self._console.is_terminal:
            self._open()

    def started(self, *, title: str, rounds: int, done: tuple[RoundRecord, ...]) -> None:
        """Print the title and the rounds of an earlier session, and begin the bar."""
        self._rounds, self._done = rounds, len(done)
        self._began = self._round_began = self._clock()
        self._doing = ""
        if self._quiet:
            return
        self._console.print(Text(title, style="bold"))
        if not self._console.is_terminal:
            if done:
                self._console.print(f"{len(done)} rounds done before")
            return
        for record in done:
            self._row(record)
        self._open()

    def progress(self, *, replied: int, asked: int) -> None:
        """Move the bar of the round in flight."""
        self._replied, self._asked = replied, asked

    def round_done(self, record: RoundRecord) -> None:
        """Print the row of a round."""
        now = self._clock()
        self._lasted.append(now - self._round_began)
        self._round_began = now
        self._done += 1
        self._replied = 0
        if self._quiet:
            return
        if self._console.is_terminal:
            self._row(record)
        else:
            self._console.print(_line(record, self._rounds))

    def finished(self, result: Result) -> None:
        """Take the bar away and print what came of it."""
        self.stop()
        if not self._quiet:
            self._console.print(Text(""))
            self._console.print(terminal.parts(ending(result)))

    def stop(self) -> None:
        """Leave the rows as they stand; also after an error or Ctrl-C."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _open(self) -> None:
        if self._live is None:
            self._live = Live(
                self._view(), console=self._console, refresh_per_second=8, get_renderable=self._view, transient=True
            )
            self._live.start()

    def _row(self, record: RoundRecord) -> None:
        self._scored = self._scored or record.train_accuracy is not None
        self._metrics = self._metrics or _metrics(record)
        columns: tuple[_Column, ...] = _ALONE if record.steps is not None else _COLUMNS
        columns = (*columns, *self._metrics, *((_ON_TRAIN,) if self._scored else ()))
        columns = _fitting(columns, self._console.width)
        if columns != self._heads:  # at first, and where the first score on the training data comes later
            self._heads = columns
            self._console.print(_heading(columns))
        self._console.print(_cells(columns, record))

    def _view(self) -> RenderableType:
        if not 0 < self._rounds != self._done:
            self._spinner.text = Text(f"{self._doing} ...")
            return self._spinner if self._doing else Text("")
        return self._bar()

    def _bar(self) -> Table:
        share, known = self._share()
        words = f"round {self._done + 1}/{self._rounds}  "
        if 0 < self._replied < self._asked:
            words += f"{self._replied}/{self._asked} {self._units}  "
        elif self._doing:
            words += f"{self._doing}  "
        words += seconds_text(self._clock() - self._began)
        mean = self._mean()
        if mean is not None:
            words += f", about {seconds_text(max((self._rounds - self._done - share) * mean, 0.0))} left"
        grid = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=self._rounds, completed=self._done + share, width=_BAR, pulse=not known)
        grid.add_row(bar, words)
        part = self._part
        if part is not None:
            grid.add_row(ProgressBar(total=1.0, completed=part[1], width=_BAR), f"{part[0]}  {part[1]:.0%}")
        return grid

    def _mean(self) -> float | None:
        recent = self._lasted[-_RECENT:]
        return sum(recent) / len(recent) if recent else None

    def _share(self) -> tuple[float, bool]:
        """Return how much of the round in flight is done, by the replies or else by the clock, and whether it is known.

        Clients that train at once reply at once, and where cohorts are hidden nobody may know who replied: then the
        bar goes by how long the rounds before took.
        """
        counted = self._replied / self._asked if self._asked else 0.0
        mean = self._mean()
        if mean is None or mean <= 0.0:
            return counted, counted > 0.0
        return max(min(counted, 1.0), min((self._clock() - self._round_began) / mean, _NEARLY)), True


def _metrics(record: RoundRecord) -> tuple[_Column, ...]:
    """Return columns for the metrics that a test also computed; those of single classes come at the end."""

    def column(name: str) -> _Column:
        def text(record: RoundRecord) -> str:
            return _number((record.metrics or {}).get(name))

        return _Column(name=name, width=max(6, len(name)), text=text, rank=6)

    return tuple(column(name) for name in record.metrics or {} if of_class(name) is None)[:_METRICS]


def _cells(columns: tuple[_Column, ...], record: RoundRecord) -> Text:
    """Return the row of a round."""
    words = Text(no_wrap=True, overflow="crop")
    for place, column in enumerate(columns):
        words.append(" " * _GAP if place else "")
        words.append(f"{column.text(record):>{column.width}}", style=column.style)
    return words


def _heading(columns: tuple[_Column, ...]) -> Text:
    names = (" " * _GAP).join(f"{column.name:>{column.width}}" for column in columns)
    return Text(names, style="dim", no_wrap=True, overflow="crop")


def _fitting(columns: tuple[_Column, ...], width: int) -> tuple[_Column, ...]:
    """Return the columns that a window has room for."""
    while len(columns) > 1 and sum(column.width + _GAP for column in columns) - _GAP > width:
        least = min(columns, key=lambda column: column.rank)
        columns = tuple(column for column in columns if column is not least)
    return columns


def _line(record: RoundRecord, rounds: int) -> str:
    if record.steps is not None:
        return "  ".join([f"step {record.steps}", *_told((*_SHARED, *_metrics(record)), record), _took(record)])
    first = [f"round {record.round}/{rounds}", f"clients {cohort_text(record)}"]
    shown = (*_SHARED, *_metrics(record), *(() if record.train_accuracy is None else (_ON_TRAIN,)))
    return "  ".join([*first, *_told(shown, record), f"up {bytes_text(record.bytes_up)}", _took(record)])


def _told(columns: tuple[_Column, ...], record: RoundRecord) -> list[str]:
    return [f"{column.name} {column.text(record)}" for column in columns]
