"""Charts as pictures: PNG, SVG or PDF, drawn by matplotlib in the colours of the light theme."""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError
from tacit.report.page import palette
from tacit.report.page.charts import (
    Axis,
    Bars,
    Chart,
    Heatmap,
    Lines,
    Numbers,
    Panel,
    Points,
    Series,
    Surface,
)
from tacit.report.page.html import style
from tacit.storage import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
_DPI = 150
_WIDE, _PANEL, _SPACE = 7.2, 4.8, 6.4  # inches: of a chart of one panel, of each of several, and of a surface
_PIXELS = 80  # of a chart's height to the inch
_MISSING = "#d9d9d9"
_MARKED = 60  # more points than these are a line without symbols
_NAME = 80  # letters of a file's name
_DOTS = 100  # points that a surface marks; more would hide it
_TICKS = 10
_CELLS = (12, 9)  # rows and columns of a heat map in whose cells words fit
_DASHES: dict[str, Any] = {
    "solid": "-",
    "dash": "--",
    "dot": ":",
    "dashdot": "-.",
    "longdash": (0, (8, 3)),
    "longdashdot": (0, (8, 3, 2, 3)),
    "5px,2px": (0, (5, 2)),
    "2px,6px": (0, (2, 6)),
}
_SYMBOLS = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "triangle-up": "^",
    "x": "X",
    "star": "*",
    "triangle-down": "v",
    "cross": "P",
}


def check(path: Path | None = None) -> None:
    """Raise ConfigError where charts can't be drawn, or not as ``path``, before any work is lost to it."""
    if path is not None and path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"Expected a figure named {', '.join('*' + suffix for suffix in SUFFIXES)}, got {path}.")
    try:
        import matplotlib  # noqa: F401 - asked for here so that its absence is one sentence
    except ImportError as error:
        raise ConfigError("Figures need matplotlib, which is not installed. Run: pip install 'tacit[plot]'.") from error


def write(chart: Chart, path: Path, *, advice: str = "Name a folder you may write to.") -> None:
    """Write a chart as PNG, SVG or PDF, by the ending of ``path``."""
    check(path)
    data = io.BytesIO()
    kind = path.suffix.lower().removeprefix(".")
    # Without a date and with fixed names, equal charts give equal bytes.
    metadata: dict[str, Any] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    with _settings():
        draw(chart).savefig(data, format=kind, dpi=_DPI, metadata=metadata)
    write_atomically(path, data.getvalue(), advice=advice)


def write_all(
    charts: Iterable[Chart], folder: Path, *, suffix: str = ".png", advice: str = "Name another folder."
) -> tuple[Path, ...]:
    """Write each chart into ``folder``, named after the chart."""
    paths: list[Path] = []
    for chart in charts:
        stem = chart.name or re.sub(r"[^a-z0-9]+", "-", chart.title.lower()).strip("-")[:_NAME] or "chart"
        path, number = folder / f"{stem}{suffix}", 1
        while path in paths:
            number += 1
            path = folder / f"{stem}-{number}{suffix}"
        write(chart, path, advice=advice)
        paths.append(path)
    return tuple(paths)


def draw(chart: Chart) -> Figure:
    """Return a chart as matplotlib's figure."""
    with _settings():
        return _drawn(chart)


def _settings() -> AbstractContextManager[None]:
    """Return matplotlib's settings while a chart is drawn: names are names, and a dollar in one begins no formula."""
    from matplotlib import rc_context

    return rc_context({"svg.hashsalt": "tacit", "text.parse_math": False})


def _drawn(chart: Chart) -> Figure:
    from matplotlib.figure import Figure

    across = min(chart.across, len(chart.panels))
    down = math.ceil(len(chart.panels) / across)
    space = isinstance(chart.panels[0].drawing, Surface)
    width = _SPACE * across if space else _WIDE if len(chart.panels) == 1 else _PANEL * across
    caption = textwrap.fill(re.sub(r"\*\*|`", "", chart.caption), int(14 * width))
    height = chart.height / _PIXELS + 0.16 * caption.count("\n")
    drawing = Figure(figsize=(width, height), layout="constrained")
    engine: Any = drawing.get_layout_engine()
    engine.set(w_pad=0.1, h_pad=0.1, rect=(0, 0, 0.95, 1) if space else (0, 0, 1, 1))  # room for a height's title
    if caption:
        drawing.supxlabel(caption, fontsize=8, color=_colour("soft"), x=0.02, ha="left")
    cells: NDArray[Any] = drawing.subplots(
        down,
        across,
        squeeze=False,
        sharey="row" if chart.shared else False,
        width_ratios=list(chart.widths) or None,
        subplot_kw={"projection": "3d"} if space else None,
    )
    for place, (axes, panel) in enumerate(zip(cells.flat, chart.panels, strict=False)):
        _panel(axes, panel)
        if chart.shared and place % across:
            axes.set_ylabel("")
            axes.tick_params(which="both", left=False, labelleft=False)
    for empty in list(cells.flat)[len(chart.panels) :]:
        empty.set_axis_off()
    _heading(drawing, chart, list(cells.flat)[: len(chart.panels)])
    return drawing


