"""Which logs there are, what they need, and how they are opened."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from tacit.errors import ConfigError
from tacit.logs.background import Background
from tacit.logs.log import Log

NAMES = ("tensorboard", "mlflow")  # also the packages, and the extras that bring them


def check(names: Sequence[str], *, folder: Path | None) -> None:
    """Refuse a log that can't be written, before the run begins."""
    for name in names:
        if name not in NAMES:
            raise ConfigError(f"log={name} does not work: expected {' or '.join(NAMES)}.")
        if importlib.util.find_spec(name) is None:
            raise ConfigError(
                f"log={name} needs the package {name}, which is not installed. Run: pip install 'tacit[{name}]'. "
                "Or leave it out."
            )
    if "tensorboard" in names and folder is None:
        raise ConfigError("log=tensorboard writes into the run's folder, and this run has none. Set out.")


def opened(names: Sequence[str], *, folder: Path | None) -> list[Background]:
    """Return the logs, each with a thread of its own."""
    return [Background(_log(name, folder), name=name) for name in dict.fromkeys(names)]


def _log(name: str, folder: Path | None) -> Log:
    if name == "mlflow":
        from tacit.logs.mlflow import MlflowLog

        return MlflowLog(folder)
    from tacit.logs.tensorboard import TensorBoardLog

    assert folder is not None
    return TensorBoardLog(folder)
