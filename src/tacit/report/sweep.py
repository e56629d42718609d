"""A sweep as a page: its grid as a table, accuracy and epsilon as heat maps, surfaces and lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from tacit.report.page import (
    Axis,
    Cell,
    Chart,
    Heatmap,
    Lines,
    Note,
    Page,
    Panel,
    Part,
    Section,
    Series,
    Surface,
    Table,
    Text,
    Tone,
)
from tacit.report.words import percent, seconds_text, short, value_text
from tacit.rounding import epsilon_text
from tacit.studies import plan, sweep
from tacit.studies.sweep import Row, best, cells

PAGE = "sweep.html"
_TITLES = {
    "dp.clip": "clip bound C (dp.clip)",
    "dp.noise": "noise multiplier z (dp.noise)",
    "dp.epsilon": "budget epsilon (dp.epsilon)",
    "dp.delta": "delta (dp.delta)",
    "federate.rounds": "rounds",
    "federate.clients": "clients",
    "federate.per_round": "clients per round",
    "federate.drop": "drop-outs, share of clients",
    "optimizer.lr": "clients' learning rate (optimizer.lr)",
    "server.lr": "server's learning rate (server.lr)",
    "train.batch_size": "batch size, examples",
    "train.local_epochs": "local epochs",
}
_COLUMNS = 8  # of the table's grid; wider ones become a list
_LINES = 20  # of that list
_PANELS = 4  # heat maps of a sweep of three or more axes


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What a chart shows of a point; ``decades`` says whether a logarithmic scale suits it where it spans a decade."""

    value: Callable[[sweep.Cell], float | None]
    title: str
    axis: Axis
    text: Callable[[float], str]
    decades: bool = False


@dataclass(frozen=True, kw_only=True)
class Charts:
    """The charts of a sweep, and what was left out of them."""

    charts: tuple[Chart, ...]
    notes: tuple[str, ...]


def _share(title: str, value: Callable[[sweep.Cell], float | None]) -> Measure:
    axis = Axis(title=title.lower(), format=".1%")
    return Measure(value=value, title=title, axis=axis, text=lambda share: f"{share:.1%}")


TEST = _share("Test accuracy", lambda cell: cell.test_accuracy)
TRAIN = _share("Training accuracy", lambda cell: cell.train_accuracy)


def page(rows: Sequence[Row], axes: Sequence[plan.Axis], *, notes: Sequence[str] = ()) -> Page:
    """Return the page of a sweep; ``notes`` are what has to be said of its runs."""
    drawn = charts(rows, axes)
    failed = [Note(text=failure(row), tone="bad") for row in rows if row.error is not None]
    words = [Note(text=note) for note in dict.fromkeys((*notes, *drawn.notes))]
    keys = ", ".join(axis.key for axis in axes)
    sections = [Section(title="Grid", parts=(*parts(rows, axes), *failed, *words))]
    if drawn.charts:
        sections.append(Section(title="Charts", parts=drawn.charts))
    return Page(
        title="Sweep",
        subtitle=f"{len(cells(rows)):,} points over {keys}",
        sections=sections,
        foot="Made by `tacit sweep`. Every point is an ordinary run: `tacit report` and `tacit ledger` work on its "
        "folder.",
    )


def parts(rows: Sequence[Row], axes: Sequence[plan.Axis]) -> list[Part]:
    """Return the sweep as a table: a grid over two axes, otherwise a list of the best; the best is marked and named."""
    points = cells(rows)
    free = [axis for axis in axes if len(axis.values) > 1]
    top = best(points)
    if len(free) == 2 and len(free[1].values) <= _COLUMNS:
        shown: list[Part] = [_matrix(points, free, top)]
    else:
        shown = [_list(points, axes, top)]
    if top is not None:
        words = f"* best: {setting(top.values)}, test accuracy {percent(top.test_accuracy)}"
        if top.epsilon is not None:
            words += f", epsilon {epsilon_text(top.epsilon)} at delta {short(top.delta or 0.0)}"
        shown.append(Text(text=f"**{words}**"))
    return shown


