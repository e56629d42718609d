"""The page's first half: curves, grids, and what C does."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tacit.report.page import Card, Cards, Chart, Code, Row, Section, Series, Table, Text, decades, line
from tacit.report.words import percent
from tacit.runs.result import Result
from tacit_labs.harness import epsilons, surfaces
from tacit_labs.harness.experiment import Finding, Sheet
from tacit_labs.harness.learning import MEASURES, by_round, four_curves
from tacit_labs.report_000 import quoted
from tacit_labs.report_000.private import CODED, MEANT, PLAIN, Private

NAMES = {  # curve -> its name and style, the same in every chart
    PLAIN: ("no noise", 0),
    MEANT: ("sigma C, as meant", 1),
    CODED: ("(sigma C)^2, as coded", 2),
}
AS_MEANT = (
    "tacit run --mode dp --C 0.5 --sigma 0.05 data.features=none federate.clients=5 train.local_epochs=3 "
    "train.batch_size=64 optimizer.lr=0.015 optimizer.schedule=constant dp.delta=0.001 evaluate.train=true"
)
_COMMANDS = """python main.py --gpu -1                                   tacit run --gpu -1
python main.py --gpu 0                                    tacit run --gpu 0
python main.py --gpu 0 --mode DP --C 0.5 --sigma 0.05     tacit run --gpu 0 --mode dp --C 0.5 --sigma 0.05
python main.py --gpu 0 --mode Paillier                    tacit run --gpu 0 --mode paillier"""

_SAME = (
    "Without `--C` and `--sigma` mode `dp` runs too, and says what it chose. What an option does not say is Tacit's "
    "choice: in mode `dp` fixed features instead of a CNN, more clients and more rounds, which noise suits better. "
    f"`{AS_MEANT}` is the run below, noise as meant."
)


def findings(found: Private) -> tuple[Finding, ...]:
    """Return what the report had and what we got, in words."""
    curves, sizes = found.curves, found.sizes
    coded, meant, plain = (curves[name].test_accuracy for name in (CODED, MEANT, PLAIN))
    one = epsilons.coded(quoted.SIGMA, quoted.CLIP, tensors=sizes.tensors)
    return (
        Finding(
            what=f"Test accuracy after {len(curves[CODED].rounds)} rounds, C {quoted.CLIP:g}, sigma {quoted.SIGMA:g}",
            original=quoted.CONVERGES,
            ours=f"{percent(coded)} as its code draws the noise, {percent(meant)} as meant; no noise {percent(plain)}",
            why=(
                f"As coded it is the report's experiment from other first weights. The noise that was meant is "
                f"{1 / (quoted.SIGMA * quoted.CLIP):.0f} times as large, and its clip is one for the whole update, "
                "where the code clips each tensor to C by itself."
            ),
            headline=True,
        ),
        Finding(
            what=f"Epsilon of that run at delta {quoted.DELTA:g}",
            original="in a figure whose values are not in the text; "
            f"{epsilons.tuned(quoted.SIGMA, quoted.CLIP):.3g} by the formula of its author's dp_tune.py",
            ours=(
                f"as coded {_large(one)} per round, {_large(_spent(curves[CODED]))} for all; as meant "
                f"{_large(epsilons.composed(quoted.SIGMA, 1))} and {_large(_spent(curves[MEANT]))}"
            ),
            why=(
                "The code hands a variance to a function that expects a standard deviation, and clips tensor by "
                "tensor, which multiplies the sensitivity by the root of their number. Rounds compose. None of these "
                "promises anything."
            ),
            headline=True,
        ),
        Finding(
            what=f"Grid after {sizes.grid_rounds} rounds: what a larger sigma does",
            original=quoted.ON_SIGMA,
            ours="; ".join(f"as {kind}: {_falls(found, kind, by='sigma')}" for kind in (CODED, MEANT)),
            why="More noise. " + _agrees(found, "sigma"),
            headline=True,
        ),
        Finding(
            what=f"Grid after {sizes.grid_rounds} rounds: what a larger C does",
            original=f"{quoted.ON_CLIP}; 003_80a3edf6a6b18d18.txt says the opposite",
            ours="; ".join(f"as {kind}: {_falls(found, kind, by='C')}" for kind in (CODED, MEANT)),
            why=_clip_why(found),
            headline=True,
        ),
        Finding(
            what="Best point of the grid",
            original="in figures whose values are not in the text",
            ours="; ".join(_best(found, kind) for kind in (CODED, MEANT)),
            why="Least noise, and as much of an update as this noise allows.",
        ),
    )


def sections(found: Private) -> tuple[Section, ...]:
    """Return the figures and tables."""
    return (
        Section(
            title="The commands",
            lead="The report's on the left, Tacit's on the right.",
            parts=(Code(text=_COMMANDS), Text(text=_SAME)),
        ),
        _learning(found),
        *(_grid(found, kind) for kind in (CODED, MEANT)),
        _epsilon(found),
    )


def _learning(found: Private) -> Section:
    curves = found.curves
    rounds = {NAMES[name][0]: by_round(result) for name, result in curves.items()}
    return Section(
        title="DP learning curve",
        lead=(
            f"C {quoted.CLIP:g}, sigma {quoted.SIGMA:g}: three runs from the same first weights. Without noise nothing "
            "is clipped. The report's figure has the same four panels."
        ),
        parts=(
            Cards(
                cards=[
                    Card(label="the report", value="near 96%", detail="after 6 epochs"),
                    *(
                        Card(label=label, value=percent(curves[name].test_accuracy), detail=detail)
                        for label, name, detail in (
                            ("noise as its code draws it", CODED, f"epsilon {_large(_spent(curves[CODED]))}"),
                            ("noise as it was meant", MEANT, f"epsilon {_large(_spent(curves[MEANT]))}"),
                            ("no noise", PLAIN, "no epsilon"),
                        )
                    ),
                ]
            ),
            *four_curves(rounds, styles=dict(NAMES.values())),
            _spending(found),
        ),
    )


def _spending(found: Private) -> Chart:
    """Return what the two noisy curves have cost after each round."""
    series = []
    for kind in (MEANT, CODED):
        records = found.curves[kind].rounds
        name, style = NAMES[kind]
        spent = [record.epsilon for record in records]
        series.append(Series(name=name, x=[record.round for record in records], y=spent, style=style))
    chart = line(
        title="Epsilon spent",
        series=series,
        x_title="round",
        y_title=f"epsilon at delta {quoted.DELTA:g} (log scale)",
        log_y=True,
        caption="Composed over the rounds so far, exact. Beyond 20 an epsilon says nothing.",
    )
    return decades(chart, [value for one in series for value in one.y])


def _grid(found: Private, kind: str) -> Section:
    plane = surfaces.Plane(clips=found.sizes.clips, sigmas=found.sizes.sigmas)
    both = {measure: found.surface(kind, measure) for measure in ("train_accuracy", "test_accuracy")}
    return Section(
        title=f"C and sigma, noise as {kind}",
        lead=(
            f"Accuracy after {found.sizes.grid_rounds} rounds, one run per point, as in the report. "
            + (
                "The code's noise has standard deviation (sigma C)^2 and each tensor is clipped to C."
                if kind == CODED
                else "The formula's noise has standard deviation sigma C and the whole update is clipped to C."
            )
            + " Drag a surface to turn it."
        ),
        parts=(
            Row(
                parts=[
                    surfaces.shares(plane, title=MEASURES[measure][0], heights=heights)
                    for measure, heights in both.items()
                ]
            ),
            accuracies(found, kind),
            Text(text=f"**{quoted.ON_SIGMA}**: {_falls(found, kind, by='sigma')}."),
            Text(text=f"**{quoted.ON_CLIP}**: {_falls(found, kind, by='C')}."),
        ),
    )


def accuracies(found: Private, kind: str) -> Table:
    """Return a grid's test accuracies as a table; the best is marked."""
    heights = found.surface(kind, "test_accuracy")
    (clip, sigma), _ = found.best(kind)
    where = (found.sizes.sigmas.index(sigma), 1 + found.sizes.clips.index(clip))
    return Table(
        caption=f"Test accuracy, noise as {kind}: sigma down, C across; the best is marked.",
        columns=("sigma", *(f"C {one:g}" for one in found.sizes.clips)),
        rows=[
            (
                one,
                *(
                    percent(share) + (" (best)" if (number, column) == where else "")
                    for column, share in enumerate(shares, start=1)
                ),
            )
            for number, (one, shares) in enumerate(zip(found.sizes.sigmas, heights, strict=True))
        ],
        align="r" * (len(found.sizes.clips) + 1),
        tones={where: "good"},
    )


