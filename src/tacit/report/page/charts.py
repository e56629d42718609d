"""Charts from numbers: each takes what it shows and the words for its axes, and returns a :class:`Chart`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.report.page import palette
from tacit.report.page.markup import plain
from tacit.report.page.parts import Chart

_MARKED = 60  # more points than these are a line without symbols
Numbers = Sequence[float | None]


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line, or one group of points.

    Attributes:
        name: in the legend.
        x: where the points are; None leaves a gap.
        y: how high they are.
        low: the lower edge of the band around the line, and
        high: its upper edge.
        labels: a name for each point.
        style: which colour, dash and symbol; its place among the series otherwise.
    """

    name: str
    x: Sequence[float | str | None]
    y: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    labels: Sequence[str] | None = None
    style: int | None = None


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
    caption: str = "",
    height: int = 360,
) -> Chart:
    """Draw lines over x, with bands where series have ``low`` and ``high``.

    Args:
        title: stands above the chart.
        series: the lines.
        x_title: what x is, with its unit.
        y_title: what y is, with its unit.
        levels: horizontal lines across the chart by name, such as a budget.
        y_format: how heights are written (d3's format; ``.1%`` for shares).
        log_x: whether x is spaced by factors.
        log_y: whether y is.
        from_zero: whether y begins at zero.
        caption: stands below.
        height: in pixels.
    """
    data: list[dict[str, Any]] = []
    for place, one in enumerate(series):
        style = place if one.style is None else one.style
        if one.low is not None and one.high is not None:
            data += _band(one, style)
        data.append(_line(one, style, y_format))
    layout = _axes(x_title, y_title, log_x=log_x, log_y=log_y, y_format=y_format)
    layout["hovermode"] = "x unified"
    if _few_whole([value for one in series for value in one.x]) and not log_x:
        layout["xaxis"]["dtick"] = 1  # there is no round 1.5
    if from_zero:
        layout["yaxis"]["rangemode"] = "tozero"
    if levels:
        ends = _ends(series)
        data += [_level(name, value, ends, y_format) for name, value in levels.items()]
    return Chart(title=title, data=data, layout=layout, caption=caption, height=height)


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
    """Draw points, each series with its symbol; ``low`` and ``high`` become error bars and ``labels`` stand beside."""
    data = []
    for place, one in enumerate(series):
        style = place if one.style is None else one.style
        labels = None if one.labels is None else [plain(label) for label in one.labels]
        trace: dict[str, Any] = {
            "type": "scatter",
            "mode": "markers" if labels is None else "markers+text",
            "name": plain(one.name),
            "x": list(one.x),
            "y": list(one.y),
            "marker": {"size": 11, "symbol": palette.symbol(style), "color": palette.colour(style)},
            "hovertemplate": f"%{{x:{x_format}}}, %{{y:{y_format}}}",
        }
        if labels is not None:
            trace |= {"text": labels, "textposition": "middle right", "cliponaxis": False}
        if one.low is not None and one.high is not None:
            trace["error_y"] = _errors(one.y, one.low, one.high) | {"color": palette.colour(style)}
        data.append(trace)
    layout = _axes(x_title, y_title, log_x=log_x, log_y=log_y, y_format=y_format)
    if x_format.endswith("%"):
        layout["xaxis"]["tickformat"] = ".2~%"
    layout["hovermode"] = "closest"
    if any(one.labels is not None for one in series):
        layout["margin"] = {"r": 80}  # room for the last point's label
        layout["showlegend"] = not all(one.labels is not None and set(one.labels) <= {one.name} for one in series)
    return Chart(title=title, data=data, layout=layout, caption=caption, height=height)


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
    caption: str = "",
    height: int = 360,
) -> Chart:
    """Draw bars: a group, or a stack, for each category; ``y`` is the length of a bar, also of a horizontal one.

    ``low`` and ``high`` by the series' names become error bars; ``styles`` by their names fixes colours.
    """
    data = []
    names = [plain(value) if isinstance(value, str) else value for value in categories]
    for place, (name, values) in enumerate(series.items()):
        style = (styles or {}).get(name, place)
        marker: dict[str, Any] = {"color": palette.colour(style), "line": {"width": 0.5, "color": "var(--panel)"}}
        if palette.pattern(style):
            marker["pattern"] = {"shape": palette.pattern(style), "fillmode": "overlay", "fgcolor": "var(--panel)"}
        along, across = ("x", "y") if horizontal else ("y", "x")
        trace: dict[str, Any] = {
            "type": "bar",
            "name": plain(name),
            across: names,
            along: list(values),
            "marker": marker,
            "hovertemplate": f"%{{{along}:{y_format}}}",
        }
        if horizontal:
            trace["orientation"] = "h"
        if low is not None and high is not None and name in low and name in high:
            trace[f"error_{along}"] = _errors(values, low[name], high[name]) | {"color": "var(--ink)"}
        data.append(trace)
    layout = _axes(x_title, y_title, log_y=log_y, y_format=y_format)
    if horizontal:
        layout["xaxis"], layout["yaxis"] = layout["yaxis"], layout["xaxis"] | {"autorange": "reversed"}
    layout |= {
        "barmode": "stack" if stacked else "group",
        "hovermode": "y unified" if horizontal else "x unified",
        "bargap": 0.25,
        "showlegend": len(series) > 1,
    }
    if _few_whole(categories):
        layout["yaxis" if horizontal else "xaxis"]["dtick"] = 1
    if any(isinstance(value, str) for value in categories):
        layout["yaxis" if horizontal else "xaxis"]["type"] = "category"
    return Chart(title=title, data=data, layout=layout, caption=caption, height=height)


