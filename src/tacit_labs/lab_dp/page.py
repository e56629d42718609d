"""The page of the DP lab: its learning curve, its surfaces and its table, with ours beside."""

from __future__ import annotations

import math

from tacit.report.page import Card, Cards, Chart, Fold, Row, Section, Series, Table, Text, decades, line
from tacit.report.words import percent
from tacit.runs.result import Result
from tacit_labs.harness.experiment import Finding, Sheet
from tacit_labs.lab_dp import surface as surfaces
from tacit_labs.lab_dp.epsilon import TENSORS, coded, composed, formula
from tacit_labs.lab_dp.measured import CODED, MEANT, PLAIN, Measured

_NAMES = {  # curve -> its name and style, the same in every chart
    PLAIN: ("no noise", 0),
    MEANT: ("sigma C, as meant", 1),
    CODED: ("(sigma C)^2, as coded", 2),
}


def findings(measured: Measured) -> tuple[Finding, ...]:
    """Return what the lab had and what we got, in words."""
    curves = measured.curves
    clip, sigma, delta, rounds = measured.clip, measured.sigma, measured.delta, measured.rounds
    quoted = measured.lines[1]
    one = composed(sigma, 1, delta)
    a_round = coded(sigma, clip, delta, tensors=TENSORS)
    best, most_private = measured.best, measured.best_at(max(measured.sigmas))
    return (
        Finding(
            what=f"Epsilon at sigma {quoted.sigma:g}, C {quoted.clip:g}",
            original=f"{quoted.quoted:g}",
            ours=f"{quoted.exact:.1f} for one round, {quoted.composed:.1f} for six",
            why=(
                "The lab's formula takes sigma as the noise's deviation. The noise is sigma C, so that C cancels, "
                "and every round is a release of its own: they compose."
            ),
        ),
        Finding(
            what=f"Epsilon of the learning curve, C {clip:g}, sigma {sigma:g}",
            original=f"{formula(sigma, clip, delta):.1f} by its formula",
            ours=(
                f"{one:,.0f} for one round, {composed(sigma, rounds, delta):,.0f} for {rounds}; "
                f"as its code draws the noise {_large(a_round)} for one round"
            ),
            why=(
                "The code hands the variance to a function that expects the standard deviation, and clips each of "
                f"the {TENSORS} tensors of its CNN by itself, which multiplies the sensitivity by the root of "
                f"{TENSORS}."
            ),
        ),
        Finding(
            what="Epsilon over the grid",
            original="falls with C",
            ours="the same for every C",
            why=(
                "Noise that grows with C protects the same whatever C is. C trades what clipping loses against what "
                "noise loses, not privacy."
            ),
        ),
        Finding(
            what=f"Test accuracy after {rounds} rounds, C {clip:g}, sigma {sigma:g}",
            original=f"not known; with the noise of its code, run again: {percent(curves[CODED].test_accuracy)}",
            ours=f"{percent(curves[MEANT].test_accuracy)}; without noise {percent(curves[PLAIN].test_accuracy)}",
            why=(
                f"The noise that was meant is {1 / (sigma * clip):.0f} times that of the code, whose clipping, "
                f"tensor by tensor, also lets through up to {math.sqrt(measured.tensors):.1f} times as much of an "
                "update."
            ),
        ),
        Finding(
            what="Best point of the grid",
            original="not known",
            ours=(
                f"{percent(best.test_accuracy)} at C {best.values['dp.clip']:g}, sigma {best.values['dp.noise']:g}, "
                f"epsilon {best.epsilon or 0:,.0f}"
            ),
            why=(
                f"An epsilon that promises something costs accuracy: at sigma {max(measured.sigmas):g}, epsilon "
                f"{most_private.epsilon or 0:.3g}, the best of the grid is {percent(most_private.test_accuracy)}."
            ),
        ),
    )


def sections(measured: Measured) -> tuple[Section, ...]:
    """Return the figures and tables."""
    return (_learning(measured), _surfaces(measured), _table(measured))


def quoted_table(measured: Measured) -> Table:
    """Return the lab's table with the corrected and the composed values."""
    return Table(
        caption=(
            f"(sigma, C, epsilon) at delta {measured.delta:g}. Formula: the lab's. At sigma C: the same for noise "
            "of that deviation. Corrected: what one round of that noise costs, exactly. Composed: six rounds."
        ),
        columns=(
            "sigma",
            "C",
            "quoted",
            "formula",
            "at sigma C",
            "corrected",
            "composed",
        ),
        rows=tuple(
            (one.sigma, one.clip, one.quoted, one.formula, one.classical, one.exact, one.composed)
            for one in measured.lines
        ),
    )


def grid_sheet(measured: Measured) -> Sheet:
    """Return the grid for a CSV file."""
    names = ("train_accuracy", "test_accuracy", "test_loss", "epsilon", "delta", "seconds")
    return Sheet(
        columns=("C", "sigma", "seed", *names, "lab_formula_epsilon"),
        rows=[
            (
                row.values["dp.clip"],
                row.values["dp.noise"],
                row.seed,
                *(getattr(row, name) for name in names),
                formula(row.values["dp.noise"], row.values["dp.clip"], measured.delta),
            )
            for row in measured.rows
        ],
    )


