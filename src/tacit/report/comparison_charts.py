"""The charts of a comparison; an entry has the same colour and dash in all of them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tacit.report.page import Chart, Part, Series, Text, bars, line, palette, plain
from tacit.runs.comparison import STAGES, Claimed, Entry, epsilon_of
from tacit.runs.remarks import LARGEST_MEANINGFUL

_LEGEND = 38  # letters of a line of the legend; more would not fit a phone
_FAR = 20.0  # sizes further apart than this are spaced by factors
_APART = 0.76  # where the panel of those without an epsilon begins
_STAGE_WORDS = {
    "train": "train",
    "protect": "protect (clip, noise, encrypt)",
    "travel": "travel (between processes)",
    "aggregate": "aggregate",
    "recover": "recover (release, decrypt)",
    "evaluate": "evaluate",
    "other": "other",
}


def curves(entries: Sequence[Entry]) -> Chart:
    """Draw the test accuracy by round."""
    series = []
    for style, entry in enumerate(entries):
        spreads = [spread for _, spread in entry.curve]
        banded = any(spread.count > 1 for spread in spreads)
        series.append(
            Series(
                name=entry.name,
                x=[number for number, _ in entry.curve],
                y=[spread.mean for spread in spreads],
                low=[spread.lowest for spread in spreads] if banded else None,
                high=[spread.highest for spread in spreads] if banded else None,
                style=style,
            )
        )
    chart = line(
        title="Test accuracy by round",
        series=series,
        x_title="round",
        y_title="test accuracy",
        y_format=".1%",
        height=400,
    )
    if max((entry.rounds for entry in entries), default=0) <= 10:  # otherwise plotly would mark half rounds
        return _with_axis(chart, "xaxis", {"dtick": 1})
    return chart


def final(entries: Sequence[Entry]) -> Chart:
    """Draw the accuracy after the last round, with its spread."""
    name = "test accuracy"
    spreads = [entry.accuracy for entry in entries]
    return bars(
        title="Test accuracy after the last round",
        categories=[entry.name for entry in entries],
        series={name: [None if spread is None else spread.mean for spread in spreads]},
        low={name: [None if spread is None else spread.lowest for spread in spreads]},
        high={name: [None if spread is None else spread.highest for spread in spreads]},
        y_title=name,
        y_format=".1%",
        height=400,
    )


def traffic(entries: Sequence[Entry]) -> Chart:
    """Draw what a client sends and is sent in a round."""
    sizes = [size for entry in entries for size in (entry.bytes_up, entry.bytes_down) if size]
    decades = bool(sizes) and max(sizes) > _FAR * min(sizes)
    chart = bars(
        title="Bytes of a client in a round",
        categories=[entry.name for entry in entries],
        series={"up": [entry.bytes_up for entry in entries], "down": [entry.bytes_down for entry in entries]},
        y_title="bytes (by factors of ten)" if decades else "bytes",
        y_format=".3s",
        log_y=decades,
        height=400,
    )
    axis: dict[str, Any] = {"tickformat": "~s", "ticksuffix": "B"}
    if decades:  # bars of a logarithm need a common ground that is said: the power of ten below the least
        low, high = math.floor(math.log10(min(sizes))), math.log10(max(sizes))
        axis |= {"dtick": 1, "range": [low, high + 0.1 * (high - low)]}
    return _with_axis(chart, "yaxis", axis)


def stages(entries: Sequence[Entry]) -> Chart:
    """Draw where the time of a round goes."""
    spent = [entry.stages for entry in entries]
    return bars(
        title="Seconds of a round, by stage",
        categories=[entry.name for entry in entries],
        series={
            _STAGE_WORDS[stage]: [own.get(stage) for own in spent]
            for stage in STAGES
            if any(own.get(stage) for own in spent)
        },
        styles={words: place for place, words in enumerate(_STAGE_WORDS.values())},
        stacked=True,
        y_title="seconds, all clients of the round together",
        height=400,
    )


def frontier(entries: Sequence[Entry]) -> tuple[Part, ...]:
    """Draw accuracy against epsilon; those without a finite epsilon stand in a panel of their own."""
    claimed = [
        (style, entry, claim)
        for style, entry in enumerate(entries)
        for claim in entry.claims
        if entry.accuracy is not None and math.isfinite(epsilon_of(claim) or 0.0)
    ]
    if not claimed:
        return (Text(text="None of these claims a finite epsilon, so there is no trade-off to draw."),)
    kinds = list(dict.fromkeys(_kind(claim) for _, _, claim in claimed))
    data = [_kind_key(kind, place) for place, kind in enumerate(kinds)]
    claimed.sort(key=lambda found: (epsilon_of(found[2]) or 0.0, found[1].accuracy.mean if found[1].accuracy else 0.0))
    spots = [
        (math.log10(epsilon_of(claim) or 1.0), entry.accuracy.mean) for _, entry, claim in claimed if entry.accuracy
    ]
    for place, (style, entry, claim) in enumerate(claimed):
        label = f"{entry.name} ({claim.unit})" if len(entry.claims) > 1 else entry.name
        data.append(
            _point(entry, label, style)
            | {
                "x": [epsilon_of(claim)],
                "mode": "markers+text",
                "text": [plain(label)],
                "textposition": f"middle {_side(place, spots)}",
                "marker": {
                    "size": 12,
                    "symbol": palette.symbol(kinds.index(_kind(claim))),
                    "color": palette.colour(style),
                },
                "hovertemplate": f"{plain(label)}: epsilon %{{x:.3g}}, accuracy %{{y:.1%}}<extra></extra>",
            }
        )
    apart = _without_epsilon(entries)
    data += apart
    return (
        Chart(
            title="Accuracy against epsilon",
            data=data,
            layout=_layout([epsilon_of(claim) or 0.0 for _, _, claim in claimed], apart=_apart_title(apart)),
            caption="A symbol is a kind of claim: what epsilon hides, and from whom. **Points with different symbols "
            "are not comparable by their epsilon.** Bars go from the lowest seed to the highest."
            + (" On the right: no finite epsilon, so no place on the axis." if apart else ""),
            height=480,
        ),
    )


def _with_axis(chart: Chart, axis: str, more: dict[str, Any]) -> Chart:
    return replace(chart, layout={**chart.layout, axis: {**chart.layout.get(axis, {}), **more}})


def _kind(claim: Claimed) -> str:
    return f"unit {claim.unit}, {claim.neighbours}, against {claim.against}"


def _side(place: int, spots: Sequence[tuple[float, float]]) -> str:
    """Return where a point's label goes: to the left where another point comes soon on its right."""
    low, high = _decades([10**x for x, _ in spots])
    x, y = spots[place]
    later = spots[place + 1 :]
    near = any(abs(other - x) < 0.3 * (high - low) and abs(height - y) < 0.05 for other, height in later)
    return "left" if near else "right"


