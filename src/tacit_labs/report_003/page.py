"""The page of report 003: its table, its curve, its 1,000 operations, and Paillier in learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tacit.report.page import Cell, Chart, Fold, Note, Row, Section, Series, Table, Text, Tone, bars, decades, line
from tacit.report.words import percent
from tacit_labs.baselines.paillier import GMPY2, PYTHON
from tacit_labs.harness.checks import Check
from tacit_labs.harness.encrypted import EncryptedEpoch, Epoch
from tacit_labs.harness.experiment import Finding
from tacit_labs.harness.learning import by_round, four_curves
from tacit_labs.harness.measuring import duration, named, times
from tacit_labs.report_003 import quoted
from tacit_labs.report_003.private import CODE, READINGS, WORDS, Private, costs
from tacit_labs.report_003.timings import MODES, Timed, counted, counted_growth, quoted_growth

_REPORT = "the report (quoted)"


def findings(found: Private, timed: Timed, epochs: Sequence[Epoch], backend: str) -> tuple[Finding, ...]:
    """Return what the report had and what we got, in words."""
    curve = found.curve()
    last = curve.rounds[-1]
    key = timed.sizes.key_bits[0]
    return (
        Finding(
            what="Rounds 0 to 5 at sigma 0.0001, C 2: test accuracy",
            original=f'"{_list(quoted.TEST_ACCURACY)}"; final training accuracy {percent(quoted.TRAIN_ACCURACY)}',
            ours=f"{_list([one.test_accuracy or 0 for one in curve.rounds])}; final training accuracy "
            f"{percent(last.train_accuracy)}",
            why=(
                f"With the settings of the author's public code (`{quoted.REPOSITORY}`) from other first weights. This "
                "noise is nothing, and C 2 clips little: without either it is "
                f"{_list([one.test_accuracy or 0 for one in found.plain.rounds])}."
            ),
            headline=True,
        ),
        Finding(
            what="The same rounds: mean training loss of the clients",
            original=" ".join(f"{value:.3f}" for value in quoted.TRAINING_LOSS),
            ours=" ".join(f"{value:.3f}" for value in found.last_epochs),
            why=f"By the public code it is that of the last of {found.sizes.local_epochs} local epochs, as here; over "
            f"all of them it is {' '.join(f'{one.train_loss or 0:.3f}' for one in curve.rounds)}.",
        ),
        Finding(
            what="First-round accuracy of the other four settings",
            original=" ".join(percent(one.accuracy) for one in quoted.TABLE[1:]) + ', all "converged"',
            ours=f"by the public code {_spreads(found)} ({found.sizes.seeds} seeds); everyone clipped, as its words "
            f"have it: {_list(_firsts(found, WORDS.name))}",
            why=(
                "An update clipped to C 0.01 or 0.001 cannot take a new model to 50% in one round: with everyone "
                "clipped it stays near a guess. The public code copies the first client's update and clips from the "
                f"second on, so that the model moves by one part in {found.sizes.clients} of that update, whatever C "
                "is. How far a fifth of it takes a new model depends on the first weights, and one number of noise per "
                f"tensor adds luck where sigma C is large: {_inside(found)}. With a number per weight, seed 1: "
                f"{_list(_firsts(found, READINGS[1].name))}."
            ),
            headline=True,
        ),
        Finding(
            what="Epsilon of the table",
            original=" ".join(f"{one.epsilon:g}" for one in quoted.TABLE),
            ours=(
                "its formula at delta 0.001 gives them, further digits cut off; if everyone were clipped and each "
                f"weight had noise of its own, sigma C would cost, over {quoted.ROUNDS} rounds: "
                f"{' '.join(_short(costs(one).composed) for one in quoted.TABLE)}; by the public code none holds"
            ),
            why=(
                "The formula takes sigma for the noise's standard deviation and counts one round; noise of sigma C "
                "makes C cancel. Nothing bounds what an unclipped client reveals, and one number per tensor hides one "
                "direction of it and leaves the others exact."
            ),
            headline=True,
        ),
        Finding(
            what="What clipping and noise do to learning",
            original=f'"{quoted.ON_SPEED}" (they slow it down)',
            ours=f"first round without either {percent(found.plain.rounds[0].test_accuracy)}; by the public code "
            f"{_list(_firsts(found, CODE.name, skip=0))} for the five settings, everyone clipped "
            f"{_list(_firsts(found, WORDS.name, skip=0))}",
            why="The smaller C, the smaller the step that is left of an update.",
        ),
        Finding(
            what="What a larger C or a smaller sigma does",
            original=f'"{quoted.ON_CLIP}" (both speed up convergence)',
            ours=_clips(found),
            why="As long as clipping loses more than noise, a larger C helps. 000_040aa826a603186f.txt says that a "
            "larger C harms; its page has the grid.",
            headline=True,
        ),
        *(
            Finding(
                what=f"1,000 times {mode} at 10, 100 and 1000 bits",
                original=" / ".join(f"{value:g}" for value in quoted.SECONDS[mode].values())
                + " s; key length not stated (in the author's public code 1024 bits)",
                ours=(
                    f"textbook on gmpy2 at {key} bits {_three(timed, GMPY2.name, key, mode)}; "
                    f"Tacit {_three(timed, backend, key, mode)} at {key} bits, "
                    f"{_three(timed, backend, timed.sizes.key_bits[-1], mode)} at {timed.sizes.key_bits[-1]}"
                ),
                why=(
                    f"From 10 to 1000 bits the report's time grows {times(quoted_growth(mode))}, the textbook's "
                    + ", ".join(
                        f"{times(timed.growth(GMPY2.name, bits, mode))} at {bits} bits" for bits in timed.sizes.key_bits
                    )
                    + "; counted in powers it is "
                    + ", ".join(f"{times(counted_growth(bits, mode))} at {bits}" for bits in timed.sizes.key_bits)
                    + ". The report's times lie between those of the textbook on gmpy2 and on Python's integers "
                    f"({_three(timed, PYTHON.name, key, mode)}), on another machine. Tacit's time does not depend on "
                    "the message."
                ),
                headline=True,
            )
            for mode in MODES
        ),
        Finding(
            what="Paillier in learning",
            original=f'"{quoted.ON_PAILLIER}" (it converges and stays accurate), "{quoted.ON_SLOWNESS}" (far slower)',
            ours="; ".join(
                f"{one.way}: {percent(one.test_accuracy)}, {duration(one.epoch_seconds)} per round" for one in epochs
            ),
            why="Accuracy is that of the plain run. The report encrypts every element by itself "
            "(np.frompyfunc); Tacit "
            "packs dozens into a ciphertext. Rounds are by the clock of a shared machine: a ratio below 1 is noise.",
            headline=True,
        ),
    )


def sections(found: Private, timed: Timed, checks: Sequence[Check], epochs: Sequence[Epoch]) -> tuple[Section, ...]:
    """Return the figures and tables."""
    return (
        Section(
            title="The table of five settings",
            lead=(
                "First-round accuracy, and that of the last round in brackets. The report does not show its server's "
                f"code, so that by the report **the noise is unknown**; `{quoted.REPOSITORY}` has it. That and three "
                "other readings of its words were trained; every tensor is clipped by itself."
            ),
            parts=(accuracy_table(found), _bars(found), Text(text=_explained(found)), epsilon_table(found)),
        ),
        Section(
            title="Rounds 0 to 5 at sigma 0.0001, C 2",
            lead="The report's output beside ours, by the author's public code.",
            parts=(curve_table(found), Row(parts=(_accuracy(found), _loss(found))), _ours(found)),
        ),
        Section(
            title="Paillier: what it prints",
            parts=(check_table(checks),),
        ),
        Section(
            title="1,000 operations",
            lead=(
                "enc_add: two encryptions, the sum and its decryption. enc_add_const: one encryption, the sum with a "
                "known number and its decryption. **The report states no key length**; its author's public code has "
                "1024 bits."
            ),
            parts=(
                timing_table(timed),
                *(_timing_chart(timed, mode) for mode in MODES),
                growth_table(timed),
            ),
        ),
        Section(
            title="Paillier and federated learning",
            parts=(
                *four_curves(
                    {one.way: one.curve for one in epochs}, styles={one.way: place for place, one in enumerate(epochs)}
                ),
                learning_table(epochs),
            ),
        ),
        Section(
            title="The proof for epsilon above 1",
            parts=(
                Note(
                    text=(
                        "The report repeats, from Zhao et al., why no noise F(delta) Delta/epsilon is enough for every "
                        "epsilon, its equations (22) to (24). `docs/mathematics.md` derives them step by step, and "
                        "`tests/docs/test_mathematics.py` checks each inequality numerically."
                    )
                ),
            ),
        ),
    )


def accuracy_table(found: Private) -> Table:
    """Return the five settings under all readings, the report's accuracies beside."""
    rows = []
    for one in found.sizes.table:
        cells: list[Cell] = [one.sigma, one.clip, percent(one.accuracy)]
        for reading in READINGS:
            rounds = found.runs[one, reading.name].rounds
            cells.append(f"{percent(rounds[0].test_accuracy)} ({len(rounds)}: {percent(rounds[-1].test_accuracy)})")
        rows.append(tuple(cells))
    return Table(
        columns=("sigma", "C", "the report", *(reading.short for reading in READINGS)),
        rows=rows,
        align="rrr" + "r" * len(READINGS),
        caption=(
            "Test accuracy after the first round (and after so many): who is clipped, and the noise's standard "
            "deviation. The report has the first round only."
        ),
    )


