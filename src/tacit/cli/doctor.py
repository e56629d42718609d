"""``tacit doctor``: what runs on this machine, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.output import JsonFlag, console, emit_json

if TYPE_CHECKING:
    from tacit.runs.environment import Machine

_TITLES = {"python": "Python", "torch": "torch", "gpu": "GPU", "crypto": "cryptography", "kernels": "training kernels"}


def doctor(
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Compare the cryptography's arithmetic with Python's on random numbers.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Say what this machine brings: Python, torch, GPU, cores, and which fast paths run and why not the others.

    Examples:
      tacit doctor
      tacit doctor --check
      TACIT_CRYPTO_BACKEND=gmpy2 tacit doctor
    """
    from tacit.runs.environment import examine

    machine = examine()
    checked = _checked() if check else None
    if as_json:
        emit_json(machine.to_dict() | ({} if checked is None else {"checked": checked}))
        return
    _show(machine)
    if checked is not None:
        console().print(f"  the cryptography's arithmetic is right: {checked} results as Python has them", markup=False)


def _checked() -> int:
    from tacit.crypto import backend

    return backend.verify(backend.backend())


def _show(machine: Machine) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for part in machine.parts:
        mark = Text("✓", style="green") if part.best else Text("·", style="yellow")
        table.add_row(mark, _TITLES[part.name], Text(part.value, style="bold"), Text(part.reason))
    table.add_row(Text("✓", style="green"), "cores", Text(str(machine.cores), style="bold"), "this process may use")
    console().print(table)