def _kind_key(kind: str, place: int) -> dict[str, Any]:
    """Return the legend's line for a kind of claim."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "<br>".join(map(plain, textwrap.wrap(kind, _LEGEND))),
        "x": [None],
        "y": [None],
        "marker": {"size": 11, "symbol": palette.symbol(place), "color": "var(--ink)"},
    }


def _point(entry: Entry, label: str, style: int) -> dict[str, Any]:
    spread = entry.accuracy
    assert spread is not None
    return {
        "type": "scatter",
        "name": plain(label),
        "y": [spread.mean],
        "showlegend": False,
        "cliponaxis": False,
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [spread.highest - spread.mean],
            "arrayminus": [spread.mean - spread.lowest],
            "thickness": 1.5,
            "width": 4,
            "color": palette.colour(style),
        },
    }


def _without_epsilon(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    traces = []
    for style, entry in enumerate(entries):
        if entry.accuracy is None:
            continue
        infinite = any(epsilon_of(claim) == math.inf for claim in entry.claims)
        if entry.claims and not infinite:
            continue
        label = f"{entry.name} (∞)" if infinite else entry.name
        traces.append(
            _point(entry, label, style)
            | {
                "x": [plain(label)],
                "xaxis": "x2",
                "mode": "markers",
                "marker": {"size": 12, "symbol": "circle-open", "color": palette.colour(style), "line": {"width": 2}},
                "hovertemplate": f"{plain(label)}: accuracy %{{y:.1%}}<extra></extra>",
            }
        )
    return traces


def _apart_title(traces: Sequence[dict[str, Any]]) -> str:
    if not traces:
        return ""
    return "none or ∞" if any("∞" in trace["name"] for trace in traces) else "no epsilon"


def _decades(epsilons: Sequence[float]) -> list[float]:
    """Return the ends of the axis as powers of ten, with room for the labels."""
    low, high = math.log10(min(epsilons)), math.log10(max(epsilons))
    room = max(0.4, 0.35 * (high - low))
    return [low - room, high + room]


def _layout(epsilons: Sequence[float], *, apart: str) -> dict[str, Any]:
    layout: dict[str, Any] = {
        "xaxis": {
            "title": {"text": "epsilon of the whole run"},
            "type": "log",
            "domain": [0.0, _APART - 0.06 if apart else 1.0],
            "range": _decades(epsilons),
            "exponentformat": "power",
            **({"dtick": 1} if max(epsilons) > 100 * min(epsilons) else {}),
        },
        "yaxis": {"title": {"text": "test accuracy"}, "tickformat": ".0%"},
        "hovermode": "closest",
        "legend": {"orientation": "v", "x": 0, "y": -0.22, "yanchor": "top"},
    }
    if apart:
        layout["xaxis2"] = {
            "title": {"text": apart},
            "type": "category",
            "domain": [_APART, 1.0],
            "showgrid": False,
            "automargin": True,
        }
    if max(epsilons) > LARGEST_MEANINGFUL > min(epsilons):
        edge = math.log10(LARGEST_MEANINGFUL)
        layout["shapes"] = [
            {
                "type": "line",
                "x0": LARGEST_MEANINGFUL,
                "x1": LARGEST_MEANINGFUL,
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "line": {"color": "var(--bad)", "dash": "dot", "width": 1},
            }
        ]
        layout["annotations"] = [
            {
                "x": edge,
                "y": 1,
                "yref": "paper",
                "xanchor": "left",
                "yanchor": "top",
                "text": f"beyond {LARGEST_MEANINGFUL:g}: no guarantee",
                "showarrow": False,
                "font": {"size": 11, "color": "var(--bad)"},
            }
        ]
    return layout