def epsilon_table(found: Private) -> Table:
    """Return the table's epsilons under both readings of sigma."""
    rows = []
    for one in found.sizes.table:
        cost = costs(one)
        exact = (cost.absolute, cost.absolute_composed, cost.one, cost.composed)
        rows.append((one.sigma, one.clip, one.epsilon, cost.formula, *exact))
    return Table(
        caption=(
            "Epsilon at delta 0.001, which is not stated but gives the quoted values by the formula "
            "C sqrt(2 ln(1.25/delta))/sigma. The others are exact, for noise sigma and for noise sigma C, "
            "and hold only if every client is clipped as a whole."
        ),
        columns=(
            "sigma",
            "C",
            "the report",
            "formula",
            "noise sigma, one round",
            "six rounds",
            "noise sigma C, one round",
            "six rounds",
        ),
        rows=rows,
    )


def curve_table(found: Private) -> Table:
    """Return the report's rounds beside ours."""
    rows = []
    for place, record in enumerate(found.curve().rounds):
        known = place < len(quoted.TEST_ACCURACY)
        rows.append(
            (
                f"Round {place}",
                quoted.TRAINING_LOSS[place] if known else None,
                round(found.last_epochs[place], 3),
                round(record.train_loss or 0.0, 3),
                percent(quoted.TEST_ACCURACY[place]) if known else None,
                percent(record.test_accuracy),
                percent(found.plain.rounds[place].test_accuracy),
                percent(record.train_accuracy),
            )
        )
    return Table(
        columns=(
            "",
            "training loss, report",
            "ours, last epoch",
            "ours, all epochs",
            "test accuracy, report",
            "ours",
            "ours, plain",
            "training accuracy, ours",
        ),
        rows=rows,
        align="lrrrrrrr",
        caption=f"The report's training accuracy after the last round is {percent(quoted.TRAIN_ACCURACY)}.",
    )


