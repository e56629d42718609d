"""``tacit sweep``: a grid of runs, with its table and figures."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit import limits
from tacit.cli import completion, options
from tacit.cli.output import JsonFlag, Quiet, console, emit_json
from tacit.cli.watching import watching
from tacit.errors import RunError
from tacit.storage import write_atomically

if TYPE_CHECKING:
    from tacit.studies.plan import Axis
    from tacit.studies.sweep import Row

_SWEEP = "Sweep"
_CHOICE = (
    "Each epsilon is that of one point alone. To choose a point by its result, or to publish several, costs more than "
    "any of them: all points saw the same data."
)
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[JOB.yaml] [KEY=VALUE]... KEY=VALUES...",
        help="A job file, settings, and axes: FIRST:LAST:N is N values in equal steps, log:FIRST:LAST:N by equal "
        "factors, A,B,C a list. `tacit config` prints every key.",
        show_default=False,
        autocompletion=completion.of_words,
    ),
]
Out = Annotated[
    Path | None, typer.Option(help="Folder of the sweep.", rich_help_panel="Output", show_default="runs/sweep-...")
]


@options.configured(*options.without(options.RUN, "out"), words=Words)
def sweep(
    *,
    seeds: Annotated[
        int, typer.Option(min=1, max=limits.SEEDS, help="Run each point with so many seeds.", rich_help_panel=_SWEEP)
    ] = 1,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, max=limits.WORKERS, help="Points at a time.", rich_help_panel=_SWEEP, show_default="one per core"
        ),
    ] = None,
    asked: options.Asked,
    figures: Annotated[
        bool, typer.Option("--figures/--no-figures", help="Draw heat maps and surfaces.", rich_help_panel="Output")
    ] = True,
    out: Out = None,
    force: Annotated[
        bool, typer.Option("--force", help="Begin anew in a folder that holds a sweep.", rich_help_panel="Output")
    ] = False,
    quiet: Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a grid of settings: a table, a page, heat maps and surfaces of accuracy and epsilon.

    The same command with the same --out goes on with a sweep that was stopped.

    Examples:
      tacit sweep --mode dp dp.clip=0.1:0.9:5 dp.noise=0.1:0.4:4 --rounds 2 --out runs/sweep
      tacit sweep optimizer.lr=log:0.01:1:5 --seeds 3
    """
    from tacit.report import sweep as report
    from tacit.report.page import png
    from tacit.studies import plan
    from tacit.studies import sweep as grids

    axes, others = plan.parse_axes(asked.words)
    settings = asked.but(others).settings()
    if figures:
        png.check()
    folder = Path(out or settings.get("out") or Path("runs") / f"sweep-{datetime.now():%Y%m%d-%H%M%S}")
    study = plan.of_grid(settings, axes, seeds=seeds)
    again = f"the same command goes on with it, with --out {folder}"
    with watching(quiet=quiet, as_json=as_json, again=again) as watch:
        on_done, on_round = watch.study(study)
        rows = grids.sweep(study, out=folder, workers=workers, force=force, on_done=on_done, on_round=on_round)
    failed = [row for row in rows if row.error is not None]
    if len(failed) == len(rows):
        raise RunError(f"All {len(rows)} runs failed, the first because: {failed[0].error}")
    notes = list(dict.fromkeys(note for row in rows for note in row.notes))
    if len(rows) > 1 and any(row.epsilon is not None for row in rows):
        notes.append(_CHOICE)
    page = report.page(rows, axes, notes=notes)
    write_atomically(folder / report.PAGE, page.html().encode(), advice="Choose another folder with --out.")
    drawn = png.write_all(page.charts, folder, advice="Choose another folder with --out.") if figures else ()
    notes += report.charts(rows, axes).notes
    table = folder / grids.TABLE
    if as_json:
        best = grids.best(grids.cells(rows))
        emit_json(
            {
                "axes": {axis.key: list(axis.values) for axis in axes},
                "rows": [row.to_dict() for row in rows],
                "best": None if best is None else best.to_dict(),
                "failed": len(failed),
                "csv": str(table),
                "page": str(folder / report.PAGE),
                "figures": [str(path) for path in drawn],
                "notes": notes,
                "folder": str(folder),
            }
        )
    elif not quiet:
        _show(rows, axes, notes, [table, folder / report.PAGE, *drawn])


def _show(rows: list[Row], axes: list[Axis], notes: list[str], paths: list[Path]) -> None:
    from rich.text import Text

    from tacit.report import sweep as report
    from tacit.report.page import terminal

    out = console()
    out.print(terminal.parts(report.parts(rows, axes)))
    for row in rows:
        if row.error is not None:
            out.print(Text(report.failure(row), style="red"), soft_wrap=True)
    for note in notes:
        out.print(Text(note, style="yellow"), soft_wrap=True)
    for path in paths:
        out.print(f"written to {path}", markup=False, emoji=False, soft_wrap=True)