def _heading(drawing: Figure, chart: Chart, panels: Sequence[Axes]) -> None:
    """Put the title above all panels, and below it the series of all of them, each once, where there are several."""
    named: dict[str, Any] = {}
    for axes in panels:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(name, handle)
    bold = {"weight": "bold", "size": 12}
    keyed = any(isinstance(panel.drawing, Points) and panel.drawing.keys for panel in chart.panels)
    if len(named) < 2 and not keyed:
        drawing.suptitle(chart.title, fontproperties=bold, color=_colour("ink"), x=0.02, ha="left")
        return
    letters = int(15 * drawing.get_figwidth())
    columns = max(1, min(len(named), letters // (8 + max(map(len, named)))))
    legend = drawing.legend(
        list(named.values()),
        list(named),
        loc="outside upper left",
        ncols=columns,
        frameon=False,
        fontsize=9,
        title=chart.title,
        title_fontproperties=bold,
        alignment="left",
    )
    legend.get_title().set_color(_colour("ink"))


def _panel(axes: Axes, panel: Panel) -> None:
    panel = _shown(panel)
    drawing = panel.drawing
    if panel.title:
        axes.set_title(panel.title, fontsize=10, loc="left")
    if isinstance(drawing, Surface):
        _surface(axes, drawing, panel)
        return
    axes.set_xlabel(panel.x.title)
    axes.set_ylabel(panel.y.title)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if isinstance(drawing, Heatmap):
        _heat(axes, drawing, panel)
        return
    axes.grid(color=_colour("grid"))
    axes.set_axisbelow(True)
    _scale(axes, panel)
    match drawing:
        case Lines():
            _lines(axes, drawing, panel)
        case Points():
            _points(axes, drawing, panel)
        case Bars():
            _bars(axes, drawing)
    _references(axes, panel)
    for axis, which in ((panel.x, "x"), (panel.y, "y")):
        _ticks(axes, axis, which)


def _shown(panel: Panel) -> Panel:
    """Return a panel without what its axes have no place for; an axis with nothing above zero takes no logarithms."""
    drawing = panel.drawing
    x, y = panel.x, panel.y
    match drawing:
        case Lines() | Points():
            across = [value for one in drawing.series for value in one.x if not isinstance(value, str)]
            along = [value for one in drawing.series for value in one.y]
            x, y = _possible(x, across), _possible(y, along)
            series = [
                replace(one, x=[value if isinstance(value, str) else _fit(value, x) for value in one.x],
                        y=[_fit(value, y) for value in one.y])
                for one in drawing.series
            ]  # fmt: skip
            return replace(panel, drawing=replace(drawing, series=series), x=x, y=y)
        case Bars():
            lengths = [value for one in drawing.series for value in one.values]
            x, y = (_possible(x, lengths), y) if drawing.horizontal else (x, _possible(y, lengths))
            return replace(panel, x=x, y=y)
        case Heatmap() | Surface():
            z = _possible(panel.z, [value for row in drawing.z for value in row])
            rows = [[_fit(value, z) for value in row] for row in drawing.z]
            return replace(panel, drawing=replace(drawing, z=rows), z=z)


def _fit(value: float | None, axis: Axis) -> float | None:
    """Return a number that an axis has a place for, or None."""
    return None if value is None or not math.isfinite(value) or (axis.log and value <= 0) else value


def _possible(axis: Axis, values: Iterable[float | None]) -> Axis:
    return axis if any(_fit(value, axis) is not None for value in values) else replace(axis, log=False)


def _scale(axes: Axes, panel: Panel) -> None:
    if panel.x.log:
        axes.set_xscale("log")
    if panel.y.log:
        axes.set_yscale("log")


def _ticks(axes: Axes, axis: Axis, which: str) -> None:
    """Mark an axis and set its ends, once all is drawn."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator, NullFormatter

    scale: Any = axes.xaxis if which == "x" else axes.yaxis
    limits: Any = axes.set_xlim if which == "x" else axes.set_ylim
    if axis.ticks:
        scale.set_ticks([tick.at for tick in axis.ticks], [tick.text for tick in axis.ticks])
        scale.set_minor_formatter(NullFormatter())
    elif not axis.names:
        if axis.step is not None and not axis.log:
            scale.set_major_locator(
                MaxNLocator(nbins=_TICKS, integer=True) if axis.step == 1 else MultipleLocator(axis.step)
            )
        if axis.log:
            _log_ticks(axes, axis, which)
        elif axis.format[-1] in "%s" or axis.unit:
            scale.set_major_formatter(FuncFormatter(lambda value, _: _short(axis, value)))
    if axis.ends is not None:
        limits(*axis.ends)
    elif axis.from_zero and not axis.log:
        limits(0, None)
    if axis.downwards:
        scale.set_inverted(True)


def _log_ticks(axes: Axes, axis: Axis, which: str) -> None:
    """Mark a logarithmic axis at powers of ten, and between them where there are few."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    scale: Any = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.ends or (axes.get_xlim() if which == "x" else axes.get_ylim())
    if axis.step is None and high < 100 * low:
        scale.set_major_locator(LogLocator(subs=(1, 2, 5)))
    scale.set_major_formatter(FuncFormatter(lambda value, _: _short(axis, value)))
    scale.set_minor_formatter(NullFormatter())


def _short(axis: Axis, value: float) -> str:
    """Return a tick's words without noughts that say nothing."""
    if axis.format.endswith("%"):
        return f"{100 * value:.4g}%"
    if axis.format.endswith("g"):
        return (f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}") + axis.unit
    return axis.text(value)


def _known(one: Series) -> list[int]:
    return [place for place, (x, y) in enumerate(zip(one.x, one.y, strict=True)) if x is not None and y is not None]


def _lines(axes: Axes, drawing: Lines, panel: Panel) -> None:
    names = _names(axes, drawing.series) if panel.x.names else []
    if drawing.stacked:
        heights = [[value or 0.0 for value in one.y] for one in drawing.series]
        styles = [place if one.style is None else one.style for place, one in enumerate(drawing.series)]
        labels = [one.name for one in drawing.series]
        axes.stackplot(
            _places(drawing.series[0].x, names), heights, labels=labels, colors=[_series(style) for style in styles]
        )
        return
    for place, one in enumerate(drawing.series):
        look = place if one.style is None else one.style
        seen = _known(one)
        x, y = _places([one.x[at] for at in seen], names), [one.y[at] or 0.0 for at in seen]
        symbol = _SYMBOLS[palette.symbol(look if one.symbol is None else one.symbol)]
        axes.plot(
            x,
            y,
            color=_series(look),
            linestyle=_DASHES[palette.dash(look)],
            marker=symbol if len(one.x) <= _MARKED else "",
            markersize=5,
            label=one.name,
        )
        if one.low is not None and one.high is not None:
            low, high = [one.low[at] or 0.0 for at in seen], [one.high[at] or 0.0 for at in seen]
            axes.fill_between(x, low, high, color=_series(look), alpha=0.18, linewidth=0)


def _points(axes: Axes, drawing: Points, panel: Panel) -> None:
    names = _names(axes, drawing.series) if panel.x.names else []
    for place, one in enumerate(drawing.series):
        look = place if one.style is None else one.style
        seen = _known(one)
        x = _places([one.x[at] for at in seen], names)
        y = [one.y[at] or 0.0 for at in seen]
        errors = None
        if one.low is not None and one.high is not None:
            low = [height - (one.low[at] or 0.0) for at, height in zip(seen, y, strict=True)]
            errors = [low, [(one.high[at] or 0.0) - height for at, height in zip(seen, y, strict=True)]]
        axes.errorbar(
            x,
            y,
            yerr=errors,
            fmt=_SYMBOLS[palette.symbol(look if one.symbol is None else one.symbol)],
            color=_series(look),
            markerfacecolor="none" if one.hollow else _series(look),
            capsize=3,
            markersize=7,
            label="_nolegend_" if drawing.keys or (one.labels and set(one.labels) <= {one.name}) else one.name,
        )
        for at, left, height in zip(seen, x, y, strict=True):
            if one.labels is not None:
                away = (8, 0) if one.side == "right" else (-8, 0)
                axes.annotate(
                    one.labels[at],
                    (left, height),
                    away,
                    textcoords="offset points",
                    va="center",
                    ha="left" if one.side == "right" else "right",
                    fontsize=9,
                )
    for key in drawing.keys:
        symbol = _SYMBOLS[palette.symbol(key.symbol)]
        axes.plot([], [], marker=symbol, linestyle="", color=_colour("ink"), label=textwrap.fill(key.name, 60))


def _names(axes: Axes, series: Sequence[Series]) -> list[str]:
    """Mark an axis that holds names, and return them in the order in which they come."""
    names = list(dict.fromkeys(str(value) for one in series for value in one.x if value is not None))
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.6, len(names) - 0.4)
    return names


def _places(values: Iterable[float | str | None], names: Sequence[str]) -> list[float]:
    """Return where points stand: at their numbers, or at the places of their names."""
    return [
        float(names.index(str(value))) if isinstance(value, str) else float(value or 0.0)
        for value in values
        if value is not None
    ]


def _bars(axes: Axes, drawing: Bars) -> None:
    count, total = len(drawing.series), len(drawing.categories)
    middles = np.arange(total)
    thick = 0.78 if drawing.stacked else 0.78 / max(1, count)
    base = np.zeros(total)
    for place, one in enumerate(drawing.series):
        look = place if one.style is None else one.style
        lengths = _array(one.values)
        at = middles if drawing.stacked else middles + (place - (count - 1) / 2) * thick
        hatch = palette.pattern(look)
        errors = None
        if one.low is not None and one.high is not None:
            errors = np.nan_to_num([lengths - _array(one.low), _array(one.high) - lengths])
        looks: dict[str, Any] = {
            "color": _series(look),
            "label": one.name,
            "hatch": hatch * 2 if total <= _MARKED else None,
            "edgecolor": _colour("panel") if total <= _MARKED else None,
            "linewidth": 0.5 if total <= _MARKED else 0,
            "error_kw": {"capsize": 3, "ecolor": _colour("ink")},
        }
        if drawing.horizontal:
            axes.barh(at, lengths, thick, left=base if drawing.stacked else 0, xerr=errors, **looks)
        else:
            axes.bar(at, lengths, thick, bottom=base if drawing.stacked else 0, yerr=errors, **looks)
        base = base + np.nan_to_num(lengths)
    few = _few(total, 40 if drawing.horizontal else 16)
    words = [f"{value:g}" if isinstance(value, float) else str(value) for value in drawing.categories]
    put = axes.set_yticks if drawing.horizontal else axes.set_xticks
    put([int(middles[index]) for index in few], [words[index] for index in few])
    if drawing.horizontal:
        axes.set_ylim(-0.5, max(total, 1) - 0.5)
    if not drawing.horizontal and max(map(len, words), default=0) * len(few) > 90:
        axes.tick_params(axis="x", rotation=30)


def _references(axes: Axes, panel: Panel) -> None:
    for line in panel.references:
        if line.upright:
            axes.axvline(line.at, color=_colour("bad"), linestyle=":", linewidth=1)
            axes.annotate(
                line.name, (line.at, 1), (4, -4), xycoords=("data", "axes fraction"), textcoords="offset points",
                va="top", fontsize=8, color=_colour("bad"),
            )  # fmt: skip
        else:
            axes.axhline(line.at, color=_colour("bad"), linestyle="--", label=line.name)


def _heat(axes: Axes, drawing: Heatmap, panel: Panel) -> None:
    from matplotlib.colors import ListedColormap, LogNorm, Normalize, PowerNorm

    grid = np.array([_array(row) for row in drawing.z], dtype=float).reshape(len(drawing.y), len(drawing.x))
    grid[~np.isfinite(grid)] = np.nan
    known = grid[np.isfinite(grid)]
    low, high = panel.z.ends or ((float(known.min()), float(known.max())) if known.size else (0.0, 1.0))
    high = high if high > low else low + 1e-9
    norm: Any = LogNorm(low, high) if panel.z.log else Normalize(low, high)
    if panel.z.root:
        norm = PowerNorm(gamma=0.5, vmin=low, vmax=high)
    colours: Any = _shades()
    if drawing.states:
        colours = ListedColormap([_colour(state.colour) for state in drawing.states])
        norm = Normalize(-0.5, len(drawing.states) - 0.5)
    picture = axes.imshow(
        np.ma.masked_invalid(grid),
        origin="upper" if panel.y.downwards else "lower",
        aspect="auto",
        interpolation="nearest",
        cmap=colours,
        norm=norm,
    )
    axes.set_facecolor(_MISSING)
    for names, put, most in ((drawing.x, axes.set_xticks, _TICKS), (drawing.y, axes.set_yticks, 40)):
        few = _few(len(names), most)
        put(few, [names[index][:20] for index in few])
    if max(map(len, drawing.x), default=0) > 5:
        axes.tick_params(axis="x", rotation=30)
    if drawing.states:
        texts: Sequence[Sequence[str]] = [
            ["" if math.isnan(value) else drawing.states[int(value)].mark for value in row] for row in grid
        ]
    else:
        from matplotlib.ticker import FuncFormatter

        texts = drawing.texts
        bar = axes.figure.colorbar(picture, ax=axes, format=FuncFormatter(lambda value, _: _short(panel.z, value)))
        bar.set_label(_titled(panel.z))
        if panel.z.log:
            _log_ticks(bar.ax, panel.z, "y")
    if not texts or grid.shape[0] > _CELLS[0] * 3 or (not drawing.states and grid.shape[1] > _CELLS[1]):
        return  # they would not fit
    for (row, column), value in np.ndenumerate(grid):
        dark = math.isfinite(value) and _luminance(picture.cmap(norm(value))) < 0.18
        size = 9 if max(grid.shape) <= 7 else 7.5
        words, ink = texts[row][column], "white" if dark else "black"
        axes.text(column, row, words, ha="center", va="center", fontsize=size, color=ink)


def _surface(axes: Any, drawing: Surface, panel: Panel) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    x, y = _heights(drawing.x, panel.x), _heights(drawing.y, panel.y)
    heights = np.ma.masked_invalid([_heights(row, panel.z) for row in drawing.z])
    across, along = np.meshgrid(x, y)
    low, high = (float(heights.min()), float(heights.max())) if heights.count() else (0.0, 1.0)
    if panel.z.ends is not None:
        low, high = (float(end) for end in _heights(panel.z.ends, panel.z))
        axes.set_zlim(low, high)
    axes.plot_surface(
        across,
        along,
        heights.filled(np.nan),
        cmap=_shades(),
        vmin=low,
        vmax=high + (1e-9 if low == high else 0.0),
        rstride=1,
        cstride=1,
        edgecolor="#00000055",
        linewidth=0.5,
    )
    if heights.size <= _DOTS:
        seen = ~np.ma.getmaskarray(heights)
        axes.scatter(across[seen], along[seen], heights[seen].data, color="black", s=9, depthshade=False)
    for axis, scale, values, at in ((panel.x, axes.xaxis, drawing.x, x), (panel.y, axes.yaxis, drawing.y, y)):
        few = _few(len(values), 6)
        scale.set_ticks([at[index] for index in few], [f"{values[index]:.3g}" for index in few])
        scale.label.set_text(axis.title)
        scale.labelpad = 12
    axes.set_zlabel(_titled(panel.z), labelpad=12)
    axes.tick_params(axis="z", pad=7)
    axes.zaxis.set_major_locator(MaxNLocator(nbins=6, integer=panel.z.log and high - low >= 2))
    axes.zaxis.set_major_formatter(
        FuncFormatter(lambda height, _: _short(panel.z, 10**height if panel.z.log else height))
    )
    # Seen from the side of the low corner, so that what lies behind is higher where it can be.
    axes.view_init(elev=25, azim=_view(heights))
    axes.set_box_aspect(None, zoom=0.86)


def _titled(axis: Axis) -> str:
    return f"{axis.title} (log scale)" if axis.log and axis.title else axis.title


def _view(heights: Any) -> float:
    """Return the angle from which the lowest corner of a surface is in front."""
    corners = {-135: (0, 0), -45: (0, -1), 45: (-1, -1), 135: (-1, 0)}
    filled = heights.filled(heights.max())
    return min(corners, key=lambda angle: filled[corners[angle]]) + 10.0


def _heights(values: Numbers, axis: Axis) -> NDArray[np.float64]:
    """Return numbers as they stand on an axis that takes no logarithms of its own; NaN for what is not there."""
    array = _array(values)
    if axis.log:
        array = np.log10(np.where(array > 0, array, np.nan))
    return np.where(np.isfinite(array), array, np.nan)


def _array(values: Numbers) -> NDArray[np.float64]:
    return np.array(
        [value if value is not None and math.isfinite(value) else math.nan for value in values], dtype=float
    )


def _few(total: int, most: int) -> list[int]:
    """Return the places of at most ``most`` of ``total`` values, evenly spread from the first."""
    return list(range(0, total, max(1, -(-total // most))))


def _luminance(colour: Sequence[float]) -> float:
    """Return the relative luminance of an RGB colour (WCAG 2); black and white stand out equally at 0.18."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@cache
def _colours() -> dict[str, str]:
    """Return the colours of the light theme: the first block of the style sheet."""
    return dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", style().split("}")[0]))


def _colour(name: str) -> str:
    return _colours()[name]


def _series(number: int) -> str:
    return _colour(palette.colour(number))


def _shades() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("tacit", [_colour(f"scale-{step}") for step in range(1, 6)])
