"""What is shown of NbAFL on FEMNIST: the table of nine beside FederatedScope's, and what the claims are worth."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tacit.accounting import profile
from tacit.mechanisms.nbafl import nominal_delta
from tacit.report.page import Card, Cards, Cell, Note, Part, Section, Series, Table, Text, bars, line, points
from tacit.report.words import percent
from tacit_labs.harness.experiment import Finding
from tacit_labs.nbafl_femnist.jobs import DELTAS, ORIGINAL, Level, cells
from tacit_labs.nbafl_femnist.measured import Measured


def findings(measured: Measured) -> list[Finding]:
    """Return ours beside the original."""
    table = list(cells())
    worst, best = table[0], table[-1]
    ours = [measured.mean(cell) for cell in table]
    plain = measured.plain
    return [
        Finding(
            what="accuracy at epsilon 10, 50, 100, each by delta 0.01, 0.17, 0.76",
            original=" ".join(f"{100 * value:.2f}" for value in ORIGINAL.values()) + "%",
            ours=" ".join(f"{100 * value:.2f}" for value in ours) + "%",
            why=_why(measured),
            headline=True,
        ),
        Finding(
            what="without noise",
            original=f"not given; {percent(max(ORIGINAL.values()))} at the least noise",
            ours=f"plain averaging {percent(plain.mean)} ({_best(plain.best)}); with the server's clip to 0.1 a "
            f"coordinate and next to no noise {percent(measured.clipped.mean)}",
            why=f"The document names a job file for ConvNet2 and no number of clients; ours are {plain.clients} "
            f"writers and {measured.model}, {plain.parameters:,} parameters.",
            headline=True,
        ),
        _factor(measured),
        Finding(
            what="the same noise twice: epsilon 50 at delta 0.76, epsilon 100 at delta 0.17",
            original=f"{percent(ORIGINAL[50.0, 1.0])} and {percent(ORIGINAL[100.0, 2.0])}",
            ours=f"{percent(measured.mean(Level(epsilon=50.0, constant=1.0)))}, the same runs for both",
            why="The noise depends on c / epsilon alone, 0.02 in both: the original's two numbers differ by its "
            "randomness.",
        ),
        Finding(
            what="what follows from epsilon and delta",
            original="accuracy rises with both, from 11.73% to 80.58%",
            ours=f"{_trend(ours)}, from {percent(min(ours))} to {percent(max(ours))}",
            why="The noise is in proportion to c / epsilon in both.",
        ),
        Finding(
            what="the epsilon that holds for the nine",
            original="(10, 0.01) to (100, 0.76), as claimed",
            ours="infinite, for all of them (one client, replace-one, against the server and everyone else)",
            why="Clients add noise to weights that nobody clipped, so nothing bounds how far a client's data move "
            "them. If each coordinate were within 0.1 on the client, one message of the largest writer would cost "
            f"{_large(measured.if_clipped(worst))} to {_large(measured.if_clipped(best))} at delta 1e-5, and rounds "
            "add up.",
            headline=True,
        ),
        Finding(
            what="delta of the first cell, by its own assumptions",
            original=f"{DELTAS[worst.constant]} (exactly {nominal_delta(worst.constant):.4f})",
            ours=f"{_delta(worst)} for one exposure",
            why="The classical formula for the Gaussian mechanism fails beyond epsilon 1; this is the exact value.",
        ),
        Finding(
            what="the command as printed",
            original="“nbafl.mu 0.01 nbafl.constant 1 nbafl.w_clip 0.1 nbafl.epsilon 10”, and “cfg.nbafl.use = False”",
            ours="`tacit run --cfg fedavg_convnet2_on_femnist.yaml` and these words run NbAFL, as FederatedScope's "
            "algorithm, and say so",
            why="By its own default the command would train without NbAFL: `nbafl.use True` is not in it.",
        ),
    ]


def _why(measured: Measured) -> str:
    plain, clipped = measured.plain, measured.clipped
    least = measured.mean(Level(epsilon=100.0, constant=1.0))
    lost = plain.mean - least
    parts = [
        f"Tested: without noise ours has {percent(plain.mean)}, the server's clip alone costs "
        f"{_points(plain.mean - clipped.mean)}, the least noise {_points(lost)} in all. The rest is the noise: ours is "
        f"on {plain.parameters:,} weights of {measured.model} and averaged over {plain.per_round} writers per round"
    ]
    if measured.wider is not None:
        parts.append(
            f"; with {measured.wider.per_round} per round epsilon 10 at delta 0.76 has {percent(measured.wider.mean)} "
            f"instead of {percent(measured.mean(Level(epsilon=10.0, constant=1.0)))}"
        )
    return "".join(parts) + "."


def _factor(measured: Measured) -> Finding:
    both = [(cell, without) for cell in cells() if (without := measured.maybe(cell.halved())) is not None]
    quoted = [ORIGINAL[cell.epsilon, cell.constant] for cell, _ in both]
    with_it = _distance([measured.mean(cell) for cell, _ in both], quoted)
    without_it = _distance([without for _, without in both], quoted)
    nearer = "without it ours is nearer" if without_it < with_it else "with it ours is nearer"
    return Finding(
        what="the factor 2 in the scale of the noise",
        original="“nbafl_w_clip * nbafl_total_round_num * 2 * nbafl_constant / num_train_data / nbafl_epsilon”",
        ours=f"{100 * with_it:.1f} points off the original in the mean with the factor and {100 * without_it:.1f} "
        f"without it, of the {len(both)} cells that were run both ways: {nearer}",
        why="Today's public code of FederatedScope has no 2 there, an earlier version has; the document does not say "
        "which made its table.",
    )


def sections(measured: Measured) -> tuple[Section, ...]:
    """Return the page's figures and tables."""
    plain = measured.plain
    best = max(cells(), key=measured.mean)
    cards = Cards(
        cards=(
            Card(label="plain averaging, same training", value=percent(plain.mean), detail="no noise, no clip"),
            Card(
                label="best of the nine",
                value=percent(measured.mean(best)),
                detail=f"epsilon {best.epsilon:g}, delta {DELTAS[best.constant]}",
            ),
            Card(label="epsilon that holds", value="infinite", detail="nothing is clipped on the client", tone="warn"),
        )
    )
    series: dict[str, list[float]] = {
        "FederatedScope (quoted)": list(ORIGINAL.values()),
        "ours, the documentation's noise": [measured.mean(cell) for cell in cells()],
    }
    chart = bars(
        title="The table of nine",
        categories=[f"{cell.epsilon:g}, {DELTAS[cell.constant]}" for cell in cells()],
        series=series,
        x_title="claimed epsilon, delta",
        y_title="test accuracy",
        y_format=".1%",
        caption=f"Plain averaging with the same training, ours: {percent(plain.mean)}.",
        height=380,
    )
    return (
        Section(title="The table of nine", parts=(cards, chart, *tables(measured).values())),
        Section(title="Accuracy and noise", parts=_noise(measured)),
        Section(title="What the claims are worth", parts=_worth()),
    )


