"""A chart as plotly.js takes it: traces and a layout.

The dictionaries here are plotly's own schema, and they go nowhere but into a page's JSON. Colours are names of the
theme, ``var(--ink)``, or ``var(--ink) 18%`` where they shine through; the page's script looks them up when it draws.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from tacit.report.page import palette
from tacit.report.page.charts import (
    Axis,
    Bars,
    BarSeries,
    Chart,
    Heatmap,
    Lines,
    Numbers,
    Panel,
    Points,
    Reference,
    Series,
    Surface,
)

Json = dict[str, Any]

_MARKED = 60  # more points than these are a line without symbols
_LEGEND = 38  # letters of a line of a legend of sentences; more would not fit a phone
_SCALE = [[step / 4, f"var(--scale-{step + 1})"] for step in range(5)]
_EYE = {"x": -1.9, "y": -1.9, "z": 1.0}  # far enough for the axes' names on a phone
_TOP, _BOTTOM = 46, 12  # pixels above and below several panels
_NAME, _BELOW = 24, 40  # pixels above a panel for its name, and below it for what stands at its axis
_APART, _SHARED, _BAR = 0.12, 0.05, 0.06  # shares of the width between panels, and more where there is a colour bar
_GRID = 8  # values of a surface's axis that are all marked

_AXIS: Json = {
    "automargin": True,
    "gridcolor": "var(--grid)",
    "linecolor": "var(--faint)",
    "zerolinecolor": "var(--faint)",
    "tickcolor": "var(--faint)",
    "ticks": "outside",
    "ticklen": 4,
    "title": {"standoff": 8, "font": {"size": 13}},
    "zeroline": False,
}
_SPACE_AXIS: Json = {
    "gridcolor": "var(--grid)",
    "backgroundcolor": "var(--panel)",
    "color": "var(--ink)",
    "showbackground": True,
}


def template() -> Json:
    """Return what all charts share: plotly's template, in the colours of the page's theme."""
    return {
        "layout": {
            "autosize": True,
            "colorway": [_colour(style) for style in range(palette.COUNT)],
            "font": {"family": "var(--font)", "size": 13, "color": "var(--ink)"},
            "hoverlabel": {
                "bgcolor": "var(--panel)",
                "bordercolor": "var(--faint)",
                "font": {"family": "var(--font)", "size": 13, "color": "var(--ink)"},
                "namelength": -1,
            },
            "legend": {
                "orientation": "h",
                "x": 0,
                "xanchor": "left",
                "y": 1.02,
                "yanchor": "bottom",
                "traceorder": "normal",
            },
            "margin": {"l": 56, "r": 16, "t": 8, "b": 48},
            "paper_bgcolor": "var(--panel)",
            "plot_bgcolor": "var(--panel)",
            "xaxis": _AXIS,
            "yaxis": _AXIS,
            "scene": {"xaxis": _SPACE_AXIS, "yaxis": _SPACE_AXIS, "zaxis": _SPACE_AXIS},
        }
    }


def plain(text: str) -> str:
    """Return text for a chart's label; plotly would read some tags as markup otherwise.

    >>> plain("a<b>c")
    'a&lt;b&gt;c'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def figure(chart: Chart) -> Json:
    """Return a chart's traces, its layout and its height."""
    traces: list[Json] = []
    layout: Json = {}
    many = len(chart.panels) > 1
    for place, panel in enumerate(chart.panels):
        own = _layout(panel)
        drawn = _traces(panel)
        number = str(place + 1) if place else ""
        for name in ("xaxis", "yaxis", "scene"):
            if name in own:
                layout[f"{name}{number}"] = own.pop(name)
        layout |= own if not place else {}
        space = isinstance(panel.drawing, Surface)
        where = {"scene": f"scene{number}"} if space else {"xaxis": f"x{number}", "yaxis": f"y{number}"}
        traces += [trace | (where if many else {}) for trace in drawn]
    if many:
        _place(chart, traces, layout)
    return {"data": traces, "layout": layout, "height": chart.height}


