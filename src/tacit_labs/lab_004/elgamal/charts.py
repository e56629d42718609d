"""The ElGamal lab's charts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from tacit.report.page import Chart, Series, bars, decades, line, with_axes
from tacit_labs.harness import quoted
from tacit_labs.harness.measuring import LAB, makers, named, pick
from tacit_labs.harness.tiles import tiles
from tacit_labs.lab_004.elgamal.checks import BUCKETS
from tacit_labs.lab_004.elgamal.measured import Batch, Measured, Stage, Stages

_STYLES = {LAB: 3, "textbook": 1, "gmpy2": 2, "native": 0}
_FULL = 4


def stages(found: Measured) -> Chart:
    """Return the three stages over the key size, before and after."""
    panels = {"safe prime": _lines(found, "prime"), "encryption": _lines(found, "encrypt")}
    panels["decryption"] = _lines(found, "decrypt")
    return tiles(
        title="Milliseconds of one operation",
        panels=panels,
        across=3,
        x_title="key bits",
        y_title="milliseconds",
        x_ticks=found.sizes.key_bits[:4],
        caption=(
            "A key takes a safe prime, and then a pair of exponents, which is in the table below. Both axes are "
            "logarithmic."
        ),
        panel_height=280,
    )


def _lines(found: Measured, stage: Stage) -> list[Series]:
    own, every = found.here.backend, found.sizes.key_bits
    lines = []
    for name, by, exponents, style in (
        ("textbook", "textbook", "short", _STYLES["textbook"]),
        (f"{named(own)}, full exponents", own, "full", _FULL),
        (f"{named(own)}, short exponents (default)", own, "short", _STYLES[own]),
    ):
        points = (
            []
            if stage == "prime" and exponents == "full"
            else [(b, found.seconds(b, stage, by, exponents)) for b in every]
        )
        shown = [(bits, value) for bits, value in points if value is not None]
        lines.append(Series(name=name, x=[bits for bits, _ in shown], y=[1000 * v for _, v in shown], style=style))
    lab = quoted.SAFE_PRIME if stage == "prime" else {}
    lines.append(Series(name=LAB, x=list(lab), y=[1000 * value for value in lab.values()], style=_STYLES[LAB]))
    return lines


def batches(found: Measured) -> Chart:
    """Return the time per number over the size of a batch."""
    bits, sizes = found.sizes.batch_bits, found.sizes.batches
    book = pick(found.stages, by="textbook", bits=bits)
    stages: dict[str, Callable[[Stages | Batch], float]] = {
        "encryption": lambda row: row.encrypt,
        "decryption": lambda row: row.decrypt,
        "product": lambda row: row.multiply,
    }
    panels = {}
    for name, seconds in stages.items():
        alone = [1e6 * seconds(book)] * len(sizes)
        lines = [Series(name="textbook", x=list(sizes), y=alone, style=_STYLES["textbook"])]
        for by in makers(found.batch):
            own = [row for row in found.batch if row.by == by]
            y = [1e6 * seconds(row) for row in own]
            lines.append(Series(name=named(by), x=[row.size for row in own], y=y, style=_STYLES[by]))
        panels[name] = lines
    return tiles(
        title=f"Microseconds per number, by the size of the batch, {bits}-bit key",
        panels=panels,
        across=3,
        x_title="numbers in a batch",
        y_title="microseconds per number",
        x_ticks=sizes,
        panel_height=280,
    )


def places(found: Measured) -> Chart:
    """Return where in [0, p) the ciphertexts of one number fall."""
    seen = found.randomness
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
    seen = found.randomness
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
    series.append(Series(name="fair coins", x=edges, y=coins, style=_FULL))
    return line(
        title="Bits that differ from one ciphertext to the next",
        series=series,
        x_title=f"bits that differ, of {width}",
        y_title="share of the pairs",
        y_format=".1%",
        from_zero=True,
    )


def products(found: Measured) -> Chart:
    """Return the time of a product by key size."""
    own, every = found.here.backend, found.sizes.key_bits
    book = [1e6 * pick(found.stages, by="textbook", bits=bits).multiply for bits in every]
    alone = [1e6 * pick(found.stages, by=own, bits=bits, exponents="short").multiply for bits in every]
    hand = [1e6 * pick(found.by_hand, by=own, bits=bits).seconds for bits in every]
    chart = bars(
        title="A product of two encrypted numbers",
        categories=[f"{bits} bits" for bits in every],
        series={"textbook": book, f"{named(own)}, one at a time": alone, "decrypt, multiply, encrypt (Tacit)": hand},
        y_title="microseconds",
        y_format=".3g",
        log_y=True,
        styles={"textbook": 1, f"{named(own)}, one at a time": 0, "decrypt, multiply, encrypt (Tacit)": 2},
    )
    return decades(chart, [*book, *alone, *hand])
