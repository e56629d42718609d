"""``tacit resume``: go on with a run after a crash or Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli import completion
from tacit.cli.output import JsonFlag, Quiet, emit_json
from tacit.cli.watching import watching


def resume(
    folder: Annotated[Path, typer.Argument(help="The run's folder.", autocompletion=completion.of_runs)],
    quiet: Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Go on with a run after a crash or Ctrl-C, to the same final model."""
    from tacit.runs import run as start

    with watching(quiet=quiet, as_json=as_json, again=f"go on with: tacit resume {folder}") as watch:
        result = start.resume(folder, observer=watch.run())
    if as_json:
        emit_json(result.to_dict())