def _place(chart: Chart, traces: list[Json], layout: Json) -> None:
    """Give panels their places, their names above them, and one legend."""
    across, down = chart.across, math.ceil(len(chart.panels) / chart.across)
    named = any(panel.title for panel in chart.panels)
    free = chart.height - _TOP - _BOTTOM
    legend: Json = {"y": 1, "yanchor": "bottom"}
    if not named and down == 1:  # as a chart of one panel, but in columns
        layout.setdefault("legend", {})
    else:
        layout |= {"margin": {"t": _TOP, "b": _BOTTOM}, "legend": legend}
    gap = _SHARED if chart.shared else _APART
    bar = _BAR if any(isinstance(panel.drawing, Heatmap) for panel in chart.panels) else 0.0
    widths = chart.widths or [1.0] * across
    scale = (1 - gap * (across - 1) - bar * across) / sum(widths)
    for place, panel in enumerate(chart.panels):
        row, column = divmod(place, across)
        number = str(place + 1) if place else ""
        left = scale * sum(widths[:column]) + (gap + bar) * column
        x = [left, left + scale * widths[column]]
        y = [0.0, 1.0]
        if named or down > 1:
            each = free / down
            y = [1 - ((row + 1) * each - _BELOW) / free, 1 - (row * each + _NAME) / free]
        if isinstance(panel.drawing, Surface):
            layout[f"scene{number}"]["domain"] = {"x": x, "y": y}
        else:
            under = place + across >= len(chart.panels)
            first = column == 0 or not chart.shared
            layout[f"xaxis{number}"] |= {"domain": x, "anchor": f"y{number}"}
            layout[f"yaxis{number}"] |= {"domain": y, "anchor": f"x{number}", "showticklabels": first}
            if chart.shared:
                layout[f"yaxis{number}"] |= {"matches": "y"} if place else {}
                layout[f"yaxis{number}"]["title"] = {"text": plain(panel.y.title) if first else ""}
                layout[f"xaxis{number}"]["title"] = {"text": plain(panel.x.title) if under else ""}
        for trace in traces:
            if trace.get("yaxis", trace.get("scene")) in (f"y{number}", f"scene{number}") and "colorbar" in trace:
                trace["colorbar"] |= {"x": x[1] + 0.005, "y": sum(y) / 2, "len": y[1] - y[0]}
        if panel.title:
            words: Json = {"text": plain(panel.title), "x": x[0], "y": y[1], "xref": "paper", "yref": "paper"}
            looks: Json = {"showarrow": False, "font": {"size": 12}, "xanchor": "left", "yanchor": "bottom"}
            layout["annotations"] = [*layout.get("annotations", ()), words | looks]
    _one_legend(traces)


def _one_legend(traces: list[Json]) -> None:
    """Name a series once, in the first panel in which it has points; one click then hides it in all of them."""
    named: set[str] = set()
    for trace in traces:
        name = trace.get("name")
        if name is None or trace.get("showlegend") is False:
            continue
        trace["legendgroup"] = name
        if name in named or not trace.get("y"):  # plotly has no line in its legend for a series without points
            trace["showlegend"] = False
        else:
            named.add(name)


def _traces(panel: Panel) -> list[Json]:
    drawing = panel.drawing
    match drawing:
        case Lines():
            return [*_lines(drawing, panel), *_levels(panel)]
        case Points():
            return [*_keys(drawing), *(_points(one, place, panel) for place, one in enumerate(drawing.series))]
        case Bars():
            return [_bar(drawing, one, place, panel) for place, one in enumerate(drawing.series)]
        case Heatmap():
            return [_heat(drawing, panel)]
        case Surface():
            return [_surface(drawing, panel)]


