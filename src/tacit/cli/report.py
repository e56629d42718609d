"""``tacit report``: a run as a page to look at, to print and to pass on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli import completion
from tacit.cli.output import console
from tacit.errors import ConfigError

_PAGES = (".html", ".htm")


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
      tacit report runs/a --text
    """
    from tacit.report.run.page import run_page
    from tacit.runs.folder import REPORT
    from tacit.runs.history import read
    from tacit.storage import write_atomically

    if text and (out is not None or open_it):
        raise ConfigError("--text writes no page. Leave out --out and --open, or --text.")
    path = out or folder / REPORT
    if path.suffix.lower() not in _PAGES:  # a slip must not replace a run's other files
        raise ConfigError(f"--out {path}: expected a page named *.html.")
    wanted = [(where, suffix) for where, suffix in ((png, ".png"), (svg, ".svg")) if where is not None]
    if wanted:
        from tacit.report.page import png as pictures

        pictures.check()
    page = run_page(read(folder), full=full)
    out_console = console()
    if text:
        from tacit.report.page import terminal

        out_console.print(terminal.page(page))
    else:
        html = page.html().encode()
        write_atomically(path, html, advice="Choose another file with --out.")
        out_console.print(f"{path}  ({len(html) / 1e6:.1f} MB)", markup=False, soft_wrap=True)
    for where, suffix in wanted:
        for drawn in pictures.write_all(page.charts, where, suffix=suffix):
            out_console.print(str(drawn), markup=False, soft_wrap=True)
    if open_it:
        typer.launch(path.resolve().as_uri())
