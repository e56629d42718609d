"""Charts of report 004's ElGamal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from tacit.report.page import Chart, Series, Tick, bars, decades, line, with_axes
from tacit_labs.harness.tiles import tiles
from tacit_labs.lab_004.elgamal import quoted
from tacit_labs.lab_004.elgamal.checks import BUCKETS
from tacit_labs.lab_004.elgamal.measured import Measured

_QUOTED, _HERE, _TACIT = 3, 1, 0
_COINS = 4


def stages(found: Measured) -> Chart:
    """Return the three stages over the key size: the report's figures, its algorithms here, Tacit."""
    panels = {}
    for stage, title in (("key", "1: key generation"), ("encrypt", "2: encryption"), ("decrypt", "3: decryption")):
        panels[title] = [
            _over("the report", {bits: getattr(row, stage) for bits, row in quoted.STAGES.items()}, _QUOTED),
            _over("its algorithms here", {b: 1000 * row.mean(stage) for b, row in found.report.items()}, _HERE),
            _over("Tacit", {b: 1000 * row.mean(stage) for b, row in found.tacit.items()}, _TACIT),
        ]
    return tiles(
        title="The three stages, milliseconds by key size",
        panels=panels,
        across=3,
        x_title="key bits",
        y_title="milliseconds",
        x_ticks=list(quoted.STAGES),
        caption="Both axes are logarithmic.",
        panel_height=280,
    )


def keys(found: Measured) -> Chart:
    """Return key generation before and after, and ours."""
    before = {bits: value for bits, value in quoted.KEY_BEFORE.items() if value is not None}
    here = {bits: 1000 * row.mean for bits, row in found.factoring.items() if row.seconds}
    series = [
        _over("before, the report", before, 2),
        _over("before, here", here, 5),
        _over("after, the report", {bits: row.key for bits, row in quoted.STAGES.items()}, _QUOTED),
        _over("after, here", {bits: 1000 * row.mean("key") for bits, row in found.report.items()}, _HERE),
        _over("Tacit", {bits: 1000 * row.mean("key") for bits, row in found.tacit.items()}, _TACIT),
    ]
    chart = line(
        title="Key generation: before, after, and Tacit",
        series=series,
        x_title="key bits (log scale)",
        y_title="milliseconds (log scale)",
        log_x=True,
        log_y=True,
    )
    values = [value for one in series for value in one.y]
    return decades(_marked(chart), values)


def batches(found: Measured) -> Chart:
    """Return milliseconds per message with a key each and with one key."""
    bits = list(found.report_batch)
    series = {
        "a key each, the report": [quoted.PER_MESSAGE[one][0] for one in bits],
        "a key each, here": [1000 * found.report_batch[one].each for one in bits],
        "one key, the report": [quoted.PER_MESSAGE[one][1] for one in bits],
        "one key, here": [1000 * found.report_batch[one].one for one in bits],
        "Tacit, a key each": [1000 * found.tacit_batch[one].each for one in bits],
        "Tacit, one key, one call": [1000 * (found.tacit_batch[one].vector or 0.0) for one in bits],
    }
    chart = bars(
        title=f"A batch of {found.sizes.batch:,}: milliseconds per message",
        categories=[f"{one} bits" for one in bits],
        series=series,
        y_title="milliseconds per message",
        y_format=".3g",
        log_y=True,
    )
    return decades(chart, [value for one in series.values() for value in one])


def places(found: Measured) -> Chart:
    """Return where in [0, p) the ciphertexts of one number fall."""
    seen = found.looks
    expected = seen.count / BUCKETS
    chart = bars(
        title=f"Where {seen.count:,} ciphertexts of the number {seen.message} fall",
        categories=[f"{place / BUCKETS:.2f}" for place in range(BUCKETS)],
        series={name: list(half.buckets) for name, half in seen.halves.items()},
        x_title="share of p at which a bin begins",
        y_title="ciphertexts",
        caption=f"Uniform numbers would give {expected:.0f} per bin, give or take {math.sqrt(expected):.0f}.",
    )
    return with_axes(chart, x=replace(chart.panels[0].x, step=5))


def flips(found: Measured) -> Chart:
    """Return how many bits differ between ciphertexts of one number, beside fair coins."""
    seen = found.looks
    width = next(iter(seen.halves.values())).lower_bits
    middle, spread = width / 2, math.sqrt(width) / 2
    step = max(1, round(spread / 2))
    edges = [middle + step * k for k in range(-8, 9)]
    series = []
    for name, half in seen.halves.items():
        shares = [sum(abs(flip - edge) < step / 2 for flip in half.flips) for edge in edges]
        total = sum(shares)
        series.append(Series(name=name, x=edges, y=[share / total for share in shares]))
    coins = [
        step / spread / math.sqrt(2 * math.pi) * math.exp(-(((edge - middle) / spread) ** 2) / 2) for edge in edges
    ]
    series.append(Series(name="fair coins", x=edges, y=coins, style=_COINS))
    return line(
        title="Bits that differ from one ciphertext to the next",
        series=series,
        x_title=f"bits that differ, of {width}",
        y_title="share of the pairs",
        y_format=".1%",
        from_zero=True,
    )


def _over(name: str, values: Mapping[int, float], style: int) -> Series:
    shown = sorted(values)
    return Series(name=name, x=shown, y=[values[bits] for bits in shown], style=style)


def _marked(chart: Chart) -> Chart:
    """Return a chart with the key sizes below it."""
    ticks = [Tick(at=bits, text=str(bits)) for bits in quoted.STAGES]
    return with_axes(chart, x=replace(chart.panels[0].x, ticks=ticks))
