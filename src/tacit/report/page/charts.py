"""Charts as values: what is shown, on which axes, in which panels; the renderers draw them.

:func:`line`, :func:`points`, :func:`bars`, :func:`heatmap` and :func:`surface` make a chart of one panel from numbers
and the words for its axes. A :class:`Chart` of several panels is built from theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from tacit.report.page import thinning

Value = TypeVar("Value")
Numbers = Sequence[float | None]
_FEW = 12  # an axis that counts no further has a tick for every number


@dataclass(frozen=True, kw_only=True)
class Tick:
    """A place on an axis, and what is written there."""

    at: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis.

    Attributes:
        title: what it measures, with its unit.
        log: whether it is spaced by factors.
        root: whether colours are spaced by square roots, so that little can be seen beside much.
        format: how its numbers are written, as in Python and in d3: ``.4g``, ``.1%`` for shares, ``.3s`` for 12.3k.
        unit: stands behind the number of each tick.
        ends: where it begins and ends; as far as there is something to show otherwise.
        ticks: where it is marked, and with which words; wherever it suits otherwise.
        step: from one tick to the next, instead of ``ticks``; on a logarithmic axis in powers of ten.
        from_zero: whether it begins at zero.
        names: whether it holds names, in their order, and not numbers.
        downwards: whether it begins at the top.
    """

    title: str = ""
    log: bool = False
    root: bool = False
    format: str = ".4g"
    unit: str = ""
    ends: tuple[float, float] | None = None
    ticks: Sequence[Tick] = ()
    step: float | None = None
    from_zero: bool = False
    names: bool = False
    downwards: bool = False

    def text(self, value: float | str | None) -> str:
        """Return a number of this axis as it is written.

        >>> Axis(format=".1%").text(0.98765), Axis(format=".3s", unit="B").text(873_870), Axis().text(None)
        ('98.8%', '874kB', '–')
        """
        if value is None:
            return "–"
        if isinstance(value, str):
            return value
        if self.format.endswith("s"):
            return _prefixed(value, self.format) + self.unit
        return f"{round(value) if self.format.endswith('d') else value:{self.format}}{self.unit}"


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line, or one group of points.

    Attributes:
        name: in the legend.
        x: where the points are; None leaves a gap.
        y: how high they are.
        low: the lower edge of the band around the line, or of each point's error bar, and
        high: its upper edge.
        labels: a name for each point.
        style: which colour, dash and symbol; its place among the series otherwise.
        symbol: which symbol, where that says something else than the colour.
        hollow: whether the symbols are outlines.
        side: on which side of their points the labels stand.
    """

    name: str
    x: Sequence[float | str | None]
    y: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    labels: Sequence[str] | None = None
    style: int | None = None
    symbol: int | None = None
    hollow: bool = False
    side: Literal["left", "right"] = "right"


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Lines over x; ``stacked`` fills them one upon the other."""

    series: Sequence[Series]
    stacked: bool = False


@dataclass(frozen=True, kw_only=True)
class Key:
    """What a symbol means."""

    name: str
    symbol: int


@dataclass(frozen=True, kw_only=True)
class Points:
    """Points; where there are ``keys``, the legend explains symbols instead of naming the series."""

    series: Sequence[Series]
    keys: Sequence[Key] = ()


@dataclass(frozen=True, kw_only=True)
class BarSeries:
    """One bar for each category; ``low`` and ``high`` are the ends of its error bar."""

    name: str
    values: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    style: int | None = None


@dataclass(frozen=True, kw_only=True)
class Bars:
    """A group of bars, or a stack, for each category."""

    categories: Sequence[str | float]
    series: Sequence[BarSeries]
    stacked: bool = False
    horizontal: bool = False


@dataclass(frozen=True, kw_only=True)
class State:
    """What a cell stands for where a grid holds no amounts; ``colour`` is one of the theme's, such as ``series-1``."""

    name: str
    colour: str
    mark: str = ""


@dataclass(frozen=True, kw_only=True)
class Heatmap:
    """A grid of numbers as colours, or of places among ``states``.

    Attributes:
        x: the names of the columns.
        y: the names of the rows.
        z: a row for each y; None is a gap.
        texts: what is written in each cell.
        states: what the numbers of ``z`` stand for, where they are no amounts.
        edges: where one shade ends and the next begins, for renderers that have few; in equal steps otherwise.
    """

    x: Sequence[str]
    y: Sequence[str]
    z: Sequence[Numbers]
    texts: Sequence[Sequence[str]] = ()
    states: Sequence[State] = ()
    edges: Sequence[float] = ()


