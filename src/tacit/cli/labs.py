"""The commands of :mod:`tacit_labs`, loaded when one of them is named or the help lists them.

The labs are built on Tacit, never the other way round: this is the one place in Tacit that knows of them.
"""

from __future__ import annotations

from click import Command, Context
from typer.core import TyperGroup
from typer.main import get_group

NAMES = ("lab", "reproduce", "bench")


class WithLabs(TyperGroup):
    """The command ``tacit``: its own commands, then those of the labs."""

    def list_commands(self, ctx: Context) -> list[str]:
        """Return the names in the order of the help."""
        return [*super().list_commands(ctx), *NAMES]

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Return a command; one of the labs is imported here."""
        if cmd_name not in NAMES:
            return super().get_command(ctx, cmd_name)
        from tacit_labs.commands import app

        return get_group(app).get_command(ctx, cmd_name)
