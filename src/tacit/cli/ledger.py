"""``tacit ledger``: what a run released, round by round, and what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.output import JsonFlag, console, emit_json

if TYPE_CHECKING:
    from rich.console import Console

    from tacit.federated.plan import Claim


def ledger(
    folder: Annotated[Path, typer.Argument(help="The run's folder.")],
    as_json: JsonFlag = False,
) -> None:
    """Show what a run released, round by round, and what it cost."""
    from tacit.runs.statement import statement

    told = statement(folder)
    if as_json:
        emit_json(told.to_dict())
        return
    from rich.table import Table

    out = console()
    if told.claim is None:
        out.print(f"{folder}: mode {told.mode} claims no differential privacy; nothing was charged.", markup=False)
        return
    levels = [(told.claim, told.accountant, told.lines)]
    if told.example_claim is not None:
        levels.append((told.example_claim, told.example_accountant, told.example_lines))
    for claim, accountant, lines in levels:
        table = Table("round", "try", "release", "epsilon so far", box=None, padding=(0, 2, 0, 0))
        for line in lines:
            spent = "infinite" if line.epsilon is None else f"{line.epsilon:.4f}"
            table.add_row(str(line.round_number), str(line.attempt + 1), line.release, spent)
        out.print(table, markup=False)
        _say(out, claim, accountant, simulation=told.simulation)


def _say(out: Console, claim: Claim, accountant: str | None, *, simulation: bool) -> None:
    """Print what a claim means."""
    out.print(
        f"delta {claim.delta:g}, unit: {claim.unit}, neighbours: {claim.neighbours}, against {claim.against} "
        f"({accountant}; {'seeded: a simulation' if simulation else 'randomness from the system'})",
        markup=False,
    )