def setting(values: Mapping[str, object]) -> str:
    """Return where a point is in the grid."""
    return ", ".join(f"{key}={value_text(value)}" for key, value in values.items())


def failure(row: Row) -> str:
    """Return the sentence on a point that failed."""
    return f"failed: {setting(row.values)}: {row.error}"


def charts(rows: Sequence[Row], axes: Sequence[plan.Axis]) -> Charts:
    """Return the charts that suit the number of axes; an axis of one value is not drawn."""
    points = cells(rows)
    free = [axis for axis in axes if len(axis.values) > 1]
    if not free:
        return Charts(charts=(), notes=("The sweep has one point; there is nothing to draw.",))
    accuracies = [measure for measure in (TEST, TRAIN) if _measured(points, measure)]
    epsilon = epsilon_measure(points)
    groups = {"accuracy": accuracies, "epsilon": [epsilon] if _measured(points, epsilon) else []}
    drawn: list[Chart] = []
    for name, measures in groups.items():
        if not measures:
            continue
        if len(free) == 1:
            drawn.append(replace(lines(points, free[0], measures), name=f"{name}-line"))
        elif len(free) == 2:
            drawn.append(replace(heat_maps(points, free, measures), name=f"{name}-heat"))
            if all(_numeric(axis) for axis in free):
                drawn.append(replace(surfaces(points, free, measures), name=f"{name}-surface"))
        else:
            drawn.append(replace(slices(points, free, measures[0]), name=f"{name}-heat"))
    return Charts(charts=tuple(drawn), notes=tuple(_left_out(points, free)))


def epsilon_measure(points: Sequence[sweep.Cell]) -> Measure:
    """Return epsilon as a measure, with its delta where all points share one."""
    deltas = {cell.delta for cell in points if cell.delta is not None}
    at = f" at delta {short(deltas.pop())}" if len(deltas) == 1 else ""
    axis = Axis(title=f"epsilon{at}", format=".3g")
    return Measure(value=lambda cell: cell.epsilon, title=f"Epsilon{at}", axis=axis, text=epsilon_text, decades=True)


def heat_maps(points: Sequence[sweep.Cell], axes: Sequence[plan.Axis], measures: Sequence[Measure]) -> Chart:
    """Return a heat map for each measure over two axes: the first upwards, the second to the right."""
    many = len(measures) > 1  # otherwise the chart's title says it
    panels = [_heat(points, axes, one, scale=points, title=one.title if many else "") for one in measures]
    return _side_by_side(measures, panels, height=_heat_height(axes))


def slices(points: Sequence[sweep.Cell], axes: Sequence[plan.Axis], measure: Measure) -> Chart:
    """Return heat maps of one measure over the first two axes, one for each value of the others (four at most)."""
    further = axes[2:]
    panels = []
    for values in list(product(*(axis.values for axis in further)))[:_PANELS]:
        fixed = dict(zip((axis.key for axis in further), values, strict=True))
        chosen = [cell for cell in points if all(cell.values[key] == value for key, value in fixed.items())]
        panels.append(_heat(chosen, axes[:2], measure, scale=points, title=setting(fixed)))
    return _side_by_side([measure], panels, height=_heat_height(axes))


def surfaces(points: Sequence[sweep.Cell], axes: Sequence[plan.Axis], measures: Sequence[Measure]) -> Chart:
    """Return a 3-D surface for each measure over two axes of numbers; a point that failed leaves a hole."""
    panels = []
    for measure in measures:
        heights = [[_finite(value) for value in row] for row in _grid(points, axes, measure)]
        drawing = Surface(
            x=[float(value) for value in axes[1].values], y=[float(value) for value in axes[0].values], z=heights
        )
        panels.append(
            Panel(
                drawing=drawing,
                x=_axis(axes[1]),
                y=_axis(axes[0]),
                z=_scaled(measure, points),
                title=measure.title if len(measures) > 1 else "",
            )
        )
    return _side_by_side(measures, panels, height=460)


