"""``tacit ledger``: what a run released, round by round, and what it cost."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import completion
from tacit.cli.output import JsonFlag, console, emit_json
from tacit.rounding import epsilon_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from tacit.federated.plan import Claim
    from tacit.runs.ledger import Line


def ledger(
    folder: Annotated[Path, typer.Argument(help="The run's folder.", autocompletion=completion.of_runs)],
    as_json: JsonFlag = False,
) -> None:
    """Show what a run released, round by round, and what it cost."""
    from tacit.runs.ledger import ledger_of

    told = ledger_of(folder)
    if as_json:
        emit_json(told.to_dict())
        return
    out = console()
    if told.claim is None:
        out.print(f"{folder}: mode {told.mode} claims no differential privacy; nothing was charged.", markup=False)
        return
    levels = [(told.claim, told.accountant, told.lines)]
    if told.example_claim is not None:
        levels.append((told.example_claim, told.example_accountant, told.example_lines))
    for claim, accountant, lines in levels:
        _list(lines)
        _say(out, claim, accountant, simulation=told.simulation)


def _list(lines: Sequence[Line]) -> None:
    """Print a line per charge; there may be a hundred thousand, which a table of rich takes a minute for."""
    width = max((len(line.release) for line in lines), default=0)
    sys.stdout.write(f"round   try  {'release':{width}}  epsilon so far\n")
    for line in lines:
        spent = "" if line.epsilon is None else epsilon_text(line.epsilon, digits=5)
        sys.stdout.write(f"{line.round_number:<6}  {line.attempt + 1:<3}  {line.release:{width}}  {spent}\n")
    sys.stdout.flush()


def _say(out: Console, claim: Claim, accountant: str | None, *, simulation: bool) -> None:
    """Print what a claim means."""
    from tacit.report.words import guarantee

    drawn = "seeded: a simulation" if simulation else "randomness from the operating system"
    out.print(f"{guarantee(claim)} ({accountant}; {drawn})", markup=False)
