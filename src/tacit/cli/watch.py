"""``tacit watch``: the report of a run as a page that follows it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import completion
from tacit.cli.output import console
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.report.serving import LiveServer

_LARGEST = 65_535
Live = Annotated[
    bool,
    typer.Option(
        "--live",
        help="Serve the report as a page that follows the run, on this machine alone.",
        rich_help_panel="Output",
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=_LARGEST,
        help="Where the live page is served.",
        rich_help_panel="Output",
        show_default="one that is free",
    ),
]


def watch(
    folder: Annotated[
        Path,
        typer.Argument(
            help="The run's folder; it need not be there yet.", autocompletion=completion.of_runs, metavar="RUN"
        ),
    ],
    port: Port = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Serve the report of a run as a page that follows it, until Ctrl-C.

    The run may be one that another process is making, one that is finished, or one that has not begun. The page is
    for this machine alone: it listens on 127.0.0.1, and its address holds a secret.

    Examples:
      tacit watch runs/a --open
      tacit watch runs/a --port 8000
    """
    from tacit.report.serving import LiveServer

    with LiveServer(folder, port=port or 0) as server:
        told(server, f"The report of {folder}")
        if open_it:
            typer.launch(server.address)
        until_interrupted()


def served(folder: Path, *, live: bool, port: int | None) -> LiveServer | None:
    """Return what serves the page of a run that is about to begin, where that was asked for."""
    if not live:
        if port is not None:
            raise ConfigError(f"--port {port} has no effect without --live. Add --live, or leave it out.")
        return None
    from tacit.report.serving import LiveServer

    server = LiveServer(folder, port=port or 0)
    told(server, "The live page of this run")
    return server


def told(server: LiveServer, what: str) -> None:
    """Print where a page is, on stderr: stdout may be for a result."""
    console(stderr=True).print(f"{what}: {server.address}", markup=False, emoji=False, soft_wrap=True)


def until_interrupted() -> None:
    """Go on serving until Ctrl-C."""
    console(stderr=True).print("Ctrl-C ends it.", markup=False, emoji=False)
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        return