def _learning(measured: Measured) -> Section:
    curves = measured.curves
    return Section(
        title="The learning curve",
        lead=(
            f"C {measured.clip:g}, sigma {measured.sigma:g}: three runs from the same first weights. Without noise "
            "nothing is clipped; the noise has deviation sigma C, as was meant, or (sigma C)^2, as the lab's code "
            "draws it."
        ),
        parts=(
            Cards(
                cards=[
                    Card(label=label, value=percent(curves[name].test_accuracy), detail=detail)
                    for label, name, detail in (
                        ("without privacy", PLAIN, "no epsilon"),
                        ("noise as it was meant", MEANT, f"epsilon {_large(_spent(curves[MEANT]))}"),
                        ("noise as the code draws it", CODED, f"epsilon {_large(_spent(curves[CODED]))}"),
                    )
                ]
            ),
            Row(
                parts=(
                    _over_rounds("Test accuracy", measured, "test_accuracy", "test accuracy", y_format=".1%"),
                    _over_rounds("Test loss", measured, "test_loss", "test loss, nats"),
                )
            ),
            _epsilons(measured),
        ),
    )


def _epsilons(measured: Measured) -> Chart:
    """Return what the two noisy curves have cost after each round."""
    series = [_series(measured, name, "epsilon") for name in (MEANT, CODED)]
    quoted = formula(measured.sigma, measured.clip, measured.delta)
    chart = line(
        title="Epsilon spent",
        series=series,
        x_title="round",
        y_title=f"epsilon at delta {measured.delta:g} (log scale)",
        log_y=True,
        levels={"the lab's formula": quoted},
        caption=(
            "Composed over the rounds so far, exact. None of these is a guarantee: beyond 20 an epsilon says "
            "nothing. They are here because the lab quoted one."
        ),
    )
    return decades(chart, [quoted, *(value for one in series for value in one.y)])


def _surfaces(measured: Measured) -> Section:
    plane = surfaces.Plane(clips=measured.clips, sigmas=measured.sigmas)
    ours = measured.grid("epsilon")
    theirs = [[formula(sigma, clip, measured.delta) for clip in measured.clips] for sigma in measured.sigmas]
    every = [value for grid in (ours, theirs) for row in grid for value in row]
    ends = (min(every), max(every))
    at = f"at delta {measured.delta:g}"
    return Section(
        title="C and sigma",
        lead=(
            "C is the clip bound, sigma the noise multiplier. Drag a surface to turn it, point at it to read it. "
            "Sigma and epsilon stand by factors of ten."
        ),
        parts=(
            Row(
                parts=(
                    surfaces.shares(plane, title="Training accuracy", heights=measured.grid("train_accuracy")),
                    surfaces.shares(plane, title="Test accuracy", heights=measured.grid("test_accuracy")),
                )
            ),
            Row(
                parts=(
                    surfaces.epsilons(
                        plane,
                        title="Epsilon by the lab's formula",
                        heights=theirs,
                        ends=ends,
                        caption=f"One round {at}, sigma taken as the deviation: it seems to fall with C.",
                    ),
                    surfaces.epsilons(
                        plane,
                        title="Epsilon, composed",
                        heights=ours,
                        ends=ends,
                        caption=f"All {measured.rounds} rounds {at}, exact: level in C.",
                    ),
                )
            ),
            _accuracies(measured),
        ),
    )


def _accuracies(measured: Measured) -> Table:
    """Return the grid's test accuracies and epsilons as a table; the best is marked."""
    heights = measured.grid("test_accuracy")
    spent = measured.grid("epsilon")
    best = measured.best
    where = (measured.sigmas.index(best.values["dp.noise"]), 1 + measured.clips.index(best.values["dp.clip"]))
    return Table(
        caption="Test accuracy: sigma down, C across; the best is marked. Epsilon is the same along a line.",
        columns=("sigma", *(f"C {clip:g}" for clip in measured.clips), f"epsilon, {measured.rounds} rounds"),
        rows=[
            (
                sigma,
                *(
                    percent(share) + (" (best)" if (number, column) == where else "")
                    for column, share in enumerate(line_, start=1)
                ),
                spent[number][0],
            )
            for number, (sigma, line_) in enumerate(zip(measured.sigmas, heights, strict=True))
        ],
        align="r" * (len(measured.clips) + 2),
        tones={where: "good"},
    )


def _table(measured: Measured) -> Section:
    return Section(
        title="The table of epsilons",
        parts=(
            quoted_table(measured),
            Text(
                text=(
                    "The classical formula is proved for epsilon up to 1. Beyond it can promise too little as well "
                    "as too much: at sigma 0.1 it says 37.8 where the noise costs 80.0."
                )
            ),
            Fold(
                summary="Two other readings of sigma",
                parts=(
                    Table(
                        caption="What rounds would cost if the noise had the deviation sigma, or (sigma C)^2 as coded.",
                        columns=(
                            "sigma",
                            "C",
                            "quoted",
                            "sigma, one round",
                            "sigma, six rounds",
                            "(sigma C)^2, one round",
                        ),
                        rows=tuple(
                            (one.sigma, one.clip, one.quoted, one.absolute, one.absolute_composed, one.coded)
                            for one in measured.lines
                        ),
                    ),
                    Text(
                        text=(
                            "Had the noise had deviation sigma, the four small quoted values would be safe for one "
                            "round and not for six. The last column counts one bound C for the whole update; with "
                            "each tensor clipped by itself it is larger still."
                        )
                    ),
                ),
            ),
        ),
    )


def _over_rounds(title: str, measured: Measured, name: str, label: str, *, y_format: str = ".4g") -> Chart:
    return line(
        title=title,
        series=[_series(measured, curve, name) for curve in measured.curves],
        x_title="round",
        y_title=label,
        y_format=y_format,
    )


def _series(measured: Measured, curve: str, name: str) -> Series:
    records = measured.curves[curve].rounds
    label, style = _NAMES[curve]
    return Series(
        name=label, x=[record.round for record in records], y=[getattr(record, name) for record in records], style=style
    )


def _spent(result: Result) -> float:
    return result.privacy.epsilon or 0.0


def _large(value: float) -> str:
    return f"{value / 1e6:.3g} million" if value >= 1e6 else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