def check_table(checks: Sequence[Check]) -> Table:
    """Return the report's four cases."""
    rows = tuple((one.operation, one.integers, one.verdict, one.example) for one in checks)
    tones: dict[tuple[int, int], Tone] = {
        (row, 2): "good" if cells[2] == "PASS" else "bad" for row, cells in enumerate(rows)
    }
    return Table(
        columns=("The report's case", "By", "Result", "Value"),
        rows=rows,
        tones=tones,
        align="llll",
        caption="The four results that the report prints, computed by both textbooks and by Tacit.",
    )


def timing_table(timed: Timed) -> Table:
    """Return the 1,000 operations for everyone."""
    rows: list[tuple[Cell, ...]] = []
    lengths = timed.sizes.lengths
    for mode in MODES:
        rows.append(
            (mode, _REPORT, "not stated", *(f"{quoted.SECONDS[mode].get(bits, 0):g} s" for bits in lengths), "")
        )
        for key_bits in timed.sizes.key_bits:
            for by in dict.fromkeys(row.by for row in timed.rows if row.key_bits == key_bits):
                own = [row for row in timed.rows if (row.by, row.key_bits, row.mode) == (by, key_bits, mode)]
                count = own[0].count
                wrong = sum(row.wrong for row in own)
                said = "" if count == quoted.REPEATS else f" (scaled from {count})"
                cells = (duration(row.thousand) for row in own)
                rows.append((mode, named(by) + said, str(key_bits), *cells, f"FAIL: {wrong}" if wrong else "PASS"))
    return Table(
        columns=("Operation", "By", "Key bits", *(f"{bits}-bit integers" for bits in lengths), "Sums"),
        rows=rows,
        align="llr" + "r" * len(lengths) + "l",
        caption="1,000 operations, processor time of one thread; all sums were checked.",
    )


