"""``tacit report``: a run as a page to look at, to print and to pass on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.output import console
from tacit.errors import ConfigError

_PAGES = (".html", ".htm")


def report(
    folder: Annotated[Path, typer.Argument(help="The run's folder.", metavar="RUN")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The page; report.html in the run's folder.")] = None,
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
    """
    from tacit.report.run.page import run_page
    from tacit.runs.folder import REPORT
    from tacit.runs.history import read
    from tacit.storage import write_atomically

    path = out or folder / REPORT
    if path.suffix.lower() not in _PAGES:  # a slip must not replace a run's other files
        raise ConfigError(f"--out {path}: expected a page named *.html.")
    page = run_page(read(folder), full=full).html().encode()
    write_atomically(path, page, advice="Choose another file with --out.")
    console().print(f"{path}  ({len(page) / 1e6:.1f} MB)", markup=False)
    if open_it:
        typer.launch(path.resolve().as_uri())
