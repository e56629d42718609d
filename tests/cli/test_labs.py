from __future__ import annotations

from typer.testing import CliRunner

from tacit.cli.main import app


def test_the_labs_commands_are_listed_found_and_suggested() -> None:
    listed = CliRunner().invoke(app, ["--help"])
    assert all(f" {name} " in listed.stdout for name in ("run", "lab", "reproduce", "bench"))
    shown = CliRunner().invoke(app, ["bench", "crypto", "-h"])
    assert (shown.exit_code, "--peers-python" in shown.stdout) == (0, True)
    mistaken = CliRunner().invoke(app, ["benchh"])
    assert (mistaken.exit_code, "Did you mean 'bench'?" in mistaken.stderr) == (2, True)