def lines(points: Sequence[sweep.Cell], axis: plan.Axis, measures: Sequence[Measure]) -> Chart:
    """Return the measures over one axis, as lines with markers."""
    series = []
    for measure in measures:
        (heights,) = zip(*_grid(points, [axis], measure), strict=True)
        x = list(axis.values) if _numeric(axis) else [value_text(value) for value in axis.values]
        series.append(Series(name=measure.title.lower(), x=x, y=[_finite(value) for value in heights]))
    y = _scaled(measures[0], points)
    panel = Panel(
        drawing=Lines(series=series),
        x=replace(_axis(axis), names=not _numeric(axis)),
        y=y if len(measures) == 1 else replace(y, title="accuracy"),
    )
    return Chart(title=_title(measures), panels=[panel], height=380)


def _side_by_side(measures: Sequence[Measure], panels: Sequence[Panel], *, height: int) -> Chart:
    """Return panels next to each other, four as two by two."""
    across = 2 if len(panels) > 1 else 1
    down = -(-len(panels) // across)
    return Chart(title=_title(measures), panels=panels, across=across, height=60 + down * height)


def _title(measures: Sequence[Measure]) -> str:
    return " and ".join([measures[0].title, *(measure.title.lower() for measure in measures[1:])])


def _heat(
    points: Sequence[sweep.Cell],
    axes: Sequence[plan.Axis],
    measure: Measure,
    *,
    scale: Sequence[sweep.Cell],
    title: str,
) -> Panel:
    """Return one heat map; its colours span the numbers of ``scale``."""
    numbers = _grid(points, axes, measure)
    texts = [["failed" if value is None else measure.text(value) for value in row] for row in numbers]
    return Panel(
        drawing=Heatmap(
            x=[value_text(value) for value in axes[1].values],
            y=[value_text(value) for value in axes[0].values],
            z=[[_finite(value) for value in row] for row in numbers],
            texts=texts,
        ),
        x=Axis(title=_words(axes[1]), names=True),
        y=Axis(title=_words(axes[0]), names=True),
        z=_scaled(measure, scale),
        title=title,
    )


def _heat_height(axes: Sequence[plan.Axis]) -> int:
    return min(600, max(320, 40 * len(axes[0].values) + 100))


def _scaled(measure: Measure, points: Sequence[sweep.Cell]) -> Axis:
    """Return the measure's axis over all points, by factors where they span a decade and that suits it."""
    known = [value for cell in points if (value := _finite(measure.value(cell))) is not None]
    ends = (min(known), max(known)) if known else (0.0, 1.0)
    log = measure.decades and ends[1] > 10 * ends[0] > 0
    return replace(measure.axis, log=log, ends=ends if ends[0] < ends[1] else None)


def _grid(points: Sequence[sweep.Cell], axes: Sequence[plan.Axis], measure: Measure) -> list[list[float | None]]:
    """Return the measure by the axes' values, a row for each of the first; None where a point has none."""
    columns = axes[1].values if len(axes) > 1 else (None,)
    found = {tuple(repr(cell.values[axis.key]) for axis in axes): measure.value(cell) for cell in points if cell.runs}
    return [
        [found.get((repr(down), *([repr(across)] if len(axes) > 1 else []))) for across in columns]
        for down in axes[0].values
    ]


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _left_out(points: Sequence[sweep.Cell], free: Sequence[plan.Axis]) -> list[str]:
    notes = []
    if len(free) == 2 and not all(_numeric(axis) for axis in free):
        notes.append("No 3-D surface was drawn: an axis has values that are not numbers.")
    if any(not cell.runs or cell.epsilon == math.inf for cell in points):
        notes.append("A point that failed, or whose epsilon is infinite, is grey in a heat map and missing elsewhere.")
    further = math.prod(len(axis.values) for axis in free[2:])
    if further > 1:
        shown = f"the first {_PANELS} of {further}" if further > _PANELS else f"all {further}"
        keys = ", ".join(axis.key for axis in free[2:])
        notes.append(f"The heat maps are over {free[0].key} and {free[1].key}, {shown} values of {keys}.")
    return notes


def _measured(points: Sequence[sweep.Cell], measure: Measure) -> bool:
    return any(_finite(measure.value(cell)) is not None for cell in points)


def _numeric(axis: plan.Axis) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in axis.values)


