"""Several small charts in one, on one scale, so that they can be compared at a glance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tacit.report.page import Axis, Chart, Series, Tick, decades, line

_LEGEND = 58  # pixels above and below the panels


def tiles(
    *,
    title: str,
    panels: Mapping[str, Sequence[Series]],
    across: int,
    x_title: str,
    y_title: str,
    x_ticks: Sequence[float],
    caption: str = "",
    panel_height: int = 220,
) -> Chart:
    """Return lines on logarithmic axes, a panel for each name, ``across`` of them in a row.

    All panels have the same series in the same order, so that one legend serves all; one with nothing to show in a
    panel has no points there.
    """
    values = [value for lines in panels.values() for one in lines for value in one.y]
    places = [math.log10(float(at)) for lines in panels.values() for one in lines for at in one.x if at is not None]
    edge = 0.1 * (max(places) - min(places)) + 0.02
    x = Axis(
        title=x_title,
        log=True,
        ends=(10 ** (min(places) - edge), 10 ** (max(places) + edge)),
        ticks=[Tick(at=at, text=f"{at:,g}") for at in x_ticks],
    )
    drawn = []
    for name, lines in panels.items():
        chart = line(title=name, series=lines, x_title=x_title, y_title=y_title, y_format=".3g")
        drawn.append(replace(decades(chart, values).panels[0], x=x, title=name))
    height = panel_height * math.ceil(len(panels) / across) + _LEGEND
    return Chart(title=title, panels=drawn, across=across, shared=True, caption=caption, height=height)
