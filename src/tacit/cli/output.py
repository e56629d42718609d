"""What the commands print: one JSON object on stdout with ``--json``, and rich text for people otherwise."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]

ForceRun = Annotated[bool, typer.Option("--force", help="Replace a run in the folder.", rich_help_panel="Output")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.", rich_help_panel="Output")]


def emit_json(value: Any) -> None:
    """Print ``value`` as the one JSON object of the command; NaN and infinity are refused, never printed."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def console(*, stderr: bool = False) -> Console:
    """Return a console that honours ``NO_COLOR`` and whether the stream is a terminal."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=not (sys.stderr if stderr else sys.stdout).isatty())