def _layout(panel: Panel) -> Json:
    """Return the axes of a panel, and how it answers the pointer."""
    drawing = panel.drawing
    if isinstance(drawing, Surface):
        return {"scene": _scene(drawing, panel), "margin": {"l": 0, "r": 0, "t": 0, "b": 0}}
    layout: Json = {"xaxis": _axis(panel.x), "yaxis": _axis(panel.y)}
    match drawing:
        case Lines():
            layout["hovermode"] = "x unified"
        case Points():
            layout |= _around(drawing)
        case Bars():
            layout |= {
                "barmode": "stack" if drawing.stacked else "group",
                "hovermode": "y unified" if drawing.horizontal else "x unified",
                "bargap": 0.25,
                "showlegend": len(drawing.series) > 1,
            }
            if drawing.horizontal:
                layout["margin"] = {"r": 40}  # room for the last tick's words
        case Heatmap():
            layout["hovermode"] = "closest"
            layout["xaxis"]["showgrid"] = layout["yaxis"]["showgrid"] = False
    for line in panel.references:
        if line.upright:
            layout.setdefault("shapes", []).append(_upright(line))
            layout.setdefault("annotations", []).append(_beside(line, log=panel.x.log))
        elif not isinstance(drawing, Lines):  # which have theirs in the legend
            layout.setdefault("shapes", []).append(_across(line))
            layout.setdefault("annotations", []).append(_above(line, log=panel.y.log))
    return layout


def _axis(axis: Axis) -> Json:
    made: Json = {"title": {"text": plain(axis.title)}}
    if axis.names:
        made["type"] = "category"
    elif axis.log:
        made["type"] = "log"
    if axis.format.endswith("%"):
        made["tickformat"] = ".2~%"
    elif axis.format.endswith("s"):
        made["tickformat"] = "~s"
    if axis.unit:
        made["ticksuffix"] = axis.unit
    if axis.ends is not None:
        made["range"] = [math.log10(end) for end in axis.ends] if axis.log else list(axis.ends)
    if axis.ticks:
        made |= {"tickvals": [tick.at for tick in axis.ticks], "ticktext": [plain(tick.text) for tick in axis.ticks]}
    elif axis.step is not None:
        made["dtick"] = axis.step
        if axis.log:
            made["exponentformat"] = "power"
    if axis.from_zero:
        made["rangemode"] = "tozero"
    if axis.downwards:
        made["autorange"] = "reversed"
    return made


def _lines(drawing: Lines, panel: Panel) -> list[Json]:
    traces: list[Json] = []
    for place, one in enumerate(drawing.series):
        style = place if one.style is None else one.style
        if one.low is not None and one.high is not None:
            traces += _band(one, style)
        traces.append(_line(one, style, panel.y, stacked=drawing.stacked))
    return traces


def _line(one: Series, style: int, axis: Axis, *, stacked: bool) -> Json:
    few = len(one.x) <= _MARKED and not stacked
    trace: Json = {
        "type": "scatter",
        "mode": "lines+markers" if few else "lines",
        "name": plain(one.name),
        "x": list(one.x),
        "y": list(one.y),
        "line": {"color": _colour(style), "dash": palette.dash(style), "width": 2},
        "connectgaps": True,  # rounds that were not evaluated
        "hovertemplate": f"%{{y:{axis.format}}}",
    }
    if stacked:
        trace["stackgroup"] = "all"
    if few:
        symbol = style if one.symbol is None else one.symbol
        trace["marker"] = {"symbol": palette.symbol(symbol), "size": 7, "color": _colour(style)}
    if one.labels is not None:
        trace |= {"text": [plain(label) for label in one.labels], "hovertemplate": f"%{{y:{axis.format}}} %{{text}}"}
    return trace


def _band(one: Series, style: int) -> list[Json]:
    """Return the edges of a series' band, filled between."""
    edge: Json = {
        "type": "scatter",
        "mode": "lines",
        "x": list(one.x),
        "line": {"width": 0, "color": _colour(style)},
        "hoverinfo": "skip",
        "showlegend": False,
        "legendgroup": plain(one.name),
    }
    return [
        edge | {"y": list(one.low or ())},
        edge | {"y": list(one.high or ()), "fill": "tonexty", "fillcolor": f"{_colour(style)} 18%"},
    ]