@dataclass(frozen=True, kw_only=True)
class Surface:
    """A surface in space; ``z`` has a row for each y, and None leaves a hole."""

    x: Sequence[float]
    y: Sequence[float]
    z: Sequence[Numbers]


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A line across a panel, such as a budget; ``upright`` stands at a place on the x axis."""

    name: str
    at: float
    upright: bool = False


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One pair of axes with what is drawn on them; ``z`` is the colour of a heat map or the height of a surface."""

    drawing: Lines | Points | Bars | Heatmap | Surface
    x: Axis = Axis()
    y: Axis = Axis()
    z: Axis = Axis()
    title: str = ""
    references: Sequence[Reference] = ()


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart: one panel, or several that belong together.

    Attributes:
        title: stands above it.
        panels: in the order in which they are read.
        across: how many panels stand side by side.
        widths: how wide the columns of panels are, in any unit; equal otherwise.
        shared: whether panels side by side have the same y axis, which is then written once.
        caption: stands below it.
        height: of all of it, in pixels.
        name: of its file, where it becomes one; from the title otherwise.
    """

    title: str
    panels: Sequence[Panel]
    across: int = 1
    widths: Sequence[float] = ()
    shared: bool = False
    caption: str = ""
    height: int = 360
    name: str = ""


def line(
    *,
    title: str,
    series: Sequence[Series],
    x_title: str,
    y_title: str,
    levels: Mapping[str, float] | None = None,
    y_format: str = ".4g",
    log_x: bool = False,
    log_y: bool = False,
    from_zero: bool = False,
    stacked: bool = False,
    caption: str = "",
    height: int = 360,
) -> Chart:
    """Return lines over x, with bands where series have ``low`` and ``high``.

    Args:
        title: stands above the chart.
        series: the lines.
        x_title: what x is, with its unit.
        y_title: what y is, with its unit.
        levels: horizontal lines across the chart by name, such as a budget.
        y_format: how heights are written (``.1%`` for shares).
        log_x: whether x is spaced by factors.
        log_y: whether y is.
        from_zero: whether y begins at zero.
        stacked: whether the lines lie one upon the other, filled.
        caption: stands below.
        height: in pixels.
    """
    counted = not log_x and _few_whole([value for one in series for value in one.x])
    shown = _thinned(series)
    if sum(len(one.x) for one in shown) < sum(len(one.x) for one in series):
        caption = f"{caption} Of so many points the highest and the lowest of each stretch are drawn.".lstrip()
    panel = Panel(
        drawing=Lines(series=shown, stacked=stacked),
        x=Axis(title=x_title, log=log_x, names=_named(series), step=1 if counted else None),  # there is no round 1.5
        y=Axis(title=y_title, log=log_y, format=y_format, from_zero=from_zero),
        references=[Reference(name=name, at=value) for name, value in (levels or {}).items()],
    )
    return Chart(title=title, panels=[panel], caption=caption, height=height)


def _thinned(series: Sequence[Series]) -> Sequence[Series]:
    """Return long lines by fewer points; those of one length keep the same ones."""
    lengths = {len(one.x) for one in series}
    if len(lengths) > 1:
        return [part for one in series for part in _thinned([one])]
    kept = thinning.places([one.y for one in series])
    if not series or len(kept) == len(series[0].x):
        return series

    def at(values: Sequence[Value]) -> list[Value]:
        return [values[place] for place in kept]

    return [
        replace(
            one,
            x=at(one.x),
            y=at(one.y),
            low=None if one.low is None else at(one.low),
            high=None if one.high is None else at(one.high),
            labels=None if one.labels is None else at(one.labels),
        )
        for one in series
    ]


def points(
    *,
    title: str,
    series: Sequence[Series],
    x_title: str,
    y_title: str,
    x_format: str = ".4g",
    y_format: str = ".4g",
    log_x: bool = False,
    log_y: bool = False,
    caption: str = "",
    height: int = 420,
) -> Chart:
    """Return points, each series with its symbol; ``low`` and ``high`` are error bars and ``labels`` stand beside."""
    panel = Panel(
        drawing=Points(series=series),
        x=Axis(title=x_title, log=log_x, format=x_format, names=_named(series)),
        y=Axis(title=y_title, log=log_y, format=y_format),
    )
    return Chart(title=title, panels=[panel], caption=caption, height=height)


def bars(
    *,
    title: str,
    categories: Sequence[str | float],
    series: Mapping[str, Numbers],
    y_title: str,
    x_title: str = "",
    stacked: bool = False,
    horizontal: bool = False,
    low: Mapping[str, Numbers] | None = None,
    high: Mapping[str, Numbers] | None = None,
    y_format: str = ".4g",
    log_y: bool = False,
    styles: Mapping[str, int] | None = None,
    levels: Mapping[str, float] | None = None,
    caption: str = "",
    height: int = 360,
) -> Chart:
    """Return bars: a group, or a stack, for each category; ``y`` is the length of a bar, also of a horizontal one.

    ``low`` and ``high`` by the series' names become error bars; ``styles`` by their names fixes colours, and
    ``levels`` are lines across the chart by name.
    """
    shown = [
        BarSeries(
            name=name,
            values=values,
            low=(low or {}).get(name),
            high=(high or {}).get(name),
            style=(styles or {}).get(name),
        )
        for name, values in series.items()
    ]
    across = Axis(
        title=x_title,
        names=any(isinstance(value, str) for value in categories),
        step=1 if _few_whole(categories) else None,
        downwards=horizontal,
    )
    along = Axis(title=y_title, log=log_y, format=y_format)
    panel = Panel(
        drawing=Bars(categories=categories, series=shown, stacked=stacked, horizontal=horizontal),
        x=along if horizontal else across,
        y=across if horizontal else along,
        references=[Reference(name=name, at=value) for name, value in (levels or {}).items()],
    )
    return Chart(title=title, panels=[panel], caption=caption, height=height)


def heatmap(
    *,
    title: str,
    x: Sequence[float | str],
    y: Sequence[float | str],
    z: Sequence[Numbers],
    x_title: str,
    y_title: str,
    z_title: str = "",
    z_format: str = ".4g",
    z_ends: tuple[float, float] | None = None,
    states: Sequence[State] = (),
    downwards: bool = False,
    caption: str = "",
    height: int = 380,
) -> Chart:
    """Return a grid of numbers as colours, light for little and dark for much (in the dark theme the other way)."""
    panel = Panel(
        drawing=Heatmap(x=[str(value) for value in x], y=[str(value) for value in y], z=z, states=states),
        x=Axis(title=x_title, names=True),
        y=Axis(title=y_title, names=True, downwards=downwards),
        z=Axis(title=z_title, format=z_format, ends=z_ends),
    )
    return Chart(title=title, panels=[panel], caption=caption, height=height)


def surface(
    *,
    title: str,
    x: Sequence[float],
    y: Sequence[float],
    z: Sequence[Numbers],
    x_title: str,
    y_title: str,
    z_title: str = "",
    z_format: str = ".4g",
    z_ends: tuple[float, float] | None = None,
    log_x: bool = False,
    log_y: bool = False,
    log_z: bool = False,
    caption: str = "",
    height: int = 460,
) -> Chart:
    """Return a surface in space; ``z`` has a row for each y, and ``z_ends`` puts several surfaces on one scale."""
    panel = Panel(
        drawing=Surface(x=x, y=y, z=z),
        x=Axis(title=x_title, log=log_x),
        y=Axis(title=y_title, log=log_y),
        z=Axis(title=z_title, log=log_z, format=z_format, ends=z_ends),
    )
    return Chart(title=title, panels=[panel], caption=caption, height=height)


def decades(chart: Chart, values: Iterable[float | None], *, axis: Literal["x", "y"] = "y") -> Chart:
    """Return a chart of one panel with a logarithmic axis over the whole decades that hold all values.

    It is marked at each power of ten and nowhere between.

    >>> chart = decades(bars(title="", categories=["a"], series={}, y_title="seconds"), [0.02, 30, None])
    >>> chart.panels[0].y.ends, [tick.text for tick in chart.panels[0].y.ticks]
    ((0.01, 100.0), ['0.01', '0.1', '1', '10', '100'])
    """
    logs = [math.log10(value) for value in values if value is not None and value > 0]
    low = math.floor(min(logs))
    high = max(math.ceil(max(logs)), low + 1)
    powers = [float(f"1e{exponent}") for exponent in range(low, high + 1)]  # 10.0**-2 is not quite 0.01
    ticks = [Tick(at=at, text=f"{at:,.0f}" if at >= 1 else f"{at:g}") for at in powers]
    (panel,) = chart.panels
    before = panel.x if axis == "x" else panel.y
    made = replace(before, log=True, ends=(powers[0], powers[-1]), ticks=ticks, step=None)
    return with_axes(chart, x=made) if axis == "x" else with_axes(chart, y=made)


def with_axes(chart: Chart, *, x: Axis | None = None, y: Axis | None = None) -> Chart:
    """Return a chart of one panel with other axes."""
    (panel,) = chart.panels
    return replace(chart, panels=[replace(panel, x=x or panel.x, y=y or panel.y)])


def _named(series: Sequence[Series]) -> bool:
    return any(isinstance(value, str) for one in series for value in one.x)


def _few_whole(values: Sequence[float | str | None]) -> bool:
    """Return whether an axis counts something, and not far: then every number gets its tick."""
    whole = [value for value in values if isinstance(value, int | float) and value == round(value)]
    return bool(whole) and len(whole) == len(values) and max(whole) - min(whole) <= _FEW


def _prefixed(value: float, form: str) -> str:
    """Return a number with the prefix of its thousands, as d3's ``s`` does."""
    for prefix in ("", "k", "M", "G"):
        if abs(value) < 999.5 or prefix == "G":
            break
        value /= 1000
    return f"{value:{form[:-1]}g}{prefix}"
