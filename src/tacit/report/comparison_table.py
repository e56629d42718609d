"""A comparison in the terminal."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tacit.report.comparison import accuracy_text, epsilons_text, no_guarantee
from tacit.report.words import bytes_text, seconds_text
from tacit.runs.comparison import Comparison


def table(comparison: Comparison) -> Group:
    """Return what the terminal shows: the table, whom each epsilon holds against, warnings and notes."""
    title = ", ".join(f"{what}: {value}" for what, value in comparison.shared.items())
    main = Table(title=Text(title, style="bold"), title_justify="left", box=None, pad_edge=False)
    main.add_column("", style="bold")
    for name in ("accuracy", "epsilon", "up", "down", "time"):
        main.add_column(name, justify="right", header_style="dim", no_wrap=True)
    for entry in comparison.entries:
        if not entry.results:
            main.add_row(entry.name, Text("failed", style="red"))
            continue
        claims = entry.claims
        beyond = any(map(no_guarantee, claims))
        main.add_row(
            entry.name,
            Text(accuracy_text(entry.accuracy), style="bold green"),
            Text(epsilons_text(entry), style="red" if beyond else ""),
            "-" if entry.bytes_up is None else bytes_text(entry.bytes_up),
            "-" if entry.bytes_down is None else bytes_text(entry.bytes_down),
            "-" if entry.seconds is None else seconds_text(entry.seconds.mean),
        )
    against = Table.grid(padding=(0, 2))
    for entry in comparison.entries:
        for claim in entry.claims:
            words = f"delta {claim.delta:.1g}, {claim.unit}, {claim.neighbours}, against {claim.against}"
            against.add_row(Text(entry.name, style="bold"), Text(words))
    parts: list[Group | Table | Text] = [main, Text("bytes: a client a round; time: a run; ±: over the seeds", "dim")]
    if against.row_count:
        parts += [Text("\nwhat each epsilon hides, and from whom", style="dim"), against]
    parts += [Text(f"failed: {run.name}: {run.error}", style="red") for run in comparison.failed]
    parts += [Text(warning, style="bold yellow") for warning in comparison.warnings]
    parts += [Text(note, style="yellow") for note in comparison.notes]
    return Group(*parts)