def _axis(axis: plan.Axis) -> Axis:
    return Axis(title=_words(axis), log=_numeric(axis) and _logarithmic(axis), format=".3g")


def _logarithmic(axis: plan.Axis) -> bool:
    """Return whether an axis of numbers is spaced by factors rather than by distances."""
    values = np.sort(np.array(axis.values, dtype=float))
    if len(values) < 3 or values[0] <= 0:
        return False
    steps, factors = np.diff(values), np.diff(np.log(values))
    return bool(np.ptp(factors) / factors.mean() < np.ptp(steps) / steps.mean())


def _words(axis: plan.Axis) -> str:
    return _TITLES.get(axis.key, axis.key)


def _matrix(points: Sequence[sweep.Cell], axes: Sequence[plan.Axis], top: sweep.Cell | None) -> Table:
    found = {(repr(cell.values[axes[0].key]), repr(cell.values[axes[1].key])): cell for cell in points}
    rows: list[list[Cell]] = []
    tones: dict[tuple[int, int], Tone] = {}
    for down in axes[0].values:
        line: list[Cell] = [value_text(down)]
        for across in axes[1].values:
            cell = found.get((repr(down), repr(across)))
            if cell is None or not cell.runs:
                tones[len(rows), len(line)] = "bad"
                line.append("-" if cell is None else "failed")
                continue
            if cell is top:
                tones[len(rows), len(line)] = "good"
            epsilon = "" if cell.epsilon is None else f"\nε {epsilon_text(cell.epsilon)}"
            line.append(percent(cell.test_accuracy) + ("*" if cell is top else "") + epsilon)
        rows.append(line)
    claimed = " and epsilon" if any(cell.epsilon is not None for cell in points) else ""
    return Table(
        columns=("", *(value_text(value) for value in axes[1].values)),
        rows=rows,
        align="l" + "r" * len(axes[1].values),
        tones=tones,
        caption=f"Test accuracy{claimed}: {axes[0].key} down, {axes[1].key} across",
    )


def _list(points: Sequence[sweep.Cell], axes: Sequence[plan.Axis], top: sweep.Cell | None) -> Table:
    ranked = sorted(points, key=lambda cell: -1.0 if cell.test_accuracy is None else -2.0 - cell.test_accuracy)
    columns = (*(axis.key for axis in axes), "test accuracy", "train accuracy", "epsilon", "time")
    rows: list[tuple[Cell, ...]] = [
        (
            *(value_text(value) for value in cell.values.values()),
            percent(cell.test_accuracy) + ("*" if cell is top else "") if cell.runs else "failed",
            percent(cell.train_accuracy),
            None if cell.epsilon is None else epsilon_text(cell.epsilon),
            None if cell.seconds is None else seconds_text(cell.seconds),
        )
        for cell in ranked[:_LINES]
    ]
    best_row = [place for place, cell in enumerate(ranked[:_LINES]) if cell is top]
    tones: dict[tuple[int, int], Tone] = {
        (place, column): "good" for place in best_row for column in range(len(columns))
    }
    many = len(points) > _LINES
    return Table(
        columns=columns,
        rows=rows,
        align="r" * len(columns),
        tones=tones,
        caption=f"The best {_LINES} of {len(points):,} points" if many else "Points, the best first",
    )