def _levels(panel: Panel) -> list[Json]:
    """Return horizontal lines that are also in the legend."""
    assert isinstance(panel.drawing, Lines)
    series = panel.drawing.series
    numbers = [value for one in series for value in one.x if isinstance(value, int | float)]
    names = [value for one in series for value in one.x if value is not None]
    ends = [min(numbers), max(numbers)] if numbers else names
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": plain(line.name),
            "x": list(ends),
            "y": [line.at] * len(ends),
            "line": {"color": "var(--bad)", "dash": "dash", "width": 2},
            "hovertemplate": f"%{{y:{panel.y.format}}}",
        }
        for line in panel.references
        if not line.upright
    ]


def _points(one: Series, place: int, panel: Panel) -> Json:
    assert isinstance(panel.drawing, Points)
    style = place if one.style is None else one.style
    symbol = palette.symbol(style if one.symbol is None else one.symbol)
    marker: Json = {"size": 11, "symbol": f"{symbol}-open" if one.hollow else symbol, "color": _colour(style)}
    if one.hollow:
        marker["line"] = {"width": 2}
    x = "%{x}" if panel.x.names else f"%{{x:{panel.x.format}}}"
    trace: Json = {
        "type": "scatter",
        "mode": "markers" if one.labels is None else "markers+text",
        "name": plain(one.name),
        "x": [plain(at) if isinstance(at, str) else at for at in one.x],
        "y": list(one.y),
        "marker": marker,
        "hovertemplate": f"{x}, %{{y:{panel.y.format}}}",
        "cliponaxis": False,
    }
    if one.labels is not None:
        trace |= {"text": [plain(label) for label in one.labels], "textposition": f"middle {one.side}"}
    if one.low is not None and one.high is not None:
        trace["error_y"] = _errors(one.y, one.low, one.high) | {"color": _colour(style)}
    if panel.drawing.keys:
        trace["showlegend"] = False
    return trace


def _keys(drawing: Points) -> list[Json]:
    """Return the legend's lines for what symbols mean."""
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "<br>".join(map(plain, textwrap.wrap(key.name, _LEGEND))),
            "x": [None],
            "y": [None],
            "marker": {"size": 11, "symbol": palette.symbol(key.symbol), "color": "var(--ink)"},
        }
        for key in drawing.keys
    ]


def _around(drawing: Points) -> Json:
    """Return what stands around points: room for the last label, and a legend where it says something new."""
    around: Json = {"hovermode": "closest"}
    if drawing.keys:
        return around | {"legend": {"orientation": "v", "x": 0, "y": -0.22, "yanchor": "top"}}
    if any(one.labels is not None for one in drawing.series):
        around["margin"] = {"r": 80}
        around["showlegend"] = not all(
            one.labels is not None and set(one.labels) <= {one.name} for one in drawing.series
        )
    return around


def _bar(drawing: Bars, one: BarSeries, place: int, panel: Panel) -> Json:
    style = place if one.style is None else one.style
    marker: Json = {"color": _colour(style), "line": {"width": 0.5, "color": "var(--panel)"}}
    if palette.pattern(style):
        marker["pattern"] = {"shape": palette.pattern(style), "fillmode": "overlay", "fgcolor": "var(--panel)"}
    along, across = ("x", "y") if drawing.horizontal else ("y", "x")
    axis = panel.x if drawing.horizontal else panel.y
    trace: Json = {
        "type": "bar",
        "name": plain(one.name),
        across: [plain(value) if isinstance(value, str) else value for value in drawing.categories],
        along: list(one.values),
        "marker": marker,
        "hovertemplate": f"%{{{along}:{axis.format}}}",
    }
    if drawing.horizontal:
        trace["orientation"] = "h"
    if one.low is not None and one.high is not None:
        trace[f"error_{along}"] = _errors(one.values, one.low, one.high) | {"color": "var(--ink)"}
    return trace


