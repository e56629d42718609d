"""A sweep's grid as a table in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tacit.report.words import epsilon_text, percent, seconds_text, value_text
from tacit.runs.grid import Axis
from tacit.runs.sweep import Cell, Row, best, cells

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_COLUMNS = 8  # of the grid; wider ones become a list
_LINES = 20  # of that list


def table(rows: Sequence[Row], axes: Sequence[Axis]) -> Group:
    """Return the sweep for the terminal: a grid over two axes, otherwise a list of the best; the best is marked."""
    from rich.console import Group
    from rich.text import Text

    points = cells(rows)
    free = [axis for axis in axes if len(axis.values) > 1]
    top = best(points)
    if len(free) == 2 and len(free[1].values) <= _COLUMNS:
        grid = _matrix(points, free, top)
        title = f"Test accuracy{_and_epsilon(points)}: {free[0].key} down, {free[1].key} across"
    else:
        grid = _list(points, axes, top)
        title = f"The best {_LINES} of {len(points):,} points" if len(points) > _LINES else "Points, the best first"
    parts: list[Any] = [Text(title), grid]
    if top is not None:
        words = f"* best: {', '.join(f'{key}={value_text(value)}' for key, value in top.values.items())}, "
        words += f"test accuracy {percent(top.test_accuracy)}"
        if top.epsilon is not None:
            words += f", epsilon {epsilon_text(top.epsilon)} at delta {top.delta:g}"
        parts.append(Text(words, style="bold green"))
    return Group(*parts)


def _matrix(points: Sequence[Cell], axes: Sequence[Axis], top: Cell | None) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, padding=(0, 2, 0, 0))
    grid.add_column("", style="dim", no_wrap=True)
    for value in axes[1].values:
        grid.add_column(value_text(value), justify="right", no_wrap=True, header_style="dim")
    found = {(repr(cell.values[axes[0].key]), repr(cell.values[axes[1].key])): cell for cell in points}
    for down in axes[0].values:
        line = []
        for across in axes[1].values:
            cell = found.get((repr(down), repr(across)))
            if cell is None or not cell.runs:
                line.append(Text("-" if cell is None else "failed", style="red"))
                continue
            text = Text(percent(cell.test_accuracy) + ("*" if cell is top else " "))
            text.stylize("bold green" if cell is top else "")
            if cell.epsilon is not None:
                text.append(f"\nε {epsilon_text(cell.epsilon)} ", style="dim")
            line.append(text)
        grid.add_row(value_text(down), *line)
    return grid


def _list(points: Sequence[Cell], axes: Sequence[Axis], top: Cell | None) -> Table:
    from rich.table import Table

    grid = Table(box=None, padding=(0, 2, 0, 0))
    for name in (*(axis.key for axis in axes), "test accuracy", "train accuracy", "epsilon", "time"):
        grid.add_column(name, justify="right", header_style="dim")
    ranked = sorted(points, key=lambda cell: -1.0 if cell.test_accuracy is None else -2.0 - cell.test_accuracy)
    for cell in ranked[:_LINES]:
        grid.add_row(
            *(value_text(value) for value in cell.values.values()),
            percent(cell.test_accuracy) + ("*" if cell is top else " ") if cell.runs else "failed ",
            percent(cell.train_accuracy),
            "-" if cell.epsilon is None else epsilon_text(cell.epsilon),
            "-" if cell.seconds is None else seconds_text(cell.seconds),
            style="bold green" if cell is top else "",
        )
    return grid


def _and_epsilon(points: Sequence[Cell]) -> str:
    return " and epsilon" if any(cell.epsilon is not None for cell in points) else ""
