"""Surfaces over C and sigma, with sigma, and epsilon where it is the height, by factors of ten."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tacit.report.page import Chart, surface

_EYE = {"x": -1.9, "y": -1.9, "z": 1.0}  # far enough for the axes' names on a phone
_HEIGHT = 400


@dataclass(frozen=True, kw_only=True)
class Plane:
    """What surfaces stand over."""

    clips: Sequence[float]
    sigmas: Sequence[float]


def shares(plane: Plane, *, title: str, heights: Sequence[Sequence[float]]) -> Chart:
    """Return a surface of accuracies; ``heights`` has a row for each sigma."""
    said = [[f"{100 * value:.2f}%" for value in row] for row in heights]
    chart = surface(
        title=title,
        x=plane.clips,
        y=_logarithms(plane.sigmas),
        z=heights,
        x_title="C",
        y_title="sigma",
        z_title="",  # the title says it; beside the axis a phone would cut it off
        z_format=".0%",
        height=_HEIGHT,
    )
    return _ticked(chart, plane, said, "accuracy")


def epsilons(
    plane: Plane, *, title: str, heights: Sequence[Sequence[float]], ends: tuple[float, float], caption: str
) -> Chart:
    """Return a surface of epsilons whose scale holds both ``ends``, so that several have the same one.

    The axes hold logarithms and have ticks of their own: plotly colours a surface by its height before it takes the
    logarithm, and a few small values would share one colour.
    """
    said = [[f"{value:.4g}" if value < 9_999.5 else f"{value:,.0f}" for value in row] for row in heights]
    chart = surface(
        title=title,
        x=plane.clips,
        y=_logarithms(plane.sigmas),
        z=[_logarithms(row) for row in heights],
        x_title="C",
        y_title="sigma",
        z_title="",
        caption=caption,
        height=_HEIGHT,
    )
    decades = range(math.floor(math.log10(ends[0])), math.ceil(math.log10(ends[1])) + 1)
    # The lowest tick has no words: they would stand on those of the sigma axis.
    ticks = {"tickvals": list(decades), "ticktext": ["", *map(_short, decades[1:])]}
    ticked = _ticked(chart, plane, said, "epsilon")
    trace = dict(ticked.data[0])
    trace |= {"cmin": decades[0], "cmax": decades[-1]}
    scene = dict(ticked.layout["scene"])
    scene["zaxis"] = scene["zaxis"] | ticks | {"range": [decades[0], decades[-1]]}
    return replace(ticked, data=[trace], layout=dict(ticked.layout) | {"scene": scene})


def _ticked(chart: Chart, plane: Plane, said: Sequence[Sequence[str]], what: str) -> Chart:
    """Return the chart with the grid's own values on its axes, and with what is said of a point where one hovers."""
    scene = dict(chart.layout["scene"])
    scene["xaxis"] = scene["xaxis"] | {"tickvals": list(plane.clips)}
    scene["yaxis"] = scene["yaxis"] | {
        "tickvals": _logarithms(plane.sigmas),
        "ticktext": [f"{value:g}" for value in plane.sigmas],
    }
    words = [
        [f"C {clip:g}, sigma {sigma:g}: {what} {text}" for clip, text in zip(plane.clips, row, strict=True)]
        for sigma, row in zip(plane.sigmas, said, strict=True)
    ]
    scene["camera"] = {"eye": _EYE, "center": {"x": 0, "y": 0, "z": -0.15}}
    # The height is on the axis; a bar that says it again in colours would take half the width of a phone.
    said_here = {"text": words, "hovertemplate": "%{text}<extra></extra>", "showscale": False}
    trace = {name: value for name, value in chart.data[0].items() if name != "colorbar"} | said_here
    return replace(chart, data=[trace], layout=dict(chart.layout) | {"scene": scene})


def _logarithms(values: Sequence[float]) -> list[float]:
    return [math.log10(value) for value in values]


def _short(power: int) -> str:
    """Return a power of ten in few letters: a phone has no room for noughts.

    >>> [_short(power) for power in (-1, 0, 2, 4, 6)]
    ['0.1', '1', '100', '10k', '1M']
    """
    steps, rest = divmod(power, 3) if power >= 0 else (0, power)
    return f"{10.0**rest:g}{('', 'k', 'M', 'G', 'T')[steps]}" if steps < 5 else f"1e{power}"
