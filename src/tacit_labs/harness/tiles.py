"""Several small charts in one, on one scale, so that they can be compared at a glance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.report.page import Chart, Series, line
from tacit_labs.harness.decades import decades

_LEGEND, _BOTTOM = 46, 12  # pixels above and below the panels
_NAME, _TICKS = 24, 40  # pixels above a panel for its name, and below it for what stands at its axis


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
    """Draw lines on logarithmic axes, a panel for each name, ``across`` of them in a row.

    All panels have the same series in the same order, so that one legend serves all; one with nothing to show in a
    panel has no points there.
    """
    down = math.ceil(len(panels) / across)
    values = [value for lines in panels.values() for one in lines for value in one.y]
    places = [math.log10(float(at)) for lines in panels.values() for one in lines for at in one.x if at is not None]
    edge = 0.1 * (max(places) - min(places)) + 0.02
    height = panel_height * down
    layout: dict[str, Any] = {
        "annotations": [],
        "hovermode": "x unified",
        "margin": {"t": _LEGEND, "b": _BOTTOM},
        "legend": {"y": 1, "yanchor": "bottom"},
    }
    named: set[str] = set()  # series that the legend has
    data: list[dict[str, Any]] = []
    for place, (name, lines) in enumerate(panels.items()):
        row, column = divmod(place, across)
        number = str(place + 1) if place else ""
        last = row == down - 1
        x = [column / across, (column + 0.86) / across]
        y = [
            1 - ((row + 1) * panel_height - _TICKS) / height,
            1 - (row * panel_height + _NAME) / height,
        ]
        panel = decades(
            line(title=name, series=lines, x_title="", y_title="", log_x=True, log_y=True, y_format=".3g"), values
        )
        for one, trace in zip(lines, panel.data, strict=True):
            if one.y:  # plotly has no line in its legend for a series without points
                first, axes = one.name not in named, {"xaxis": f"x{number}", "yaxis": f"y{number}"}
                data.append({**trace, **axes, "legendgroup": one.name, "showlegend": first})
                named.add(one.name)
        layout[f"xaxis{number}"] = dict(panel.layout["xaxis"]) | {
            "domain": x,
            "anchor": f"y{number}",
            "range": [min(places) - edge, max(places) + edge],
            "tickvals": list(x_ticks),
            "title": {"text": x_title if last else ""},
        }
        layout[f"yaxis{number}"] = dict(panel.layout["yaxis"]) | {
            "domain": y,
            "anchor": f"x{number}",
            "showticklabels": column == 0,
            "title": {"text": y_title if column == 0 else ""},
        }
        words = {"text": name, "x": x[0], "y": y[1], "xref": "paper", "yref": "paper", "showarrow": False}
        layout["annotations"].append(words | {"font": {"size": 12}, "xanchor": "left", "yanchor": "bottom"})
    return Chart(title=title, data=data, layout=layout, caption=caption, height=height + _LEGEND + _BOTTOM)