def _heat(drawing: Heatmap, panel: Panel) -> Json:
    x, y = plain(panel.x.title), plain(panel.y.title)
    trace: Json = {
        "type": "heatmap",
        "x": [plain(value) for value in drawing.x],
        "y": [plain(value) for value in drawing.y],
        "z": [_heights(row, panel.z) for row in drawing.z],
        "xgap": 1,
        "ygap": 1,
    }
    if drawing.states:
        return trace | _states(drawing, x, y)
    trace |= {
        "colorscale": _SCALE,
        "colorbar": {
            "title": {"text": plain(panel.z.title), "side": "right", "font": {"size": 13}},
            "tickformat": panel.z.format,
            "thickness": 14,
        },
        "hovertemplate": f"{x} %{{x}}, {y} %{{y}}: %{{z:{panel.z.format}}}<extra></extra>",
    }
    if panel.z.ends is not None:
        low, high = panel.z.ends
        trace |= dict(zip(("zmin", "zmax"), _heights((low, high), panel.z), strict=True))
    if panel.z.log or panel.z.root:  # plotly spaces colours by distances alone
        trace["colorbar"] |= _decades(drawing.z, panel.z) if panel.z.log else _roots(drawing.z, panel.z)
        trace["customdata"] = [list(row) for row in drawing.z]
        trace["hovertemplate"] = f"{x} %{{x}}, {y} %{{y}}: %{{customdata:{panel.z.format}}}<extra></extra>"
    if drawing.texts:
        trace |= {"text": [[plain(text) for text in row] for row in drawing.texts], "texttemplate": "%{text}"}
    return trace


def _states(drawing: Heatmap, x: str, y: str) -> Json:
    count = len(drawing.states)
    steps = [
        [edge, f"var(--{state.colour})"]
        for place, state in enumerate(drawing.states)
        for edge in (place / count, (place + 1) / count)
    ]
    found = [[None if value is None else drawing.states[int(value)] for value in row] for row in drawing.z]
    return {
        "colorscale": steps,
        "zmin": -0.5,
        "zmax": count - 0.5,
        "showscale": False,
        "text": [["" if state is None else plain(state.mark) for state in row] for row in found],
        "texttemplate": "%{text}",
        "customdata": [["" if state is None else plain(state.name) for state in row] for row in found],
        "hovertemplate": f"{x} %{{x}}, {y} %{{y}}: %{{customdata}}<extra></extra>",
    }


def _surface(drawing: Surface, panel: Panel) -> Json:
    """Return a surface; where an axis is logarithmic it holds logarithms and has ticks of its own.

    Plotly colours a surface by its height before it takes the logarithm, and a few small values would share one colour.
    """
    words = [
        [
            f"{plain(panel.x.title)} {panel.x.text(x)}, {plain(panel.y.title)} {panel.y.text(y)}: {panel.z.text(z)}"
            for x, z in zip(drawing.x, row, strict=True)
        ]
        for y, row in zip(drawing.y, drawing.z, strict=True)
    ]
    trace: Json = {
        "type": "surface",
        "x": _heights(drawing.x, panel.x),
        "y": _heights(drawing.y, panel.y),
        "z": [_heights(row, panel.z) for row in drawing.z],
        "colorscale": _SCALE,
        # The height is on the axis; a bar that says it again in colours would take half the width of a phone.
        "showscale": False,
        "text": words,
        "hovertemplate": "%{text}<extra></extra>",
    }
    if panel.z.ends is not None:
        trace |= dict(zip(("cmin", "cmax"), _heights(panel.z.ends, panel.z), strict=True))
    return trace


