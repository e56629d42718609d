"""``tacit report``: a run as a page to look at, to print and to pass on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli import completion
from tacit.cli.output import console
from tacit.errors import ConfigError

_PAGES = (".html", ".htm")
STATEMENT = "statement.html"


def report(
    folder: Annotated[Path, typer.Argument(help="The run's folder.", autocompletion=completion.of_runs, metavar="RUN")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The page; report.html in the run's folder.")] = None,
    png: Annotated[
        Path | None,
        typer.Option(help="Also write each chart as PNG into this folder.", metavar="FOLDER", show_default=False),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(help="Also write each chart as SVG into this folder.", metavar="FOLDER", show_default=False),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(help="Also write every round's numbers into this CSV file.", metavar="FILE", show_default=False),
    ] = None,
    statement: Annotated[
        bool,
        typer.Option("--statement", help="Write the privacy statement instead: one sheet to print and to sign."),
    ] = False,
    baseline: Annotated[
        Path | None,
        typer.Option(
            help="A plain run to stand beside this one.", metavar="RUN", show_default="one like it in the same folder"
        ),
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="Print the report in the terminal instead of writing a page.")
    ] = False,
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    full: Annotated[
        bool,
        typer.Option("--full", help="Show also what may not be passed on, such as who took part where that is secret."),
    ] = False,
) -> None:
    """Write the report of a run, finished or not: one HTML file that needs no network.

    Examples:
      tacit report runs/a --open
      tacit report runs/a --out a.html
      tacit report runs/a --png figures
      tacit report runs/a --csv rounds.csv
      tacit report runs/a --statement --open
      tacit report runs/a --text
    """
    from tacit.report.run import baseline as baselines
    from tacit.report.run.curves import rounds_csv
    from tacit.report.run.page import run_page
    from tacit.report.run.statement import statement_page
    from tacit.runs.folder import REPORT
    from tacit.runs.history import read
    from tacit.storage import write_atomically

    if text and (out is not None or open_it):
        raise ConfigError("--text writes no page. Leave out --out and --open, or --text.")
    if statement and (baseline is not None or full):
        raise ConfigError("--statement is the same for everybody. Leave out --baseline and --full, or --statement.")
    path = out or folder / (STATEMENT if statement else REPORT)
    _refuse_other(path, csv)
    wanted = [(where, suffix) for where, suffix in ((png, ".png"), (svg, ".svg")) if where is not None]
    if wanted:
        from tacit.report.page import png as pictures

        pictures.check()
    found = read(folder)
    if statement:
        page = statement_page(found)
    else:
        beside = baselines.beside(folder, found) if baseline is None else baselines.named(baseline)
        page = run_page(found, full=full, baseline=beside)
    out_console = console()
    if text:
        from tacit.report.page import terminal

        out_console.print(terminal.page(page))
    else:
        html = page.html().encode()
        write_atomically(path, html, advice="Choose another file with --out.")
        out_console.print(f"{path}  ({len(html) / 1e6:.1f} MB)", markup=False, soft_wrap=True)
    if csv is not None:
        write_atomically(csv, rounds_csv(found, full=full).encode(), advice="Choose another file with --csv.")
        out_console.print(str(csv), markup=False, soft_wrap=True)
    for where, suffix in wanted:
        for drawn in pictures.write_all(page.charts, where, suffix=suffix):
            out_console.print(str(drawn), markup=False, soft_wrap=True)
    if open_it:
        typer.launch(path.resolve().as_uri())


def _refuse_other(page: Path, csv: Path | None) -> None:
    """Refuse files of other kinds: a slip must not replace a run's other files."""
    if page.suffix.lower() not in _PAGES:
        raise ConfigError(f"--out {page}: expected a page named *.html.")
    if csv is not None and csv.suffix.lower() != ".csv":
        raise ConfigError(f"--csv {csv}: expected a file named *.csv.")
