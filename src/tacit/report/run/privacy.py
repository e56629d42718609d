"""What a run promised and spent, level by level, and its ledger."""

from __future__ import annotations

import math

from tacit.report.page import Cell, Chart, Fold, Note, Part, Section, Series, Table, Text, line
from tacit.report.run import audit, risk
from tacit.report.words import guarantee, places, relation_text, short, shortened, without_names
from tacit.rounding import epsilon_text
from tacit.runs.history import History, Level

_FEW = 25  # more rows than these are folded


def section(history: History, *, full: bool) -> Section:
    """Return the chart and the claim of each level."""
    if not history.levels:
        text = (
            "No differential privacy is claimed: nothing bounds what the models tell about a client, and there is no "
            "epsilon to report."
        )
        return Section(title="Privacy", parts=(Text(text=text),))
    lead = ""
    if len(history.levels) > 1:
        lead = (
            "The run makes two promises, about a client as a whole and about one example; neither stands for the other."
        )
    parts: list[Part] = []
    for level in history.levels:
        parts += [*risk.parts(level.privacy), _chart(history, level), _claim(level)]
        for note in level.privacy.notes:
            parts.append(Text(text=note if full or not history.secret_cohort else without_names(note)))
    if history.result is not None and history.result.audit is not None:
        parts += audit.parts(history.result.audit)
    if history.start.simulation:
        parts.append(
            Note(
                text="The run was seeded. Whoever knows the seed can compute the noise: epsilon is what the same run "
                "would cost with randomness from the operating system.",
                tone="warn",
            )
        )
    return Section(title="Privacy", lead=lead, parts=parts)


def ledger(history: History) -> Section:
    """Return every release with what was spent after it."""
    if not history.levels:
        text = f"Mode {history.config.mode} claims no differential privacy; nothing was charged."
        return Section(title="Ledger", parts=(Text(text=text),))
    parts: list[Part] = []
    for level in history.levels:
        rows, left_out = shortened([_row(level, place) for place in range(len(level.releases))])
        again = any(release.epsilon is None for release in level.releases[:-1])
        caption = [
            f"Charges for one {level.privacy.unit}, written down before anything was sent.",
            "A try that failed stays charged; its cost is in the next line." if again else "",
            left_out,
        ]
        table = Table(
            columns=("round", "try", "release", "epsilon so far"),
            rows=rows,
            align="rrlr",
            caption=" ".join(filter(None, caption)),
        )
        if len(rows) <= _FEW:
            parts.append(table)
        else:
            parts.append(Fold(summary=f"{len(level.releases):,} charges for one {level.privacy.unit}", parts=(table,)))
        parts.append(Text(text=f"Epsilon with {guarantee(level.privacy)} ({level.privacy.accountant})."))
    return Section(title="Ledger", parts=parts)


def _row(level: Level, place: int) -> tuple[Cell, ...]:
    release = level.releases[place]
    spent = "" if release.epsilon is None else epsilon_text(release.epsilon, digits=4)
    if place == len(level.releases) - 1:
        spent = epsilon_text(level.privacy.epsilon, digits=4)  # also where the last round did not end
    return release.round_number, release.attempt + 1, release.release, spent


def _chart(history: History, level: Level) -> Chart | Text:
    word, at = places(history)
    unit = level.privacy.unit
    if not any(value is not None and value < math.inf for value in level.epsilons):
        why = "it is infinite" if history.rounds else "no round was finished"
        return Text(text=f"There is no curve of epsilon for one {unit}: {why}.")
    levels = {} if level.budget is None else {f"budget {short(level.budget)}": level.budget}
    return line(
        title=f"Epsilon spent, for one {unit}",
        series=[Series(name="spent so far", x=at, y=level.epsilons)],
        x_title=word,
        y_title=f"epsilon at delta {short(level.privacy.delta)}",
        levels=levels,
        from_zero=True,
        caption=f"With {guarantee(level.privacy)}.",
    )


def _claim(level: Level) -> Table:
    told = level.privacy
    rows: list[tuple[Cell, ...]] = [
        ("epsilon", epsilon_text(told.epsilon, digits=4)),
        ("delta", short(told.delta)),
        ("unit", f"one {told.unit}"),
        ("neighbours", relation_text(told.neighbours, told.unit)),
        ("holds against", told.against),
        ("accountant", told.accountant),
        ("budget", "none was set" if level.budget is None else short(level.budget)),
    ]
    if told.nominal_epsilon is not None:
        rows.append(("the paper's claim", f"epsilon {told.nominal_epsilon:g} at delta {told.nominal_delta:.2g}"))
    return Table(columns=(), rows=rows)