def grid_sheet(found: Private) -> Sheet:
    """Return both grids for a CSV file."""
    rows = [
        (kind, clip, sigma, *(values[-1] for values in by_round(result).values()), result.rounds[-1].epsilon)
        for kind, grid in found.grids.items()
        for (clip, sigma), result in grid.items()
    ]
    return Sheet(columns=("noise", "C", "sigma", *MEASURES, "epsilon"), rows=rows)


def _epsilon(found: Private) -> Section:
    sizes = found.sizes
    plane = surfaces.Plane(clips=sizes.clips, sigmas=sizes.sigmas)
    by_code = [[epsilons.tuned(sigma, clip) for clip in sizes.clips] for sigma in sizes.sigmas]
    ours = [[epsilons.composed(sigma, sizes.grid_rounds) for _ in sizes.clips] for sigma in sizes.sigmas]
    every = [value for grid in (by_code, ours) for row in grid for value in row]
    ends = (min(every), max(every))
    small, large = (min(map(min, grid)) for grid in (by_code, ours))
    classical = [epsilons.formula(sigma, clip) for sigma in sizes.sigmas for clip in sizes.clips]
    return Section(
        title="Values of epsilon",
        lead=(
            f"At delta {quoted.DELTA:g}. The report shows epsilon over C and sigma in a figure; neither its values nor "
            f"its formula are in the text. The formula is in its author's dp_tune.py (`{quoted.REPOSITORY}`)."
        ),
        parts=(
            Row(
                parts=(
                    surfaces.epsilons(
                        plane,
                        title="Epsilon by dp_tune.py",
                        heights=by_code,
                        ends=ends,
                        caption="C sqrt(2 / ln(1.25/delta))/sigma, one round: the logarithm divides.",
                    ),
                    surfaces.epsilons(
                        plane,
                        title="Epsilon, composed",
                        heights=ours,
                        ends=ends,
                        caption=f"All {sizes.grid_rounds} rounds of noise sigma C, exact: level in C.",
                    ),
                )
            ),
            Text(
                text=(
                    'The report writes that "when sigma is small, it may result in epsilon >= 1". On its grid its '
                    f"code gives {small:.3g} to {max(map(max, by_code)):.3g}. It takes the logarithm of e to the base "
                    "1.25/delta, the inverse of the one that is wanted; the classical formula gives "
                    f"{min(classical):.3g} to {max(classical):.3g}, and noise of sigma C never costs less than "
                    f"{large:.3g}."
                )
            ),
        ),
    )


