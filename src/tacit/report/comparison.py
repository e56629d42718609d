"""A comparison as a page, and as files beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tacit.report import comparison_charts as charts
from tacit.report.page import Cell, Column, Note, Page, Part, Row, Section, Table, Text, Tone
from tacit.report.run.risk import percentage
from tacit.report.words import bytes_text, guarantee, percent, seconds_text, short
from tacit.rounding import epsilon_text
from tacit.runs.remarks import LARGEST_MEANINGFUL, risk_of
from tacit.storage import write_atomically
from tacit.studies.results import Claimed, Comparison, Entry, Repeat, Spread

PAGE, TABLE, DATA = "compare.html", "compare.csv", "compare.json"
_ADVICE = "Free some space, or choose another folder with --out. The runs are kept."
_PARTIES = {"server": "the server", "clients": "other clients", "outsider": "an outsider"}


def write(comparison: Comparison, folder: Path) -> tuple[Path, ...]:
    """Write the page, the table and the data into ``folder`` and return their paths."""
    texts = {
        PAGE: page(comparison).html(),
        TABLE: comparison.to_csv(),
        DATA: json.dumps(comparison.to_dict(), indent=2, allow_nan=False) + "\n",
    }
    for name, text in texts.items():
        write_atomically(folder / name, text.encode(), advice=_ADVICE)
    return tuple(folder / name for name in texts)


def page(comparison: Comparison) -> Page:
    """Return the page of a comparison."""
    entries = [entry for entry in comparison.entries if entry.results]
    shared = comparison.shared
    versions = ", ".join(sorted({result.version for entry in entries for result in entry.results}))
    about = [shared[what] for what in ("data", "model") if what in shared]
    return Page(
        title="Protections compared",
        subtitle=", ".join([*about, f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}"]),
        sections=(
            _summary(comparison),
            Section(
                title="Accuracy",
                lead="On the test data. Curves are means over the seeds; bands and bars go from the lowest seed to the "
                "highest.",
                parts=(
                    Row(
                        parts=(
                            charts.curves(entries, comparison.chance),
                            charts.final(entries, comparison.chance, comparison.baseline),
                        )
                    ),
                ),
            ),
            _privacy(comparison, entries),
            Section(
                title="What it costs",
                parts=(Row(parts=(charts.traffic(entries), charts.stages(entries))), _costs(entries)),
            ),
            _sees(entries),
            _settings(comparison),
            _origins(comparison),
        ),
        foot=f"Made by `tacit compare` from runs of tacit {versions}. `{TABLE}` and `{DATA}` have the numbers.",
    )


def accuracy_text(spread: Spread | None) -> str:
    """Return a mean and its standard deviation.

    >>> accuracy_text(Spread.of([0.9, 0.92])), accuracy_text(Spread.of([0.9]))
    ('91.00% ± 1.41', '90.00%')
    """
    if spread is None or spread.deviation is None:
        return percent(None if spread is None else spread.mean)
    return f"{percent(spread.mean)} ± {100 * spread.deviation:.2f}"


def claim_text(claim: Claimed) -> str:
    """Return epsilon for people, and the plain word on one that promises nothing."""
    text = epsilon_text(claim.epsilon)
    return f"{text}, no guarantee" if no_guarantee(claim) else text


def no_guarantee(claim: Claimed) -> bool:
    """Return whether epsilon is too large to promise anything."""
    return claim.epsilon > LARGEST_MEANINGFUL


def epsilons_text(entry: Entry) -> str:
    """Return every epsilon of an entry, with its unit where there are two."""
    if len(entry.claims) > 1:
        return ", ".join(f"{claim_text(claim)} ({claim.unit})" for claim in entry.claims)
    return claim_text(entry.claims[0]) if entry.claims else "none"


def overview(comparison: Comparison) -> list[Part]:
    """Return what a terminal shows: results and the verdict first, then settings, warnings and notes."""
    parts: list[Part] = [_table(comparison), *_verdict(comparison)]
    rows = [(entry.name, guarantee(claim)) for entry in comparison.entries for claim in entry.claims]
    if rows:
        parts.append(Table(columns=(), rows=rows, caption="\nWhat each epsilon hides, and from whom"))
    if comparison.differing:
        parts.append(_differing(comparison))
    same = ", ".join(f"{what}: {value}" for what, value in comparison.shared.items())
    if same:
        parts.append(Text(text=f"The same in all: {same}."))
    return [*parts, *_problems(comparison), *(Note(text=note) for note in comparison.notes)]


def _verdict(comparison: Comparison) -> list[Part]:
    """Return in words what the protections cost and give, those that learned nothing first."""
    baseline, chance = comparison.baseline, comparison.chance
    lost = [entry for entry in comparison.entries if entry.at_chance]
    parts: list[Part] = []
    if lost and chance is not None:
        names = ", ".join(entry.name for entry in lost)
        parts.append(
            Note(
                text=f"**At chance: {names}.** Naming the most frequent class every time gives "
                f"{percent(chance.share)}; what is no better, for all that {chance.examples:,} test examples can tell, "
                "has learned nothing that this test can show.",
                tone="bad",
            )
        )
    if baseline is not None and baseline in lost:  # whose distance to others would say nothing of protection
        parts.append(
            Note(
                text=f"**No verdict.** Without protection ({baseline.name}) the model learned nothing either, so the "
                "protections can't be told from the settings. Train longer (`--rounds`) or in larger steps (`--lr`), "
                "until the plain run learns, then compare again.",
                tone="warn",
            )
        )
        return parts
    told = [_judged(entry, baseline) for entry in comparison.entries if entry not in lost and entry is not baseline]
    begin = (
        ""
        if baseline is None or baseline.accuracy is None
        else (f"Without protection ({baseline.name}) {percent(baseline.accuracy.mean)} of the test data are right. ")
    )
    said = " ".join(filter(None, told))
    if begin or said:
        unfair = (
            " The entries also differ in settings of training, so not all of a gap is the protection's."
            if comparison.differing
            else ""
        )
        parts.append(Note(text=f"**Verdict.** {begin}{said}{unfair}"))
    return parts


def _judged(entry: Entry, baseline: Entry | None) -> str:
    """Return the sentence on one protection."""
    accuracy = entry.accuracy
    if accuracy is None:
        return ""
    text = f"{entry.name} reaches {percent(accuracy.mean)}"
    if baseline is not None and baseline.accuracy is not None:
        gap = 100 * (baseline.accuracy.mean - accuracy.mean)
        spread = 100 * max(one.deviation or 0.0 for one in (accuracy, baseline.accuracy))
        if abs(gap) <= max(spread, 0.05):
            text += ", as much" + (" within the spread of the seeds" if spread else "")
        else:
            text += f", {abs(gap):.1f} points {'less' if gap > 0 else 'more'}"
    if not entry.claims:
        return f"{text}; it claims no differential privacy."
    kept = [
        f"the best attacker on one {claim.unit} is right at most {percentage(risk_of(claim).right_guesses)} of the "
        "time where a coin is right half of it"
        for claim in entry.claims
    ]
    return f"{text}; {', and '.join(kept)}."


def _problems(comparison: Comparison) -> list[Part]:
    failed = [Note(text=f"failed: {run.name}: {run.error}", tone="bad") for run in comparison.failed]
    return [*failed, *(Note(text=warning, tone="warn") for warning in comparison.warnings)]


def _summary(comparison: Comparison) -> Section:
    lead = (
        "Epsilons of different rows are comparable only where unit, neighbours and adversary are the same; see "
        "**Privacy**."
    )
    return Section(
        title="Summary", lead=lead, parts=[*_verdict(comparison), _table(comparison), *_problems(comparison)]
    )


def _settings(comparison: Comparison) -> Section:
    """Return what all entries share, and where they differ."""
    parts: list[Part] = []
    if comparison.shared:
        parts.append(Table(columns=(), rows=list(comparison.shared.items()), caption="The same in all"))
    if comparison.differing:
        parts.append(_differing(comparison))
    else:
        parts.append(Text(text="Nothing else about training differs between the entries."))
    return Section(title="Settings", parts=parts)


def _differing(comparison: Comparison) -> Table:
    names = [
        entry.name for entry in comparison.entries if any(entry.name in row for row in comparison.differing.values())
    ]
    rows = [(key, *(values.get(name) for name in names)) for key, values in comparison.differing.items()]
    return Table(
        columns=("", *names),
        rows=rows,
        align="l" + "r" * len(names),
        caption="Where settings of training differ, by the modes' own choice or by yours",
    )


def _table(comparison: Comparison) -> Table:
    """Return a row per entry: what it reached, what it claims and what it costs."""
    entries = comparison.entries
    rows: list[tuple[Cell, ...]] = []
    tones: dict[tuple[int, int], Tone] = {}
    for place, entry in enumerate(entries):
        if not entry.results:
            tones[place, 1] = "bad"
            rows.append((entry.name, "failed", None, None, None, None))
            continue
        if any(map(no_guarantee, entry.claims)):
            tones[place, 2] = "bad"
        if entry.at_chance:
            tones[place, 1] = "bad"
        rows.append(
            (
                entry.name,
                accuracy_text(entry.accuracy) + (", at chance" if entry.at_chance else ""),
                epsilons_text(entry),
                None if entry.bytes_up is None else bytes_text(entry.bytes_up),
                None if entry.bytes_down is None else bytes_text(entry.bytes_down),
                None if entry.seconds is None else seconds_text(entry.seconds.mean),
            )
        )
    unlike = "" if not comparison.differing else f"Settings of training differ: {', '.join(comparison.differing)}."
    several = any(len(entry.results) > 1 for entry in entries)
    accuracy = Column(name="test accuracy", unit="mean ± standard deviation over the seeds" if several else "")
    up, down = (Column(name=name, unit="per client per round") for name in ("up", "down"))
    return Table(
        columns=("", accuracy, "epsilon", up, down, Column(name="time", unit="per run")),
        rows=rows,
        align="lrrrrr",
        tones=tones,
        caption=" ".join(filter(None, ("" if several else "One run each: there is no spread to show.", unlike))),
    )


def _privacy(comparison: Comparison, entries: Sequence[Entry]) -> Section:
    rows: list[tuple[str | None, ...]] = []
    tones: dict[tuple[int, int], Tone] = {}
    for entry in entries:
        for claim in entry.claims or (None,):
            if claim is None:
                rows.append((entry.name, "none", None, None, None, None, "no differential privacy is claimed"))
                continue
            if no_guarantee(claim):
                tones[len(rows), 1] = "bad"
            rows.append(
                (
                    entry.name,
                    claim_text(claim),
                    short(claim.delta) if claim.delta else None,
                    claim.unit,
                    claim.neighbours,
                    claim.accountant,
                    f"{claim.against}{_nominal(claim)}",
                )
            )
    table = Table(
        columns=("", "epsilon, whole run", "delta", "unit", "neighbours", "accountant", "against whom"),
        rows=rows,
        align="lrrllll",
        tones=tones,
        caption="Composed over all rounds; of several seeds the largest.",
    )
    lead = (
        "What epsilon hides (the unit and the neighbours) and from whom differs between protections. A smaller epsilon "
        "against the public is no better than a larger one against the server."
    )
    return Section(
        title="Privacy", lead=lead, parts=(charts.frontier(entries, comparison.chance, comparison.baseline), table)
    )


def _nominal(claim: Claimed) -> str:
    if claim.nominal_epsilon is None or claim.nominal_delta is None:
        return ""
    return f" (the paper's own claim would be epsilon {claim.nominal_epsilon:g} at delta {short(claim.nominal_delta)})"


def _costs(entries: Sequence[Entry]) -> Part:
    holders = [entry for entry in entries if entry.bytes_holders]
    if not holders:
        return Text(text="No key holders stand beside the server in these runs.")
    told = ", ".join(f"{bytes_text(entry.bytes_holders or 0)} per round in {entry.name}" for entry in holders)
    return Text(text=f"Between the server and the key holders there passed, beside this: {told}.")


def _sees(entries: Sequence[Entry]) -> Section:
    tables = [
        Table(
            columns=(),
            rows=[(words, entry.sees.get(party)) for party, words in _PARTIES.items()],
            caption=f"**{entry.name}**",
        )
        for entry in entries
    ]
    return Section(title="Who sees what", parts=(Row(parts=tables),))


def _origins(comparison: Comparison) -> Section:
    parts: list[Part] = [Note(text=note) for note in comparison.notes]
    own = [(entry.name, f"{key}={value}") for entry in comparison.entries for key, value in entry.settings.items()]
    if own:
        parts.append(Table(columns=("", "setting of its own"), rows=own))
    parts.append(
        Table(
            columns=("run", "seed", "final test accuracy", "folder"),
            rows=[_origin(run) for entry in comparison.entries for run in entry.runs],
            align="lrrl",
            caption="Every run is an ordinary one: `tacit report` and `tacit ledger` work on its folder.",
        )
    )
    return Section(title="Where the numbers come from", parts=parts)


def _origin(run: Repeat) -> tuple[str | None, ...]:
    accuracy = "failed" if run.result is None else percent(run.result.test_accuracy)
    return run.name, None if run.seed is None else str(run.seed), accuracy, run.folder
