"""Keys and vectors that the tests of the encrypting commands share."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.cli import main as cli

INSECURE = "--insecure-key-size"


@dataclass(frozen=True, kw_only=True)
class Tacit:
    """Runs the command in this process, as a shell would: by its arguments, status and two streams."""

    patch: pytest.MonkeyPatch
    capture: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str | Path) -> tuple[int, str, str]:
        self.patch.setattr(sys, "argv", ["tacit", *map(str, arguments)])
        status: Any = 0
        try:
            cli.main()
        except SystemExit as stop:
            status = stop.code or 0
        out, err = self.capture.readouterr()
        assert "Traceback" not in out + err
        return status, out, err

    def done(self, *arguments: str | Path) -> str:
        """Run what works and return what it printed, warnings left out."""
        status, out, err = self(*arguments)
        assert status == 0, err
        return " ".join(out.split())

    def json(self, *arguments: str | Path) -> dict[str, Any]:
        """Run what works with ``--json`` and return the object."""
        status, out, err = self(*arguments, "--json")
        assert status == 0, err
        found: dict[str, Any] = json.loads(out)
        return found

    def refused(self, *arguments: str | Path) -> str:
        """Run what is a mistake and return the sentence on stderr."""
        status, out, err = self(*arguments)
        assert status == 1, out + err
        assert out == ""
        assert "error: " in err
        return " ".join(err.split())


def save(path: Path, numbers: Any) -> Path:
    """Write an .npy file."""
    np.save(path, np.asarray(numbers), allow_pickle=True)
    return path


def only(folder: Path, *names: str) -> None:
    """Check that a folder holds these files and nothing half-written beside them."""
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == sorted(names)