def _pairs(found: Private, kind: str, by: str) -> list[tuple[float, float]]:
    """Return (smaller, larger) neighbours' test accuracies along C or sigma."""
    rows: Sequence[Sequence[float]] = found.surface(kind, "test_accuracy")
    lines = rows if by == "C" else list(zip(*rows, strict=True))
    return [(before, after) for one in lines for before, after in itertools.pairwise(one)]


def _falls(found: Private, kind: str, *, by: str) -> str:
    """Return in words how often accuracy falls from one value to the next, and from the first to the last."""
    pairs = _pairs(found, kind, by)
    down = sum(after < before for before, after in pairs)
    heights = found.surface(kind, "test_accuracy")
    values = found.sizes.clips if by == "C" else found.sizes.sigmas
    at = f"sigma {max(found.sizes.sigmas):g}" if by == "C" else f"C {max(found.sizes.clips):g}"
    ends = (heights[-1][0], heights[-1][-1]) if by == "C" else (heights[0][-1], heights[-1][-1])
    return (
        f"test accuracy falls in {down} of {len(pairs)} steps; at {at} from {percent(ends[0])} at {by} "
        f"{values[0]:g} to {percent(ends[1])} at {values[-1]:g}"
    )


def _agrees(found: Private, by: str) -> str:
    shares = {kind: _share(found, kind, by) for kind in (CODED, MEANT)}
    return f"Accuracy falls in {shares[CODED]:.0%} of the steps as coded and in {shares[MEANT]:.0%} as meant."


def _share(found: Private, kind: str, by: str) -> float:
    pairs = _pairs(found, kind, by)
    return sum(after < before for before, after in pairs) / len(pairs)


def _clip_why(found: Private) -> str:
    sizes = found.sizes
    noisy = (max(sizes.sigmas) * max(sizes.clips)) ** 2 / (min(sizes.sigmas) * min(sizes.clips)) ** 2
    return (
        f"{_agrees(found, 'C')} A larger C keeps more of the updates and brings more noise: as coded the noise grows "
        f"with C squared, {noisy:,.0f} times over the grid. What clipping loses weighs more in the steps where "
        f"accuracy rises after {sizes.grid_rounds} rounds, the noise in those where it falls. The author's dp_tune.py "
        "draws the report's surfaces transposed: np.meshgrid(C, sigma) has a row for each sigma, its heights one for "
        "each C. What its figures call C is sigma, along which accuracy falls in "
        f"{_share(found, CODED, 'sigma'):.0%} of the steps as coded; whether the sentence was read off them is not "
        "known."
    )


def _best(found: Private, kind: str) -> str:
    (clip, sigma), result = found.best(kind)
    return f"as {kind} {percent(result.test_accuracy)} at C {clip:g}, sigma {sigma:g}"


def _spent(result: Result) -> float:
    return result.rounds[-1].epsilon or 0.0


def _large(value: float) -> str:
    return f"{value / 1e6:.3g} million" if value >= 1e6 else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