def heatmap(
    *,
    title: str,
    x: Sequence[float | str],
    y: Sequence[float | str],
    z: Sequence[Numbers],
    x_title: str,
    y_title: str,
    z_title: str,
    z_format: str = ".4g",
    caption: str = "",
    height: int = 380,
) -> Chart:
    """Draw a grid of numbers as colours, light for little and dark for much (in the dark theme the other way)."""
    trace = {
        "type": "heatmap",
        "x": [plain(str(value)) for value in x],
        "y": [plain(str(value)) for value in y],
        "z": [list(row) for row in z],
        "colorscale": _SCALE,
        "colorbar": {
            "title": {"text": plain(z_title), "side": "right", "font": {"size": 13}},
            "tickformat": z_format,
            "thickness": 14,
        },
        "hovertemplate": f"{plain(x_title)} %{{x}}, {plain(y_title)} %{{y}}: %{{z:{z_format}}}<extra></extra>",
        "xgap": 1,
        "ygap": 1,
    }
    layout = _axes(x_title, y_title) | {"hovermode": "closest"}
    layout["xaxis"] |= {"type": "category", "showgrid": False}
    layout["yaxis"] |= {"type": "category", "showgrid": False}
    return Chart(title=title, data=[trace], layout=layout, caption=caption, height=height)


def surface(
    *,
    title: str,
    x: Numbers,
    y: Numbers,
    z: Sequence[Numbers],
    x_title: str,
    y_title: str,
    z_title: str,
    z_format: str = ".4g",
    log_x: bool = False,
    log_y: bool = False,
    log_z: bool = False,
    caption: str = "",
    height: int = 460,
) -> Chart:
    """Draw a surface in space; ``z`` has a row for each y."""
    trace = {
        "type": "surface",
        "x": list(x),
        "y": list(y),
        "z": [list(row) for row in z],
        "colorscale": _SCALE,
        "colorbar": {"tickformat": z_format, "thickness": 14, "len": 0.7},
        "hovertemplate": f"{plain(x_title)} %{{x:.4g}}<br>{plain(y_title)} %{{y:.4g}}<br>"
        f"{plain(z_title)} %{{z:{z_format}}}<extra></extra>",
    }
    axes: dict[str, Any] = {
        f"{name}axis": {"title": {"text": plain(text)}} | ({"type": "log"} if log else {})
        for name, text, log in (("x", x_title, log_x), ("y", y_title, log_y), ("z", z_title, log_z))
    }
    if z_format.endswith("%"):
        axes["zaxis"]["tickformat"] = z_format
    scene: dict[str, Any] = axes | {"aspectmode": "cube", "camera": {"eye": {"x": -1.8, "y": -1.8, "z": 1.0}}}
    layout = {"scene": scene, "margin": {"l": 0, "r": 0, "t": 0, "b": 0}}
    return Chart(title=title, data=[trace], layout=layout, caption=caption, height=height)


