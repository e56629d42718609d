"""What is shown of report 004's DP-SGD: its three sweeps, its claims one by one, and what else could be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tacit.report.page import Chart, Fold, Note, Row, Section, Series, Table, Text, Tone, decades, line
from tacit_labs.harness.experiment import Finding, Sheet
from tacit_labs.lab_004.dpsgd import figures
from tacit_labs.lab_004.dpsgd.measured import NAMES, Measured, Rise, Trained, Way, ordered

_TITLES = {"epsilon": "Epsilon", "delta": "Delta", "iterations": "Iterations"}
_STYLES: dict[Way, int] = {"normal": 0, "reported": 1, "tight": 2, "ours": 3}
_PICTURES = "a figure without numbers in the text"
_CLAIM = 0.002  # of the budget, "0.2%"
_ERRORS = 2.0  # standard errors within which a difference may be chance
_VERDICTS: dict[bool | None, tuple[str, Tone]] = {
    True: ("as it says", "good"),
    False: ("not so", "bad"),
    None: ("within chance", "warn"),
}


def findings(measured: Measured) -> tuple[Finding, ...]:
    """Return what the report had and what we got, in words."""
    found = [
        _iterations(measured),
        _ends(measured, "epsilon"),
        _ends(measured, "delta"),
        _substitutions(measured),
        _squared(measured),
        _uncovered(measured),
        _least(measured),
    ]
    return tuple(one for one in found if one is not None)


def _iterations(measured: Measured) -> Finding | None:
    reported, normal = measured.line("iterations", "reported"), measured.line("iterations", "normal")
    if not reported:
        return None
    best = max(reported, key=lambda point: point.mean)
    return Finding(
        what="DP-SGD over iterations: the rise and the fall",
        original="“先上升后再大幅下降” (rises, then falls sharply), while Normal rises; " + _PICTURES,
        ours=(
            f"{_percent(reported[0])} at {reported[0].iterations}, best {_percent(best)} at {best.iterations:,}, "
            f"{_percent(reported[-1])} at {reported[-1].iterations:,}; Normal {_percent(normal[0])} to "
            f"{_percent(normal[-1])}"
        ),
        why=(
            f"The report's rise and fall. With {measured.rise.seeds} seeds the rise is {_gain(measured.rise)}; "
            f"otherwise: {'; '.join(map(_gain, measured.others))}."
        ),
        headline=True,
    )


def _gain(rise: Rise) -> str:
    points, error = rise.gain
    return f"{points:+.1f} ± {error:.1f} points from {rise.first} to {rise.best} iterations ({rise.name})"


def _ends(measured: Measured, sweep: str) -> Finding | None:
    reported, normal = measured.line(sweep, "reported"), measured.line(sweep, "normal")
    if not reported:
        return None
    said = {
        "epsilon": "“贴近Normal” (comes close to Normal) as epsilon grows",
        "delta": "the same for delta, 1 to 1e-7",
    }
    gaps = [100 * (plain.mean - private.mean) for plain, private in zip(normal, reported, strict=True)]
    last = reported[-1]
    promise = "; at delta 1 any mechanism keeps the promise: no privacy" if last.delta >= 1.0 else ""
    return Finding(
        what=f"DP-SGD over {sweep}",
        original=f"{said[sweep]}; {_PICTURES}",
        ours=(
            f"{_percent(reported[0])} at {reported[0].value:g} to {_percent(last)} at {last.value:g}, Normal "
            f"{_percent(normal[-1])}: {gaps[0]:.1f} points below it, then {gaps[-1]:.1f}{promise}"
        ),
        why="As the report says: less noise for a weaker promise."
        + (" Delta enters by a logarithm, so it matters less than epsilon does." if sweep == "delta" else ""),
        headline=True,
    )


def _substitutions(measured: Measured) -> Finding:
    own, ten = ([100 * share for share in measured.unspent[epsilon].values()] for epsilon in (measured.epsilon, 10.0))
    return Finding(
        what="Two substitutions instead of an equation that can't be solved",
        original="“不超过0.2%” (at most 0.2%) of the budget left, 100 to 10,000 iterations",
        ours=f"{min(own):.3f} to {max(own):.3f}% at epsilon {measured.epsilon:g}, {min(ten):.1f} to {max(ten):.1f}% at "
        "epsilon 10",
        why="True for the report's baseline. Its second substitution is good only where the share of a step is small: "
        "beyond epsilon 1 more is left. The total never exceeds the budget, as it says.",
        headline=True,
    )


def _squared(measured: Measured) -> Finding | None:
    squared = ordered(measured.squared, "iterations", "reported")
    entropy = measured.line("iterations", "reported")
    if not squared:
        return None
    worst = max(range(len(squared)), key=lambda place: entropy[place].mean - squared[place].mean)
    normal = ordered(measured.squared, "iterations", "normal")[-1]
    return Finding(
        what="L2 loss instead of cross-entropy",
        original="offered as a choice in a comment of its code, “# L2_loss”, without results",
        ours=f"{_percent(squared[0])} at {squared[0].iterations}, {_percent(squared[-1])} at "
        f"{squared[-1].iterations:,} iterations; {_percent(normal)} without privacy. Furthest below cross-entropy at "
        f"{squared[worst].iterations:,}: {_percent(squared[worst])} and {_percent(entropy[worst])}",
        why="Its gradients are those of the cross-entropy times p(1 - p), at most a quarter: the same noise drowns "
        "them sooner.",
        headline=True,
    )


def _uncovered(measured: Measured) -> Finding:
    protected, exact = measured.protected, measured.line("iterations", "reported")
    gaps = [100 * abs(a.mean - b.mean) for a, b in zip(protected, exact, strict=True)]
    return Finding(
        what="What no epsilon of the report covers",
        original="z-scores with the patients' own means and deviations; the code that it shows clips and noises dw, "
        "the gradient of the weights, alone",
        ours="public bounds instead of z-scores, and the bias clipped and noised as a weight"
        + (f"; the bias changes accuracy by at most {max(gaps):.1f} points here" if gaps else ""),
        why="Statistics of the patients and an exact gradient of the bias, which its public code has, are releases "
        "too. What a protected bias changes is below.",
    )


def _least(measured: Measured) -> Finding:
    found = _centre(measured)
    noises = found["reported"].noise_multiplier or 0.0, found["tight"].noise_multiplier or 1.0
    spent = measured.spent[found["reported"].sweep, found["reported"].value]
    return Finding(
        what=f"Noise for epsilon {measured.epsilon:g}, delta {measured.delta:g}, {measured.iterations:,} iterations",
        original=f"multiplier {noises[0]:.1f} by its formulas; accuracy {_percent(found['reported'])}, run again",
        ours=f"multiplier {noises[1]:.2f}; accuracy {_percent(found['tight'])} with its features, "
        f"{_percent(found['ours'])} with public bounds",
        why=f"Advanced composition and the classical formula are bounds upon bounds. What the report's noise spends is "
        f"epsilon {spent:.2g}, not {measured.epsilon:g}.",
        headline=True,
    )


def sections(measured: Measured) -> tuple[Section, ...]:
    """Return the figures and tables."""
    return (
        *(_sweep(measured, name) for name in measured.sweeps),
        _claims_section(measured),
        _loss(measured),
        _left_open(measured),
        _approximation(measured),
        _numbers(measured),
    )


def accuracy_table(measured: Measured) -> Table:
    """Return every setting: accuracy each way."""
    rows = []
    for sweep, value in measured.settings:
        found = measured.at(sweep, value)
        cells = [_cell(found[way]) if way in found else None for way in NAMES]
        rows.append((sweep, _value(sweep, value), *cells))
    return Table(
        caption="DP-SGD: test accuracy, mean ± deviation over seeds: Normal, the report's noise and the least for the "
        "same promise on its features, and Tacit on public bounds. Delta 1 promises nothing: every mechanism keeps "
        "it, the least noise is none, and Tacit refuses it.",
        columns=("sweep", "value", "Normal", "the report's", "least noise", "Tacit"),
        rows=rows,
        align="lrrrrr",
    )


def claims(measured: Measured) -> Table:
    """Return what the report says of its curves and formulas, each with what we find."""
    rows: list[tuple[str, str, bool | None]] = []  # None is within chance
    for sweep in ("epsilon", "delta"):
        reported, normal = measured.line(sweep, "reported"), measured.line(sweep, "normal")
        if reported:
            gaps = [100 * (plain.mean - private.mean) for plain, private in zip(normal, reported, strict=True)]
            rows.append(
                (
                    f"At small {sweep} DP-SGD is well below Normal, and comes close to it as {sweep} grows",
                    f"{gaps[0]:.1f} points below at {reported[0].value:g}, {gaps[-1]:.1f} at {reported[-1].value:g}",
                    gaps[0] > gaps[-1],
                )
            )
    reported, normal = measured.line("iterations", "reported"), measured.line("iterations", "normal")
    if reported:
        best = max(point.mean for point in reported)
        gain, error = measured.rise.gain
        rows += [
            (
                "With more iterations Normal rises",
                f"{_percent(normal[0])} to {_percent(normal[-1])}",
                normal[-1].mean > normal[0].mean,
            ),
            (
                "DP-SGD rises a little at first (“稍微提高”)",
                f"{100 * reported[0].mean:.1f} to {100 * best:.1f}%; {measured.rise.seeds} seeds: "
                f"{_gain(measured.rise)}",
                None if abs(gain) < _ERRORS * error else gain > 0.0,
            ),
            (
                "then falls sharply",
                f"{100 * best:.1f} to {_percent(reported[-1])}",
                100 * (best - reported[-1].mean) > 5.0,
            ),
            (
                "The distance between the two grows with iterations",
                f"{100 * (normal[0].mean - reported[0].mean):.1f} to "
                f"{100 * (normal[-1].mean - reported[-1].mean):.1f} points",
                normal[-1].mean - reported[-1].mean > normal[0].mean - reported[0].mean,
            ),
        ]
    own = measured.unspent[measured.epsilon].values()
    rows += [
        (
            "The substitutions leave at most 0.2% of the budget, 100 to 10,000 iterations",
            f"at most {100 * max(own):.3f}% at epsilon {measured.epsilon:g}, delta {measured.delta:g}",
            max(own) <= _CLAIM,
        ),
        (
            "and never exceed it",
            f"least left, of all epsilons tried: {100 * min(min(v.values()) for v in measured.unspent.values()):.2g}%",
            all(share >= 0.0 for by in measured.unspent.values() for share in by.values()),
        ),
        (
            "Features differ by four orders of magnitude at least",
            f"standard deviations from {measured.scaling.narrowest:.2g} to {measured.scaling.widest:.3g}: "
            f"{measured.scaling.orders:.1f} orders",
            measured.scaling.orders >= 4.0,
        ),
        (
            "so training needs them scaled",
            f"{100 * np.mean(measured.scaling.raw):.1f}% without, {100 * np.mean(measured.scaling.scaled):.1f}% with "
            f"z-scores, {measured.iterations:,} iterations without privacy",
            float(np.mean(measured.scaling.raw)) < float(np.mean(measured.scaling.scaled)),
        ),
    ]
    tones: dict[tuple[int, int], Tone] = {(place, 2): _VERDICTS[row[2]][1] for place, row in enumerate(rows)}
    return Table(
        caption="What the report says (in our words, but for the quotations), and what comes out here.",
        columns=("the report", "here", ""),
        rows=[(said, here, _VERDICTS[holds][0]) for said, here, holds in rows],
        align="lll",
        tones=tones,
    )


def points_sheet(measured: Measured) -> Sheet:
    """Return every point and seed for a CSV file."""
    names = ("sweep", "value", "way", "epsilon", "delta", "iterations", "noise_multiplier", "mean", "spread")
    kinds = (("cross-entropy", measured.points), ("squared", measured.squared), ("protected bias", measured.protected))
    return Sheet(
        columns=("training", *names, *(f"seed {seed}" for seed in measured.seeds)),
        rows=[
            (kind, *(getattr(point, name) for name in names), *point.each) for kind, points in kinds for point in points
        ],
    )


def _sweep(measured: Measured, name: str) -> Section:
    fixed = {
        "epsilon": f"epsilon {measured.epsilon:g}",
        "delta": f"delta {measured.delta:g}",
        "iterations": f"{measured.iterations:,} iterations",
    }
    rest = ", ".join(words for other, words in fixed.items() if other != name)
    lines = {way: measured.line(name, way) for way in NAMES}
    chart = _accuracies({NAMES[way]: (own, _STYLES[way]) for way, own in lines.items()}, name, "Test accuracy")
    noisy = [
        Series(
            name=NAMES[way],
            x=[point.value for point in lines[way] if point.noise_multiplier],
            y=[point.noise_multiplier for point in lines[way] if point.noise_multiplier],
            style=_STYLES[way],
        )
        for way in ("reported", "tight")
    ]
    noise = line(
        title="Noise multiplier of a step",
        series=noisy,
        x_title=f"{name} (log scale)",
        y_title="noise multiplier (log scale)",
        log_x=True,
        log_y=True,
    )
    noise = decades(figures.ticked(noise, measured.sweeps[name]), [value for one in noisy for value in one.y])
    notes = (
        (
            Note(
                text="**Delta 1 is no privacy**: (epsilon, 1) holds for every mechanism, even without noise.",
                tone="warn",
            ),
        )
        if name == "delta"
        else ()
    )
    return Section(
        title=f"DP-SGD: {_TITLES[name].lower()}",
        lead=f"At {rest}, as in the report. Bands are one deviation over {len(measured.seeds)} seeds.",
        parts=(*notes, Row(parts=(chart, noise))),
    )


def _accuracies(lines: Mapping[str, tuple[Sequence[Trained], int]], sweep: str, title: str) -> Chart:
    series = [
        Series(
            name=name,
            x=[point.value for point in own],
            y=[point.mean for point in own],
            low=[max(point.mean - point.spread, 0.0) for point in own],
            high=[min(point.mean + point.spread, 1.0) for point in own],
            style=style,
        )
        for name, (own, style) in lines.items()
    ]
    chart = line(
        title=title,
        series=series,
        x_title=f"{sweep} (log scale)",
        y_title="test accuracy",
        y_format=".1%",
        log_x=True,
    )
    values = sorted({point.value for own, _ in lines.values() for point in own})
    return figures.ticked(chart, values)


def _claims_section(measured: Measured) -> Section:
    return Section(title="DP-SGD: what the report says, one by one", parts=(claims(measured),))


def _loss(measured: Measured) -> Section:
    charts = []
    for sweep in measured.sweeps:
        lines = {
            "Normal, L2 loss": (ordered(measured.squared, sweep, "normal"), 4),
            "DP-SGD, cross-entropy": (measured.line(sweep, "reported"), 1),
            "DP-SGD, L2 loss": (ordered(measured.squared, sweep, "reported"), 5),
        }
        charts.append(_accuracies(lines, sweep, f"L2 loss over {sweep}"))
    return Section(
        title="DP-SGD: the L2 loss",
        lead="The report's other gradient, (p - y) p (1 - p), with the same noise.",
        parts=(Row(parts=charts[:2]), *charts[2:]),
    )


def _left_open(measured: Measured) -> Section:
    rows = [
        (f"{exact.iterations:,}", _cell(exact), _cell(noised))
        for exact, noised in zip(measured.line("iterations", "reported"), measured.protected, strict=True)
    ]
    rises = (measured.rise, *measured.others)
    many = Table(
        caption=f"The report's DP-SGD with {measured.rise.seeds} seeds, as its public code has it and otherwise: test "
        "accuracy in percent, ± the standard error of the mean.",
        columns=("iterations", *(one.name for one in rises)),
        rows=[
            (
                f"{k:,}",
                *(f"{100 * one.mean(k):.1f} ± {100 * np.std(one.each[k]) / one.seeds**0.5:.1f}" for one in rises),
            )
            for k in sorted(measured.rise.each)
        ],
        align="r" * (1 + len(rises)),
    )
    bias = Table(
        caption="The bias by the exact mean gradient, or clipped and noised as a weight: test accuracy.",
        columns=("iterations", "exact: no epsilon holds", "protected"),
        rows=rows,
        align="rrr",
    )
    return Section(
        title="DP-SGD: other splits, bounds and biases",
        parts=(
            bias,
            many,
            Text(
                text="z-scores use the patients' own means and deviations, of the test patients as well: the report's "
                "normalisation stands for its columns, and no epsilon covers it. Tacit's column has public bounds, a "
                "protected bias and the least noise: all that it uses of the patients is inside its epsilon."
            ),
        ),
    )


def _approximation(measured: Measured) -> Section:
    steps = sorted(next(iter(measured.unspent.values())))
    shown = [k for k in (100, 1000, 10_000) if k in steps]
    budgets = sorted(measured.unspent)
    chart = line(
        title="Budget that the two substitutions leave unspent",
        series=[
            Series(name=f"{k:,} iterations", x=budgets, y=[100 * measured.unspent[e][k] for e in budgets])
            for k in shown
        ],
        x_title="epsilon (log scale)",
        y_title="% of epsilon (log scale)",
        y_format=".2g",
        log_x=True,
        log_y=True,
        levels={"the report's claim, 0.2%": 0.2},
        caption=f"By the report's own theorem, at delta {measured.delta:g}. Small beside what the theorem wastes.",
    )
    values = [100 * measured.unspent[e][k] for e in budgets for k in shown]
    return Section(title="DP-SGD: the substitutions", parts=(decades(figures.ticked(chart, budgets), values),))


def _numbers(measured: Measured) -> Section:
    rows = []
    for sweep, value in measured.settings:
        found = measured.at(sweep, value)
        noises = found["reported"].noise_multiplier, found["tight"].noise_multiplier
        spent = measured.spent.get((sweep, value))
        rows.append(
            (
                sweep,
                _value(sweep, value),
                noises[0],
                noises[1] or "none",
                f"{found['reported'].epsilon:g}",
                "no promise" if spent is None else f"{spent:.2g}",
            )
        )
    costs = Table(
        caption="Noise multiplier of a step; the epsilon that was asked for, and the one that the report's noise "
        "spends on the weights.",
        columns=("sweep", "value", "the report's", "least", "epsilon asked", "spent"),
        rows=rows,
        align="lrrrrr",
    )
    return Section(
        title="DP-SGD: all numbers",
        parts=(
            accuracy_table(measured),
            Fold(summary="The noise behind them", parts=(costs,)),
            Note(
                text="Each epsilon is that of one training run alone. Many runs on the same patients, and "
                "choosing among them, cost more than any of them."
            ),
        ),
    )


def _centre(measured: Measured) -> dict[Way, Trained]:
    """Return the point around which everything is swept, from whichever sweep has it."""
    wanted = (measured.epsilon, measured.delta, measured.iterations)
    return {
        point.way: point
        for point in reversed(measured.points)
        if (point.epsilon, point.delta, point.iterations) == wanted
    }


def _cell(point: Trained) -> str:
    return f"{_percent(point)} ± {100 * point.spread:.1f}"


def _value(sweep: str, value: float) -> str:
    if sweep == "delta" and value >= 1.0:
        return "1 (no privacy)"
    return f"{value:,g}" if sweep == "iterations" else f"{value:g}"


def _percent(point: Trained) -> str:
    return f"{100 * point.mean:.1f}%"
