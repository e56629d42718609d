"""What all charts share: plotly's template, in the colours of the page's theme."""

from __future__ import annotations

from typing import Any

from tacit.report.page import palette

_AXIS: dict[str, Any] = {
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
_SPACE_AXIS: dict[str, Any] = {
    "gridcolor": "var(--grid)",
    "backgroundcolor": "var(--panel)",
    "color": "var(--ink)",
    "showbackground": True,
}


def template() -> dict[str, Any]:
    """Return plotly's template; ``var(--name)`` is read from the style sheet when a chart is drawn."""
    return {
        "layout": {
            "autosize": True,
            "colorway": [palette.colour(style) for style in range(palette.COUNT)],
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
