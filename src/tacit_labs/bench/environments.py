"""Which interpreter has a peer: this one, or that of another environment."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence

from tacit.errors import ConfigError

_LOOK = "import sys, importlib.util as u; sys.exit(any(u.find_spec(name) is None for name in sys.argv[1:]))"


def first_with(packages: Sequence[str], pythons: Sequence[str] = ()) -> str | None:
    """Return this interpreter if it has all packages, else the first of ``pythons`` that does; nothing is imported."""
    if all(importlib.util.find_spec(package) is not None for package in packages):
        return sys.executable
    return next((python for python in pythons if _has(python, packages)), None)


def _has(python: str, packages: Sequence[str]) -> bool:
    try:
        done = subprocess.run([python, "-I", "-c", _LOOK, *packages], capture_output=True, check=False)
    except OSError as error:
        raise ConfigError(
            f"Can't run {python}: {error.strerror or error}. --peers-python is the Python of an environment, such as "
            ".bench/pfl/bin/python."
        ) from error
    return done.returncode == 0
