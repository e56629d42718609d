"""``tacit ledger``: what a run released, round by round, and what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.output import JsonFlag, console, emit_json


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
    table = Table("round", "try", "release", "epsilon so far", box=None, padding=(0, 2, 0, 0))
    for line in told.lines:
        spent = "infinite" if line.epsilon is None else f"{line.epsilon:.4f}"
        table.add_row(str(line.round_number), str(line.attempt + 1), line.release, spent)
    out.print(table, markup=False)
    claim = told.claim
    out.print(
        f"delta {claim.delta:g}, unit: {claim.unit}, neighbours: {claim.neighbours}, against {claim.against} "
        f"({told.accountant}; {'seeded: a simulation' if told.simulation else 'randomness from the system'})",
        markup=False,
    )
