"""``tacit resume``: go on with a run after a crash or Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.output import JsonFlag
from tacit.cli.run import Quiet, watch


def resume(
    folder: Annotated[Path, typer.Argument(help="The run's folder.")],
    quiet: Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Go on with a run after a crash or Ctrl-C, to the same final model."""
    from tacit.runs import run as start

    watch(lambda observer: start.resume(folder, observer=observer), folder, quiet=quiet, as_json=as_json)
