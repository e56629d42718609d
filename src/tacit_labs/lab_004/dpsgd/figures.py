"""The charts of the DP-SGD lab: accuracy and noise over epsilon, delta and iterations, on logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tacit.report.page import Cell, Chart, Column, Series, Table, Tick, decades, line, png, with_axes
from tacit_labs.lab_004.dpsgd.sweeps import Point, Way

NAMES: dict[Way, tuple[str, int]] = {  # way -> its name and style, the same in every chart
    "normal": ("without privacy", 0),
    "lab": ("the lab's noise", 1),
    "tight": ("tight noise", 2),
}
_TICKS = 8  # of more values only the powers of ten have one


def draw(points: Sequence[Point], folder: Path) -> tuple[Path, ...]:
    """Write a figure for each sweep into ``folder`` as PNG."""
    sweeps = dict.fromkeys(point.sweep for point in points)
    charts = [figure([point for point in points if point.sweep == sweep]) for sweep in sweeps]
    return png.write_all(charts, folder, advice="Choose another folder with --out.")


def figure(points: Sequence[Point]) -> Chart:
    """Return one sweep: test accuracy with its spread over seeds, and the noise that each way of accounting adds."""
    shown = (accuracy(points), noises(points))
    return Chart(
        title=_fixed(points[0]),
        panels=[replace(chart.panels[0], title=chart.title) for chart in shown],
        across=2,
        height=400,
        name=f"lab-{points[0].sweep}",
    )


def accuracy(points: Sequence[Point]) -> Chart:
    """Return the test accuracy of one sweep, with bands of one deviation over the seeds."""
    sweep, series = points[0].sweep, []
    for way, (label, style) in NAMES.items():
        own = _of(points, way)
        series.append(
            Series(
                name=label,
                x=[point.value for point in own],
                y=[point.mean for point in own],
                low=[max(point.mean - point.spread, 0.0) for point in own],
                high=[min(point.mean + point.spread, 1.0) for point in own],
                style=style,
            )
        )
    chart = line(
        title=f"Accuracy over {sweep}",
        series=series,
        x_title=f"{sweep} (log scale)",
        y_title="test accuracy",
        y_format=".1%",
        log_x=True,
    )
    return ticked(chart, [point.value for point in _of(points, "tight")])


def noises(points: Sequence[Point]) -> Chart:
    """Return the noise that each way of accounting adds for the same budget, in one sweep."""
    sweep, series = points[0].sweep, []
    for way in ("lab", "tight"):
        own = _of(points, way)
        label, style = NAMES[way]
        series.append(
            Series(
                name=label, x=[point.value for point in own], y=[point.noise_multiplier for point in own], style=style
            )
        )
    chart = line(
        title="Noise for the same budget",
        series=series,
        x_title=f"{sweep} (log scale)",
        y_title="noise multiplier of a step (log scale)",
        log_x=True,
        log_y=True,
    )
    values = [value for one in series for value in one.y]
    return decades(ticked(chart, [point.value for point in _of(points, "tight")]), values)


def ticked(chart: Chart, values: Sequence[float]) -> Chart:
    """Return a chart with the values that were tried below it; plotly would write 1e-6 as 1µ."""
    few = [value for value in values if len(values) <= _TICKS or math.log10(value).is_integer()]
    words = [f"{value:,.0f}" if value >= 1000 else f"{value:g}" for value in few]
    ticks = [Tick(at=at, text=text) for at, text in zip(few, words, strict=True)]
    return with_axes(chart, x=replace(chart.panels[0].x, ticks=ticks))


def table(points: Sequence[Point]) -> Table:
    """Return the points for the terminal: a row per setting, a column per way."""
    rows: list[tuple[Cell, ...]] = []
    for sweep, value in dict.fromkeys((point.sweep, point.value) for point in points):
        by_way = {point.way: point for point in points if (point.sweep, point.value) == (sweep, value)}
        shares = [f"{100 * by_way[way].mean:.1f} ± {100 * by_way[way].spread:.1f}%" for way in NAMES]
        noise = [f"{by_way[way].noise_multiplier or 0:.4g}" for way in NAMES if way != "normal"]
        rows.append((sweep, f"{value:g}", *shares, *noise))
    shares_of = [Column(name=way, unit="test accuracy ± deviation over the seeds") for way in NAMES]
    noise_of = [Column(name=f"{way}'s noise", unit="multiplier of a step") for way in ("lab", "tight")]
    return Table(columns=("sweep", "value", *shares_of, *noise_of), rows=rows, align="lrrrrrr")


def _of(points: Sequence[Point], way: Way) -> list[Point]:
    return sorted((point for point in points if point.way == way), key=lambda point: point.value)


def _fixed(point: Point) -> str:
    parts = {
        "epsilon": f"epsilon {point.epsilon:g}",
        "delta": f"delta {point.delta:g}",
        "iterations": f"{point.iterations} iterations",
    }
    rest = ", ".join(words for name, words in parts.items() if name != point.sweep)
    return f"Private logistic regression, breast cancer: {rest}, {len(point.each)} seeds"
