"""The commands of :mod:`tacit_labs`, loaded when the help lists them or a name is none of Tacit's own.

The labs are built on Tacit, never the other way round: this is the one place in Tacit that knows of them.
"""

from __future__ import annotations

from click import Command, Context
from typer.core import TyperGroup
from typer.main import get_group


class WithLabs(TyperGroup):
    """The command ``tacit``: its own commands, then those of the labs."""

    def list_commands(self, ctx: Context) -> list[str]:
        """Return the names in the order of the help."""
        self._load()
        return super().list_commands(ctx)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Return a command, or None; the names to choose from are then all of them."""
        if cmd_name not in self.commands:
            self._load()
        return super().get_command(ctx, cmd_name)

    def _load(self) -> None:
        from tacit_labs.commands import app

        self.commands.update(get_group(app).commands)
