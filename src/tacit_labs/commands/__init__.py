"""The commands ``tacit lab``, ``tacit reproduce`` and ``tacit bench``, as :mod:`tacit.cli.labs` finds them."""

from __future__ import annotations

import typer

from tacit.cli.options import Configured
from tacit_labs.commands import bench, lab, reproduce

app = typer.Typer(rich_markup_mode="rich")
app.command("lab")(lab.lab)
app.command("reproduce", cls=Configured)(reproduce.reproduce)
app.add_typer(bench.app, name="bench")