def _scene(drawing: Surface, panel: Panel) -> Json:
    scene: Json = {"aspectmode": "cube", "camera": {"eye": _EYE, "center": {"x": 0, "y": 0, "z": -0.15}}}
    for name, axis, values in (("x", panel.x, drawing.x), ("y", panel.y, drawing.y)):
        scene[f"{name}axis"] = {"title": {"text": plain(axis.title)}} | _grid_ticks(axis, values)
    zaxis: Json = {"title": {"text": plain(panel.z.title)}}
    if panel.z.log:
        zaxis |= _decades(drawing.z, panel.z)
        zaxis["ticktext"][0] = ""  # the lowest tick's words would stand on those of the y axis
    elif panel.z.format.endswith("%"):
        zaxis["tickformat"] = panel.z.format
    if panel.z.ends is not None:
        zaxis["range"] = _heights(panel.z.ends, panel.z)
    return scene | {"zaxis": zaxis}


def _grid_ticks(axis: Axis, values: Sequence[float]) -> Json:
    """Return the ticks of a surface's axis: the values of the grid, or some of them where there are many."""
    few = list(values[:: -(-len(values) // _GRID)])
    return {"tickvals": _heights(few, axis), "ticktext": [axis.text(value) for value in few]}


def _decades(z: Sequence[Numbers], axis: Axis) -> Json:
    """Return ticks for numbers that are shown by their logarithms: powers of ten, and 2 and 5 where they are few."""
    known = [value for row in z for value in row if value is not None and 0 < value < math.inf]
    low, high = axis.ends or (min(known, default=1.0), max(known, default=10.0))
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    if high < 100 * low:
        marks = [step * 10.0**power for power in powers for step in (1, 2, 5)]
        return {"tickvals": [math.log10(mark) for mark in marks], "ticktext": [f"{mark:,.4g}" for mark in marks]}
    return {"tickvals": list(powers), "ticktext": [_short(power) for power in powers]}


def _roots(z: Sequence[Numbers], axis: Axis) -> Json:
    """Return ticks for numbers that are shown by their square roots."""
    high = axis.ends[1] if axis.ends is not None else max((value or 0.0 for row in z for value in row), default=1.0)
    marks = [high * share for share in (0.0, 0.05, 0.2, 0.5, 1.0)]
    return {"tickvals": _heights(marks, axis), "ticktext": [axis.text(mark) for mark in marks]}


def _short(power: int) -> str:
    """Return a power of ten in few letters: a phone has no room for noughts.

    >>> [_short(power) for power in (-1, 0, 2, 4, 6)]
    ['0.1', '1', '100', '10k', '1M']
    """
    steps, rest = divmod(power, 3) if power >= 0 else (0, power)
    return f"{10.0**rest:g}{('', 'k', 'M', 'G', 'T')[steps]}" if steps < 5 else f"1e{power}"


def _heights(values: Numbers, axis: Axis) -> list[float | None]:
    """Return numbers as they stand on an axis that takes no logarithms of its own."""
    if axis.root:
        return [None if value is None else math.sqrt(max(value, 0.0)) for value in values]
    if not axis.log:
        return list(values)
    return [math.log10(value) if value is not None and 0 < value < math.inf else None for value in values]


def _upright(line: Reference) -> Json:
    return {
        "type": "line",
        "x0": line.at,
        "x1": line.at,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": {"color": "var(--bad)", "dash": "dot", "width": 1},
    }


def _across(line: Reference) -> Json:
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": line.at,
        "y1": line.at,
        "line": {"color": "var(--bad)", "dash": "dash", "width": 1.5},
    }


def _above(line: Reference, *, log: bool) -> Json:
    return {
        "x": 1,
        "xref": "paper",
        "y": math.log10(line.at) if log else line.at,
        "xanchor": "right",
        "yanchor": "bottom",
        "text": plain(line.name),
        "showarrow": False,
        "font": {"size": 11, "color": "var(--bad)"},
        "bgcolor": "var(--panel)",
    }


def _beside(line: Reference, *, log: bool) -> Json:
    return {
        "x": math.log10(line.at) if log else line.at,
        "y": 1,
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "top",
        "text": plain(line.name),
        "showarrow": False,
        "font": {"size": 11, "color": "var(--bad)"},
    }


def _errors(values: Numbers, low: Numbers, high: Numbers) -> Json:
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


def _colour(style: int) -> str:
    return f"var(--{palette.colour(style)})"
