"""Logarithmic axes for people: whole decades, a label at each power of ten and none between."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from tacit.report.page import Chart


def decades(chart: Chart, values: Iterable[float | None], *, axis: str = "yaxis") -> Chart:
    """Return the chart with an axis over the decades that hold all values.

    >>> chart = decades(Chart(title="", data=[]), [0.02, 30, None])
    >>> chart.layout["yaxis"]["range"], chart.layout["yaxis"]["tickvals"]
    ([-2, 2], [0.01, 0.1, 1.0, 10.0, 100.0])
    """
    logs = [math.log10(value) for value in values if value is not None and value > 0]
    low, high = math.floor(min(logs)), math.ceil(max(logs))
    high = max(high, low + 1)
    ticks = [10.0**power for power in range(low, high + 1)]
    shown = dict(chart.layout.get(axis, {})) | {
        "type": "log",
        "range": [low, high],
        "tickvals": ticks,
        "ticktext": [f"{tick:,.0f}" if tick >= 1 else f"{tick:g}" for tick in ticks],
    }
    shown.pop("dtick", None)
    return replace(chart, layout=dict(chart.layout) | {axis: shown})
