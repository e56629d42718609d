"""``tacit doctor``: what runs on this machine, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tacit import limits
from tacit.cli.output import JsonFlag, console, emit_json
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.runs.environment import Machine

_TITLES = {"python": "Python", "torch": "torch", "gpu": "GPU", "crypto": "cryptography", "kernels": "training kernels"}
_CLASSES = 1_000_000

app = typer.Typer()


@app.callback(invoke_without_command=True)
def doctor(
    context: typer.Context,
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
      tacit doctor model my_models:Small --shape 3,32,32 --classes 10
    """
    if context.invoked_subcommand is not None:
        if check:
            raise ConfigError("--check is of the cryptography, not of a model. Leave it out, or: tacit doctor --check.")
        return
    from tacit.runs.environment import examine

    machine = examine()
    checked = _checked() if check else None
    if as_json:
        emit_json(machine.to_dict() | ({} if checked is None else {"checked": checked}))
        return
    _show(machine)
    if checked is not None:
        console().print(f"  the cryptography's arithmetic is right: {checked} results as Python has them", markup=False)


@app.command("model")
def model(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="One of Tacit's models, or package.module:Class.")],
    *,
    shape: Annotated[str, typer.Option(help="The shape of one example, with commas.")] = "1,28,28",
    classes: Annotated[int, typer.Option(min=1, max=_CLASSES, help="How many classes there are.")] = 10,
    words: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=limits.EXAMPLES,
            help="Where examples are whole numbers, such as words: how many there are.",
            show_default=False,
        ),
    ] = None,
    clients: Annotated[int, typer.Option(min=1, max=limits.CLIENTS, help="How many hold data.")] = 100,
    examples: Annotated[int, typer.Option(min=1, max=limits.EXAMPLES, help="How many examples each holds.")] = 60,
    batch_size: Annotated[int, typer.Option(min=1, max=limits.EXAMPLES, help="How many a step takes.")] = 10,
    gpu: Annotated[int, typer.Option(min=-1, help="The number of a GPU; -1 is the CPU.")] = -1,
    as_json: JsonFlag = False,
) -> None:
    """Say in which form a model trains here, alone and under DP-SGD, and what stands in the way of a faster one.

    A client takes its steps on random examples, so that what a run would refuse is refused here.

    Examples:
      tacit doctor model cnn
      tacit doctor model my_models:Small --shape 3,32,32
      tacit doctor model my_models:Gru --shape 40 --words 80 --classes 80
    """
    from tacit.runs.job import device_of
    from tacit.runs.model_forms import forms_of

    try:
        sides = [int(side) for side in shape.split(",")]
    except ValueError:
        sides = []
    if not sides or min(sides) < 1:
        raise ConfigError(f"Expected --shape as whole numbers with commas, such as 3,32,32, got {shape!r}.")
    found = forms_of(
        name,
        shape=sides,
        classes=classes,
        words=words,
        clients=clients,
        examples=examples,
        batch_size=batch_size,
        device=device_of(gpu),
    )
    if as_json or (context.parent is not None and context.parent.params["as_json"]):  # before or behind the name
        emit_json(found.to_dict())
        return
    lines = [
        f"{name}: {found.parameters:,} parameters",
        f"  a cohort trains as {found.form}, {found.workers} at a time" + _because(found.form_reason),
        f"  DP-SGD clips by {found.private_form}" + _because(found.private_reason),
    ]
    console().print("\n".join(lines), markup=False, emoji=False, soft_wrap=True)


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


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
