"""The page of a reproduction: what was run, ours beside the original, then the figures and tables."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.report.page import Note, Page, Row, Section, Table, Text
from tacit_labs.harness.experiment import Finding
from tacit_labs.harness.record import Outcome, duration_words

QUICK = "Quick run, with smaller settings."


def page(outcome: Outcome) -> Page:
    """Return the whole page."""
    experiment, reproduction, record = outcome.experiment, outcome.reproduction, outcome.record
    said: list[Text | Note] = []
    if record.quick:
        said.append(Note(text=quick_words(outcome), tone="warn"))
    named = f" (`{experiment.document}`)" if experiment.document else ""
    said.append(Text(text=f"**The original**{named}**.** {experiment.source}"))
    said.append(Text(text=f"**Ours.** {reproduction.settings}"))
    return Page(
        title=experiment.title,
        subtitle=command(outcome),
        sections=(
            Section(title="What was run", parts=tuple(said)),
            Section(title="Ours beside the original", parts=compared(reproduction.findings)),
            *reproduction.sections,
        ),
        foot=(
            f"Tacit {record.version}, seed {record.seed}, {record.device} ({record.machine}), "
            f"{duration_words(record.to_dict())}."
        ),
    )


def command(outcome: Outcome) -> str:
    """Return the command that makes this page again."""
    quick = " --quick" if outcome.record.quick else ""
    return f"tacit reproduce {outcome.experiment.name}{quick} --seed {outcome.record.seed}"


def quick_words(outcome: Outcome) -> str:
    """Return what a quick run has to say of itself."""
    smaller = outcome.reproduction.smaller or "It did less than the full run."
    return f"**{QUICK}** {smaller} The full run: `tacit reproduce {outcome.experiment.name}`."


def compared(findings: Sequence[Finding]) -> tuple[Row, ...]:
    """Return the findings two by two, each a small table: four columns of sentences would not fit on a phone."""
    tables = [
        Table(
            columns=(),
            rows=(("original", found.original), ("ours", found.ours), ("why", found.why)),
            caption=f"**{found.what}**",
            align="ll",
        )
        for found in findings
    ]
    return tuple(Row(parts=tables[place : place + 2]) for place in range(0, len(tables), 2))
