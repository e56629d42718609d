"""A run in the terminal: a live table on a TTY, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tacit.report.page import terminal
from tacit.report.run.summary import ending
from tacit.report.words import STAGES, bytes_text, cohort_text, percent, seconds_text
from tacit.runs.result import Result, RoundRecord

_NOTABLE = 0.05
_ROWS = 12  # rounds the live table shows; earlier ones are summed up in a line


class TerminalObserver:
    """Shows rounds as they come.

    Args:
        console: where to print; a console that is not a terminal gets one line per round.
        quiet: say nothing but the end.
        units: what a round's bar counts.
    """

    def __init__(self, console: Console, *, quiet: bool = False, units: str = "clients") -> None:
        self._console = console
        self._quiet = quiet
        self._units = units
        self._live: Live | None = None
        self._records: list[RoundRecord] = []
        self._rounds = 0
        self._title = ""
        self._replied = self._asked = 0
        self._began = time.monotonic()

    def note(self, text: str) -> None:
        """Print a note."""
        if not self._quiet:
            self._console.print(Text(text, style="yellow"))

    def started(self, *, title: str, rounds: int, done: tuple[RoundRecord, ...]) -> None:
        """Open the live table, or print the heading."""
        self._title, self._rounds, self._records = title, rounds, list(done)
        self._began = time.monotonic()
        if self._quiet:
            return
        if self._console.is_terminal:
            self._live = Live(self._view(), console=self._console, refresh_per_second=8, get_renderable=self._view)
            self._live.start()
        else:
            self._console.print(Text(title))
            if done:
                self._console.print(f"{len(done)} rounds done before")

    def progress(self, *, replied: int, asked: int) -> None:
        """Move the bar of the round in flight."""
        self._replied, self._asked = replied, asked

    def round_done(self, record: RoundRecord) -> None:
        """Add a row, or print a line."""
        self._records.append(record)
        self._replied = 0
        if not self._quiet and self._live is None:
            self._console.print(_line(record, self._rounds))

    def finished(self, result: Result) -> None:
        """Close the table and print what came of it."""
        self.stop()
        if not self._quiet:
            self._console.print(Text(""))
            self._console.print(terminal.parts(ending(result)))

    def stop(self) -> None:
        """Leave the table as it stands; also after an error or Ctrl-C."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _view(self) -> Group:
        return Group(rounds_table(self._title, self._records), self._bar())

    def _bar(self) -> Table | Text:
        done = len(self._records)
        if done >= self._rounds:
            return Text("")
        grid = Table.grid(padding=(0, 1))
        share = self._replied / self._asked if self._asked else 0.0
        elapsed = time.monotonic() - self._began
        fresh = [record.wall_seconds for record in self._records[-5:] if record.wall_seconds is not None]
        left = (self._rounds - done - share) * sum(fresh) / len(fresh) if fresh else None
        words = f"round {done + 1}/{self._rounds}  "
        if self._asked:
            words += f"{self._replied}/{self._asked} {self._units}  "
        words += seconds_text(elapsed)
        if left is not None:
            words += f", about {seconds_text(max(left, 0.0))} left"
        grid.add_row(ProgressBar(total=self._rounds, completed=done + share, width=30), words)
        return grid


def rounds_table(title: str, records: list[RoundRecord]) -> Table:
    """Return the table of rounds, the last ones where there are many."""
    earlier = len(records) - _ROWS
    caption = f"{earlier} earlier rounds not shown" if earlier > 0 else None
    table = Table(title=Text(title, style="bold"), title_justify="left", caption=caption, box=None, pad_edge=False)
    if any(record.steps is not None for record in records):
        return _steps_table(table, records)
    stages = _stages(records) if all(record.seconds for record in records) else []
    narrow = len(stages) > 2  # more columns than these would not fit 80 characters
    names = ("accuracy", "up") if narrow else ("train loss", "test loss", "accuracy", "up", "down")
    for name in ("round", "clients", *names, *stages):
        table.add_column("test" if narrow and name == "evaluate" else name, justify="right", header_style="dim")
    for r in records[-_ROWS:]:
        table.add_row(
            str(r.round),
            cohort_text(r),
            *(() if narrow else (_number(r.train_loss), _number(r.test_loss))),
            Text(percent(r.test_accuracy), style="bold green"),
            bytes_text(r.bytes_up),
            *(() if narrow else (bytes_text(r.bytes_down),)),
            *(seconds_text(r.seconds.get(stage, 0.0)) for stage in stages),
        )
    return table


def _stages(records: Sequence[RoundRecord]) -> list[str]:
    """Return the stages worth a column: training, evaluation, and what took a twentieth of the time."""
    whole = sum(record.lasted for record in records)
    spent = {stage: sum(record.seconds.get(stage, 0.0) for record in records) for stage in STAGES}
    return [stage for stage in STAGES if stage in ("train", "evaluate") or spent[stage] > _NOTABLE * whole]


def _steps_table(table: Table, records: list[RoundRecord]) -> Table:
    """Fill the table of one data holder that trains alone."""
    for name in ("step", "train loss", "test loss", "accuracy", "epsilon", "train", "evaluate"):
        table.add_column(name, justify="right", header_style="dim")
    for r in records[-_ROWS:]:
        table.add_row(
            f"{r.steps:,}",
            _number(r.train_loss),
            _number(r.test_loss),
            Text(percent(r.test_accuracy), style="bold green"),
            _number(r.epsilon),
            seconds_text(r.seconds["train"]),
            seconds_text(r.seconds["evaluate"]),
        )
    return table


def _line(r: RoundRecord, rounds: int) -> str:
    took = "" if r.wall_seconds is None else f"  {seconds_text(r.wall_seconds)}"
    if r.steps is not None:
        return (
            f"step {r.steps}  train loss {_number(r.train_loss)}  test loss {_number(r.test_loss)}  "
            f"accuracy {percent(r.test_accuracy)}  epsilon {_number(r.epsilon)}{took}"
        )
    return (
        f"round {r.round}/{rounds}  clients {cohort_text(r)}  train loss {_number(r.train_loss)}  "
        f"test loss {_number(r.test_loss)}  accuracy {percent(r.test_accuracy)}  up {bytes_text(r.bytes_up)}{took}"
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
