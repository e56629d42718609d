"""The charts of a comparison; an entry has the same colour and dash in all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from tacit.report.page import (
    Axis,
    Chart,
    Key,
    Panel,
    Part,
    Points,
    Reference,
    Series,
    Text,
    bars,
    line,
    with_axes,
)
from tacit.runs.chance import Chance
from tacit.runs.remarks import LARGEST_MEANINGFUL
from tacit.studies.results import STAGES, Claimed, Entry

_FAR = 20.0  # sizes further apart than this are spaced by factors
_WIDTHS = (0.74, 0.26)  # of the panel of epsilons, and of that of those without
_STAGE_WORDS = {
    "train": "train",
    "protect": "protect (clip, noise, encrypt)",
    "travel": "travel (between processes)",
    "aggregate": "aggregate",
    "recover": "recover (release, decrypt)",
    "evaluate": "evaluate",
    "other": "other",
}


def curves(entries: Sequence[Entry], chance: Chance | None = None) -> Chart:
    """Return the test accuracy by round."""
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
    return line(
        title="Test accuracy by round",
        series=series,
        x_title="round",
        y_title="test accuracy",
        y_format=".1%",
        levels=_levels(chance),
        height=400,
    )


def _levels(chance: Chance | None, baseline: Entry | None = None) -> dict[str, float]:
    """Return the lines that every chart of accuracies has: chance, and what is reached without protection."""
    levels = {} if chance is None else {f"chance ({chance.share:.1%})": chance.share}
    if baseline is not None and baseline.accuracy is not None:
        levels[f"{baseline.name} ({baseline.accuracy.mean:.1%})"] = baseline.accuracy.mean
    return levels


def final(entries: Sequence[Entry], chance: Chance | None = None, baseline: Entry | None = None) -> Chart:
    """Return the accuracy after the last round, with its spread."""
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
        levels=_levels(chance, baseline),
        height=400,
    )


def traffic(entries: Sequence[Entry]) -> Chart:
    """Return what a client sends and is sent in a round."""
    sizes = [size for entry in entries for size in (entry.bytes_up, entry.bytes_down) if size]
    far = bool(sizes) and max(sizes) > _FAR * min(sizes)
    chart = bars(
        title="Bytes per client per round",
        categories=[entry.name for entry in entries],
        series={"up": [entry.bytes_up for entry in entries], "down": [entry.bytes_down for entry in entries]},
        y_title="bytes (by factors of ten)" if far else "bytes",
        y_format=".3s",
        height=400,
    )
    axis = replace(chart.panels[0].y, unit="B")
    if far:  # bars of a logarithm need a common ground that is said: the power of ten below the least
        low, high = 10.0 ** math.floor(math.log10(min(sizes))), max(sizes)
        axis = replace(axis, log=True, step=1, ends=(low, high * (high / low) ** 0.1))
    return with_axes(chart, y=axis)


def stages(entries: Sequence[Entry]) -> Chart:
    """Return where the time of a round goes."""
    spent = [entry.stages for entry in entries]
    return bars(
        title="Seconds per round, by stage",
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


def frontier(entries: Sequence[Entry], chance: Chance | None = None, baseline: Entry | None = None) -> Part:
    """Return accuracy against epsilon; those without a finite epsilon stand in a panel of their own."""
    claimed = [
        (style, entry, claim)
        for style, entry in enumerate(entries)
        for claim in entry.claims
        if entry.accuracy is not None and math.isfinite(claim.epsilon)
    ]
    if not claimed:
        return Text(text="None of these claims a finite epsilon, so there is no trade-off to draw.")
    kinds = list(dict.fromkeys(_kind(claim) for _, _, claim in claimed))
    keys = [Key(name=kind, symbol=place) for place, kind in enumerate(kinds)]
    claimed.sort(key=lambda found: (found[2].epsilon, found[1].accuracy.mean if found[1].accuracy else 0.0))
    axis = _axis([claim.epsilon for _, _, claim in claimed])
    spots = [(claim.epsilon or 1.0, entry.accuracy.mean) for _, entry, claim in claimed if entry.accuracy]
    series = []
    for place, (style, entry, claim) in enumerate(claimed):
        label = f"{entry.name} ({claim.unit})" if len(entry.claims) > 1 else entry.name
        series.append(
            replace(
                _point(entry, claim.epsilon, style=style, symbol=kinds.index(_kind(claim))),
                name=label,
                labels=[label],
                side=_side(place, spots, axis),
            )
        )
    ys = Axis(title="test accuracy", format=".1%")
    epsilons = [claim.epsilon for _, _, claim in claimed]
    beyond = max(epsilons) > LARGEST_MEANINGFUL > min(epsilons)
    edge = Reference(name=f"beyond {LARGEST_MEANINGFUL:g}: no guarantee", at=LARGEST_MEANINGFUL, upright=True)
    lines = [Reference(name=name, at=at) for name, at in _levels(chance, baseline).items()]
    panels = [
        Panel(
            drawing=Points(series=series, keys=keys), x=axis, y=ys, references=(*lines, *((edge,) if beyond else ()))
        ),
    ]
    apart = _without_epsilon(entries)
    if apart:
        title = "none or ∞" if any("∞" in one.name for one in apart) else "no epsilon"
        panels.append(Panel(drawing=Points(series=apart, keys=keys), x=Axis(title=title, names=True), y=ys))
    return Chart(
        title="Accuracy against epsilon",
        panels=panels,
        across=len(panels),
        widths=_WIDTHS[: len(panels)],
        shared=True,
        caption="A symbol is a kind of claim: what epsilon hides, and from whom. **Points with different symbols "
        "are not comparable by their epsilon.** Bars go from the lowest seed to the highest."
        + (" On the right: no finite epsilon, so no place on the axis." if apart else ""),
        height=480,
    )


def _kind(claim: Claimed) -> str:
    return f"unit {claim.unit}, {claim.neighbours}, against {claim.against}"


def _axis(epsilons: Sequence[float]) -> Axis:
    """Return the axis of epsilons by factors, with room for the labels."""
    low, high = math.log10(min(epsilons)), math.log10(max(epsilons))
    room = max(0.4, 0.35 * (high - low))
    return Axis(
        title="epsilon of the whole run",
        log=True,
        format=".3g",
        ends=(10 ** (low - room), 10 ** (high + room)),
        step=1 if high - low > 2 else None,
    )


def _side(place: int, spots: Sequence[tuple[float, float]], axis: Axis) -> Literal["left", "right"]:
    """Return where a point's label goes: to the left where another point comes soon on its right."""
    low, high = axis.ends or (1.0, 10.0)
    x, y = spots[place]
    near = any(
        abs(math.log10(other / x)) < 0.3 * math.log10(high / low) and abs(height - y) < 0.05
        for other, height in spots[place + 1 :]
    )
    return "left" if near else "right"


def _point(entry: Entry, x: float | str, *, style: int, symbol: int) -> Series:
    spread = entry.accuracy
    assert spread is not None
    return Series(
        name=entry.name,
        x=[x],
        y=[spread.mean],
        low=[spread.lowest],
        high=[spread.highest],
        style=style,
        symbol=symbol,
    )


def _without_epsilon(entries: Sequence[Entry]) -> list[Series]:
    series = []
    for style, entry in enumerate(entries):
        infinite = any(claim.epsilon == math.inf for claim in entry.claims)
        if entry.accuracy is None or (entry.claims and not infinite):
            continue
        label = f"{entry.name} (∞)" if infinite else entry.name
        series.append(replace(_point(entry, label, style=style, symbol=0), name=label, hollow=True))
    return series