def growth_table(timed: Timed) -> Table:
    """Return how much longer 1000-bit integers take than 10-bit ones, by the key: what a key's length looks like."""
    rows: list[tuple[Cell, ...]] = [
        (_REPORT, "not stated", *(times(quoted_growth(mode)) for mode in MODES), times(_pair(None, timed)))
    ]
    rows += [
        (
            "counted in powers",
            str(key_bits),
            *(times(counted_growth(key_bits, mode)) for mode in MODES),
            times(counted(key_bits, MODES[0], 10) / counted(key_bits, MODES[1], 10)),
        )
        for key_bits in timed.sizes.key_bits
    ]
    rows += [
        (
            named(GMPY2.name),
            str(key_bits),
            *(times(timed.growth(GMPY2.name, key_bits, mode)) for mode in MODES),
            times(_pair(key_bits, timed)),
        )
        for key_bits in timed.sizes.key_bits
    ]
    short, long = min(timed.sizes.lengths), max(timed.sizes.lengths)
    return Table(
        columns=("By", "Key bits", *(f"{mode}, {long} over {short} bits" for mode in MODES), "enc_add / enc_add_const"),
        rows=rows,
        align="lrrrr",
        caption="A power of the message costs its bits, one of the noise or of decryption the key's: enc_add has two "
        "and three of them, enc_add_const two and two. The growth tells their ratio, where times are steady.",
    )


def learning_table(epochs: Sequence[Epoch]) -> Table:
    """Return rounds in the clear and encrypted."""
    rows = [
        (
            one.way,
            duration(one.client_encrypts) if isinstance(one, EncryptedEpoch) else None,
            duration(one.sum_decrypted) if isinstance(one, EncryptedEpoch) else None,
            duration(one.epoch_seconds),
            times(one.epoch_seconds / epochs[0].epoch_seconds),
            percent(one.test_accuracy),
        )
        for one in epochs
    ]
    return Table(
        columns=("Run", "Encrypt, per client", "Decrypt", "Round", "Over plain", "Test accuracy"),
        rows=rows,
        align="lrrrrr",
        caption="The report has no numbers here. Ours are those of the fastest round but the first, by the clock.",
    )


def _bars(found: Private) -> Chart:
    names = [f"sigma {one.sigma:g}, C {one.clip:g}" for one in found.sizes.table]
    series = {_REPORT: [one.accuracy for one in found.sizes.table]}
    series |= {reading.name: _firsts(found, reading.name, skip=0) for reading in READINGS}
    styles = {_REPORT: 3} | {reading.name: (1, 5, 0, 2)[place] for place, reading in enumerate(READINGS)}
    return bars(
        title="Accuracy after the first round",
        categories=names,
        series=series,
        y_title="test accuracy",
        y_format=".0%",
        styles=styles,
        height=420,
    )


def _accuracy(found: Private) -> Chart:
    report = Series(name=_REPORT, x=list(range(quoted.ROUNDS)), y=quoted.TEST_ACCURACY, style=3)
    ours = {
        name: [record.test_accuracy or 0.0 for record in result.rounds]
        for name, result in (("ours", found.curve()), ("ours, plain", found.plain))
    }
    return _over("Test accuracy", report, ours, ".1%")


def _loss(found: Private) -> Chart:
    report = Series(name=_REPORT, x=list(range(quoted.ROUNDS)), y=quoted.TRAINING_LOSS, style=3)
    ours = {
        "ours, last local epoch": found.last_epochs,
        "ours, all local epochs": [record.train_loss or 0.0 for record in found.curve().rounds],
    }
    return _over("Training average loss", report, ours, ".3g")


