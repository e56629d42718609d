"""The Paillier lab's charts, times on logarithmic axes."""

from __future__ import annotations

from tacit.report.page import Chart, Series, bars, decades
from tacit_labs.harness import quoted
from tacit_labs.harness.measuring import LAB, makers, named, pick
from tacit_labs.harness.tiles import tiles
from tacit_labs.lab_paillier.jobs import OPERATIONS
from tacit_labs.lab_paillier.measured import Measured

_TITLES = {  # short enough for a telephone
    "encrypt": "encrypt",
    "encrypt, key holder": "encrypt, holder",
    "decrypt": "decrypt",
    "add": "add",
    "add constant": "add constant",
    "multiply by constant": "times constant",
    "subtract": "subtract",
    "re-randomise": "re-randomise",
    "exercise": "the exercise",
}
_STYLES = {LAB: 3, "textbook": 1, "gmpy2": 2, "native": 0}


def panels(found: Measured) -> Chart:
    """Return nine panels, an operation each, over the length of the integers."""
    return tiles(
        title="Milliseconds of one operation",
        panels={_TITLES[operation]: _lines(found, operation) for operation in OPERATIONS},
        across=3,
        x_title="bits",
        y_title="milliseconds",
        x_ticks=(10, 100, 1000),
        caption=(
            "Over the bits of the integers. Holder: whoever has the private key encrypts modulo p and q apart. The "
            "exercise: two encryptions, their sum and its decryption."
        ),
    )


def _lines(found: Measured, operation: str) -> list[Series]:
    lines = []
    for by in makers(found.grid):
        own = [row for row in found.grid if row.by == by and operation in row.seconds]
        x, y = [row.bits for row in own], [1000 * row.seconds[operation] for row in own]
        lines.append(Series(name=named(by), x=x, y=y, style=_STYLES[by]))
    return lines


def exercises(found: Measured) -> Chart:
    """Return the 1,000 operations, the lab's beside ours."""
    lengths = found.sizes.integers
    series = {LAB: [quoted.PAILLIER_EXERCISE.get(bits) for bits in lengths]}
    series |= {
        named(by): [pick(found.exercises, by=by, bits=bits).thousand for bits in lengths]
        for by in makers(found.exercises)
    }
    styles = {LAB: _STYLES[LAB]} | {named(by): _STYLES[by] for by in makers(found.exercises)}
    chart = bars(
        title=f"{quoted.PAILLIER_REPEATS:,} times two encryptions, their sum and its decryption",
        categories=[f"{bits}-bit integers" for bits in lengths],
        series=series,
        y_title="seconds",
        y_format=".3g",
        log_y=True,
        styles=styles,
    )
    return decades(chart, [0.1, *(value for values in series.values() for value in values)])


def learning(found: Measured) -> Chart:
    """Return an epoch and its stages, the lab's beside ours."""
    series: dict[str, list[float | None]] = {
        LAB: [quoted.CLIENT_ENCRYPTS, quoted.CLIENT_DECRYPTS, quoted.ENCRYPTED_EPOCH, quoted.PLAIN_EPOCH]
    }
    for one in found.encrypted:
        series[f"Tacit, {one.way}"] = [
            one.client_encrypts,
            one.sum_decrypted,
            one.epoch_seconds,
            found.plain.epoch_seconds,
        ]
    chart = bars(
        title="An epoch of MNIST",
        categories=["encrypt, per client", "decrypt", "epoch, encrypted", "epoch, plain"],
        series=series,
        y_title="seconds",
        y_format=".3g",
        log_y=True,
        styles={LAB: _STYLES[LAB]} | {name: place for place, name in enumerate(list(series)[1:])},
        caption="The plain epoch is the same run for all of Tacit's keys.",
        height=420,
    )
    return decades(chart, [value for values in series.values() for value in values])


def ladders(found: Measured) -> tuple[Chart, ...]:
    """Return the ways to encrypt an update, for both keys."""
    charts = []
    for bits in (found.sizes.key_bits, found.sizes.safe_bits):
        ways = list(found.steps(bits))
        names = [f"{one.way}: {named(one.by)}" + (" *" if one.sample else "") for one in ways]
        series: dict[str, list[float | None]] = {
            "encrypt": [quoted.CLIENT_ENCRYPTS, *(one.encrypt for one in ways)],
            "decrypt": [quoted.CLIENT_DECRYPTS, *(one.decrypt for one in ways)],
        }
        chart = bars(
            title=f"An update of {found.sizes.length:,} floats, {bits}-bit key",
            categories=["the lab (quoted)", *names],
            series=series,
            y_title="seconds, one thread",
            y_format=".3g",
            horizontal=True,
            log_y=True,
            caption="* extrapolated from a sample. How long the lab's key was in this experiment is not known to us.",
            height=120 + 46 * (len(names) + 1),
        )
        charts.append(decades(chart, [value for values in series.values() for value in values], axis="x"))
    return tuple(charts)