def tables(measured: Measured) -> dict[str, Table]:
    """Return the nine cells."""
    columns = [
        "epsilon",
        "delta",
        "c / epsilon",
        "quoted",
        "ours",
        "without the 2",
        "holds",
        "if clipped",
        "true delta",
    ]
    rows: list[tuple[Cell, ...]] = []
    for cell in cells():
        told: list[Cell] = [f"{cell.epsilon:g}", DELTAS[cell.constant], f"{cell.ratio:g}"]
        told += [percent(ORIGINAL[cell.epsilon, cell.constant]), percent(measured.mean(cell))]
        without = measured.maybe(cell.halved())
        told += ["-" if without is None else percent(without)]
        told += ["infinite", _large(measured.if_clipped(cell)), _delta(cell)]
        rows.append(tuple(told))
    return {
        "nine": Table(
            columns=tuple(columns),
            rows=tuple(rows),
            align="r" * len(columns),
            caption="Test accuracy after the last round: quoted from FederatedScope, and ours. Holds is the epsilon of "
            "one client, replace-one, against everyone else, the server included; if clipped is that of one message of "
            "the largest writer at delta 1e-5, were its coordinates within w_clip; the true delta is that of one "
            "exposure if the sensitivity were 2C/m.",
        )
    }


def _noise(measured: Measured) -> tuple[Part, ...]:
    levels = {level.ratio: level for cell in cells() for level in (cell.halved(), cell)}
    ours = [(ratio, value) for ratio, level in sorted(levels.items()) if (value := measured.maybe(level)) is not None]
    quoted = sorted((cell.ratio, ORIGINAL[cell.epsilon, cell.constant]) for cell in cells())
    chart = points(
        title="Accuracy against noise",
        series=[
            Series(name="FederatedScope (quoted)", x=[x for x, _ in quoted], y=[y for _, y in quoted], style=0),
            Series(name="ours", x=[x for x, _ in ours], y=[y for _, y in ours], style=1),
        ],
        x_title="c / epsilon, each step a factor of ten",
        y_title="test accuracy",
        y_format=".1%",
        log_x=True,
    )
    shown = [measured.plain, measured.clipped, *(measured.rows[cell.name] for cell in list(cells())[2::3])]
    curves = line(
        title="Test accuracy",
        series=[
            Series(name=row.name, x=[at for at, _ in row.curve], y=[accuracy for _, accuracy in row.curve])
            for row in shown
        ],
        x_title="round",
        y_title="test accuracy",
        y_format=".1%",
    )
    text = "The scale of all noise is in proportion to c / epsilon, so that the nine are eight points of one curve."
    return Text(text=text), chart, curves


def _worth() -> tuple[Part, ...]:
    return (
        Text(
            text="**Claimed** is what the formula of the noise is asked for. It takes trained weights for an average "
            "over examples (sensitivity 2C/m), a bound that is proved up to epsilon 1, and a clip on the client. "
            "FederatedScope's clients clip nothing: its server divides each coordinate by max(1, |w| / w_clip) before "
            "it sends the model on, when it has seen everybody's weights already."
        ),
        Note(
            text="No epsilon holds for any of the nine. `nbafl.compat=paper` clips the weights on the client and "
            "certifies what its noise gives.",
            tone="warn",
        ),
    )


def _trend(accuracies: Sequence[float]) -> str:
    """Say whether accuracy rises along each row and each column of the table."""
    grid = [accuracies[start : start + 3] for start in range(0, 9, 3)]
    lines = [*grid, *zip(*grid, strict=True)]
    rising = sum(all(before <= after for before, after in pairwise(one)) for one in lines)
    both = "accuracy rises with both"
    return both if rising == len(lines) else f"accuracy rises along {rising} of the table's 6 rows and columns"


def _distance(ours: Sequence[float], quoted: Sequence[float]) -> float:
    return sum(abs(one - other) for one, other in zip(ours, quoted, strict=True)) / len(ours)


def _best(best: Sequence[float]) -> str:
    return f"best tested round {percent(sum(best) / len(best))}"


def _points(share: float) -> str:
    return f"{100 * share:.1f} points"


def _large(value: float) -> str:
    return f"{value / 1e6:.3g} million" if value >= 1e6 else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _delta(cell: Level) -> str:
    value = profile.delta_at(cell.epsilon, cell.epsilon / cell.constant)
    return "over 0.9999" if value > 0.9999 else f"{value:.4f}"