def _over(title: str, report: Series, ours: Mapping[str, Sequence[float]], form: str) -> Chart:
    series = [report]
    for style, (name, values) in enumerate(ours.items()):
        series.append(Series(name=name, x=list(range(len(values))), y=values, style=style))
    return line(title=title, series=series, x_title="round", y_title=title.lower(), y_format=form)


def _ours(found: Private) -> Fold:
    """Return training and test curves of the run that the report prints."""
    both = {"sigma 0.0001, C 2": by_round(found.curve()), "plain": by_round(found.plain)}
    curves = four_curves(both, styles={name: place for place, name in enumerate(both)})
    return Fold(summary="Ours on the training and the test data", parts=curves)


def _timing_chart(timed: Timed, mode: str) -> Chart:
    key_bits, lengths = timed.sizes.key_bits[0], timed.sizes.lengths
    series = {_REPORT: [quoted.SECONDS[mode].get(bits) for bits in lengths]}
    makers = dict.fromkeys(row.by for row in timed.rows if row.key_bits == key_bits)
    series |= {named(by): [timed.thousand(by, key_bits, mode, bits) for bits in lengths] for by in makers}
    styles = {name: (3, 1, 2, 0, 4)[place] for place, name in enumerate(series)}
    chart = bars(
        title=f"1,000 times {mode}, ours with {key_bits} bits",
        categories=[f"{bits}-bit integers" for bits in lengths],
        series=series,
        y_title="seconds",
        y_format=".3g",
        log_y=True,
        styles=styles,
    )
    return decades(chart, [0.1, *(value for values in series.values() for value in values)])


def _explained(found: Private) -> str:
    small = found.sizes.table[1:]
    bound = _firsts(found, WORDS.name)
    ends = [found.runs[one, CODE.name].test_accuracy or 0.0 for one in small]
    return (
        f"With everyone clipped to C, the four settings with a small C begin at {_list(bound)}: the report's numbers "
        "and its \"converged\" do not come from clipped updates. Its author's public code leaves the first client's "
        f"update as it is; they begin at {_spreads(found)} over {found.sizes.seeds} seeds and are at {_list(ends)} "
        f"after {found.sizes.elsewhere} rounds. The report has one run each."
    )


def _spreads(found: Private) -> str:
    """Return the first rounds of the four settings by the public code, the least and the most of all seeds."""
    spans = [found.first[one] for one in found.sizes.table[1:]]
    return ", ".join(f"{100 * min(span):.1f} to {100 * max(span):.1f}%" for span in spans)


def _inside(found: Private) -> str:
    """Say how many of the report's four numbers lie between the least and the most of our seeds."""
    inside = sum(min(found.first[one]) <= one.accuracy <= max(found.first[one]) for one in found.sizes.table[1:])
    return f"{inside} of the report's {len(found.sizes.table) - 1} numbers lie within the range of our seeds"


def _clips(found: Private) -> str:
    """Return what C does from one line to another of the table, everyone clipped."""
    ends = {one: found.runs[one, WORDS.name].rounds[0].test_accuracy or 0.0 for one in found.sizes.table}
    return "after the first round, everyone clipped, noise sigma C: " + ", ".join(
        f"C {one.clip:g} (sigma {one.sigma:g}) {percent(end)}"
        for one, end in sorted(ends.items(), key=lambda item: item[0].clip)
    )


def _firsts(found: Private, reading: str, *, skip: int = 1) -> list[float]:
    return [found.runs[one, reading].rounds[0].test_accuracy or 0.0 for one in found.sizes.table[skip:]]


def _pair(key_bits: int | None, timed: Timed) -> float:
    """Return enc_add over enc_add_const at the shortest integers."""
    short = min(timed.sizes.lengths)
    if key_bits is None:
        return quoted.SECONDS["enc_add"][10] / quoted.SECONDS["enc_add_const"][10]
    return timed.thousand(GMPY2.name, key_bits, MODES[0], short) / timed.thousand(GMPY2.name, key_bits, MODES[1], short)


def _three(timed: Timed, by: str, key_bits: int, mode: str) -> str:
    return " / ".join(duration(timed.thousand(by, key_bits, mode, bits)) for bits in timed.sizes.lengths)


def _list(shares: Sequence[float]) -> str:
    return " ".join(f"{100 * share:.2f}" for share in shares) + "%"


def _short(value: float) -> str:
    return f"{value / 1e6:.3g} million" if value >= 1e6 else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
