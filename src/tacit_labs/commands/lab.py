"""``tacit lab``: the DP-SGD lab as three sweeps, with a table and figures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from tacit import limits
from tacit.cli.output import JsonFlag, Quiet, console, emit_json

_CHOICE = (
    "Each epsilon is that of one training run alone; ten seeds of a sweep on the same patients cost more than any. The "
    "lab is a simulation: its seeds are known."
)
_OWN = "normalise=own uses the patients' own means and deviations, which no epsilon here covers."


def lab(
    *,
    sweeps: Annotated[
        str, typer.Option(help="Which: epsilon, delta, iterations, separated by commas.")
    ] = "epsilon,delta,iterations",
    epsilon: Annotated[float, typer.Option(max=limits.EPSILON, help="Where epsilon is not swept.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Where delta is not swept.")] = 1e-3,
    iterations: Annotated[int, typer.Option(min=1, max=limits.STEPS, help="Where iterations are not swept.")] = 1000,
    lr: Annotated[float, typer.Option(max=limits.RATE, help="Learning rate.")] = 0.01,
    clip: Annotated[
        float, typer.Option("--C", "--clip", max=limits.HUGE, help="Largest norm of an example's gradient.")
    ] = 1.0,
    seeds: Annotated[
        int, typer.Option(min=1, max=limits.SEEDS, help="Splits and noise are drawn anew for so many seeds.")
    ] = 10,
    normalise: Annotated[
        str,
        typer.Option(help="public (bounds), private (noisy statistics, a tenth of the budget) or own (leaks)."),
    ] = "public",
    figures: Annotated[bool, typer.Option("--figures/--no-figures", help="Draw the figures.")] = True,
    out: Annotated[Path, typer.Option(help="Folder of the table and the figures.")] = Path("runs/lab"),
    quiet: Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Sweep private logistic regression on breast cancer: no privacy, the lab's accounting, the tight one.

    Examples:
      tacit lab
      tacit lab --sweeps epsilon --iterations 10000 --normalise private
    """
    from tacit.report.page import png, terminal
    from tacit.storage import write_atomically
    from tacit_labs.lab_004.dpsgd import figures as report
    from tacit_labs.lab_004.dpsgd import sweeps as labs

    if figures:
        png.check()
    names = [name.strip() for name in sweeps.split(",") if name.strip()]
    wanted = labs.Lab(
        epsilon=epsilon,
        delta=delta,
        iterations=iterations,
        lr=lr,
        clip=clip,
        seeds=seeds,
        normalise=normalise,  # type: ignore[arg-type]  # checked there, with a sentence for people
        sweeps={name: labs.SWEEPS.get(name, ()) for name in names},
    )
    began = time.perf_counter()
    points = labs.run(wanted)
    seconds = time.perf_counter() - began
    csv = out / "lab.csv"
    write_atomically(csv, labs.table(points).encode(), advice="Choose another folder with --out.")
    drawn = report.draw(points, out) if figures else ()
    notes = [_CHOICE, *([_OWN] if normalise == "own" else [])]
    if as_json:
        emit_json(
            {
                "points": [point.to_dict() for point in points],
                "seconds": round(seconds, 3),
                "csv": str(csv),
                "figures": [str(path) for path in drawn],
                "notes": notes,
            }
        )
        return
    if quiet:
        return
    from rich.text import Text

    out_console = console()
    out_console.print(terminal.table(report.table(points)))
    for note in notes:
        out_console.print(Text(note, style="yellow"), soft_wrap=True)
    for path in (csv, *drawn):
        out_console.print(f"written to {path}", markup=False, emoji=False, soft_wrap=True)
    out_console.print(f"{len(points)} settings of {seeds} seeds in {seconds:.1f} s", markup=False)
