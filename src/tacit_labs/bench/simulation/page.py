"""The comparison of simulations as sections of a page."""

from __future__ import annotations

from tacit.report.page import Card, Cards, Note, Part, Section, Table, Text, bars
from tacit_labs.bench.simulation.measured import Results
from tacit_labs.bench.simulation.peers.jobs import JOBS, Job
from tacit_labs.bench.simulation.table import EXAMPLES, heading


def sections(results: Results) -> tuple[Section, ...]:
    """Return what was measured: a section per job, and who was left out."""
    return (
        Section(title="Simulation: how it was measured", parts=_measured(results)),
        *(_job(JOBS[name], results) for name in results.rounds),
    )


def _measured(results: Results) -> tuple[Part, ...]:
    parts: list[Part] = [
        Text(
            text="Rounds of federated averaging, each side in a process of its own and all sides in turn, so that a "
            "busy moment of the machine hits all of them. The best warm round of a side counts; ratios are within this "
            "run. Tacit's rounds include its wire format, journal and checkpoint; no side evaluates."
        ),
        *(Text(text=f"{line[0].upper()}{line[1:]}.") for line in heading(results).splitlines()),
    ]
    if results.quick:
        parts.append(
            Note(
                text="**Quick run.** One process per side and fewer rounds than the full benchmark: good for a look, "
                "not for a figure to quote. `tacit bench simulation` runs it in full.",
                tone="warn",
            )
        )
    for name, why in results.absent.items():
        parts.append(Note(text=f"**Left out: {name}.** {why[0].upper()}{why[1:]}.", tone="warn"))
    return tuple(parts)


def _job(job: Job, results: Results) -> Section:
    rows = results.ordered(job.name)
    (ours,) = (row for row in rows if row.is_ours)
    peers = [row for row in rows if not row.is_ours]
    around = f"{100 * (ours.around_training or 0.0):.1f}% of a round is not training"
    cards = [
        Card(label="Tacit", value=f"{ours.rounds_per_second:.3g} rounds/s", detail=around),
        *(
            Card(
                label=f"against {row.title}",
                value=f"{row.faster_by:.1f}x",
                detail=f"{row.rounds_per_second:.3g} rounds/s",
            )
            for row in peers
        ),
    ]
    chart = bars(
        title="Rounds per second",
        categories=[row.title for row in rows],
        series={
            "Tacit": [row.rounds_per_second if row is ours else None for row in rows],
            "others": [None if row is ours else row.rounds_per_second for row in rows],
        },
        styles={"others": 2},
        stacked=True,
        y_title="rounds per second",
        y_format=".3g",
        horizontal=True,
        height=130 + 46 * len(rows),
        caption="Longer is faster.",
    )
    table = Table(
        columns=("", "version", "s/round", "rounds/s", "clients/s", "Tacit is faster by", "how it ran"),
        rows=tuple(
            (
                row.title,
                row.version,
                row.seconds,
                row.rounds_per_second,
                row.clients_per_second,
                "-" if row.is_ours else f"{row.faster_by:.1f}x",
                row.notes,
            )
            for row in rows
        ),
        align="llrrrrl",
    )
    return Section(
        title=f"Simulation: the {job.title} job",
        lead=f"{job.words(EXAMPLES)}.",
        parts=(Cards(cards=tuple(cards)), chart, table),
    )