_SCALE = [[step / 4, f"var(--scale-{step + 1})"] for step in range(5)]


def _line(one: Series, style: int, y_format: str) -> dict[str, Any]:
    few = len(one.x) <= _MARKED
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers" if few else "lines",
        "name": plain(one.name),
        "x": list(one.x),
        "y": list(one.y),
        "line": {"color": palette.colour(style), "dash": palette.dash(style), "width": 2},
        "connectgaps": True,  # rounds that were not evaluated
        "hovertemplate": f"%{{y:{y_format}}}",
    }
    if few:
        trace["marker"] = {"symbol": palette.symbol(style), "size": 7, "color": palette.colour(style)}
    if one.labels is not None:
        trace |= {"text": [plain(label) for label in one.labels], "hovertemplate": f"%{{y:{y_format}}} %{{text}}"}
    return trace


def _band(one: Series, style: int) -> list[dict[str, Any]]:
    """Return the edges of a series' band, filled between."""
    edge: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines",
        "x": list(one.x),
        "line": {"width": 0, "color": palette.colour(style)},
        "hoverinfo": "skip",
        "showlegend": False,
        "legendgroup": plain(one.name),
    }
    return [
        edge | {"y": list(one.low or ())},
        edge | {"y": list(one.high or ()), "fill": "tonexty", "fillcolor": f"{palette.colour(style)} 18%"},
    ]


def _level(name: str, height: float, ends: Sequence[Any], y_format: str) -> dict[str, Any]:
    """Return a horizontal line that is also in the legend."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plain(name),
        "x": list(ends),
        "y": [height] * len(ends),
        "line": {"color": "var(--bad)", "dash": "dash", "width": 2},
        "hovertemplate": f"%{{y:{y_format}}}",
    }


def _few_whole(values: Sequence[float | str | None]) -> bool:
    """Return whether an axis counts something, and not far: then every number gets its tick."""
    whole = [value for value in values if isinstance(value, int | float) and value == round(value)]
    return bool(whole) and len(whole) == len(values) and max(whole) - min(whole) <= 12


def _ends(series: Sequence[Series]) -> list[float | str]:
    """Return where x begins and ends; names keep their order."""
    numbers = [value for one in series for value in one.x if isinstance(value, int | float)]
    if numbers:
        return [min(numbers), max(numbers)]
    return [value for one in series for value in one.x if value is not None]


def _errors(values: Numbers, low: Numbers, high: Numbers) -> dict[str, Any]:
    def gap(one: float | None, other: float | None) -> float | None:
        return None if one is None or other is None else one - other

    return {
        "type": "data",
        "symmetric": False,
        "array": [gap(top, value) for top, value in zip(high, values, strict=True)],
        "arrayminus": [gap(value, bottom) for value, bottom in zip(values, low, strict=True)],
        "thickness": 1.5,
        "width": 4,
    }


def _axes(
    x_title: str, y_title: str, *, log_x: bool = False, log_y: bool = False, y_format: str = ""
) -> dict[str, Any]:
    xaxis: dict[str, Any] = {"title": {"text": plain(x_title)}}
    yaxis: dict[str, Any] = {"title": {"text": plain(y_title)}}
    if log_x:
        xaxis["type"] = "log"
    if log_y:
        yaxis["type"] = "log"
    if y_format.endswith("%"):
        yaxis["tickformat"] = ".2~%"
    return {"xaxis": xaxis, "yaxis": yaxis}
