"""The folder of a run and what lies in it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tacit.errors import RunError
from tacit.logs import tensorboard
from tacit.logs.mlflow import RECORD as MLFLOW
from tacit.runs import journal
from tacit.runs.checkpoint import Checkpoint
from tacit.storage import cannot_write, write_atomically

CONFIG, JOURNAL, CHECKPOINT, MODEL, RESULT, REPORT = (
    "config.yaml",
    "journal.jsonl",
    "checkpoint.safetensors",
    "model.safetensors",
    "result.json",
    "report.html",
)
_OURS = (CONFIG, JOURNAL, CHECKPOINT, MODEL, RESULT)


class RunFolder:
    """Owns a run's folder while the run goes on; closing it lets another process in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = journal.Journal(path / JOURNAL)

    @staticmethod
    def check(path: Path, *, force: bool) -> None:
        """Refuse a folder that holds another run, unless ``force`` is given."""
        present = [name for name in _OURS if (path / name).exists()]
        if present and not force:
            raise RunError(
                f"{path} holds another run ({', '.join(present)}). Go on with it by `tacit resume {path}`, "
                "choose another folder with --out, or replace it with --force."
            )

    @classmethod
    def create(cls, path: Path, *, config: str, force: bool) -> RunFolder:
        """Make the folder of a new run; one that holds another run is refused unless ``force`` is given."""
        cls.check(path, force=force)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(path, error) from error
        folder = cls(path)  # the lock comes first: a run that another process is at is not replaced
        try:
            folder._clear()
            write_atomically(path / CONFIG, config.encode())
        except BaseException:
            folder.close()
            with contextlib.suppress(OSError):
                (path / JOURNAL).unlink()
            raise
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open the folder of a run that has begun."""
        if not (path / JOURNAL).is_file() or not (path / CONFIG).is_file():
            raise RunError(f"{path} is not the folder of a run: it has no {JOURNAL} and {CONFIG}.")
        return cls(path)

    def records(self) -> list[journal.Record]:
        """Return the journal."""
        return journal.read(self.path / JOURNAL)

    def checkpoint(self) -> Checkpoint | None:
        """Return the last checkpoint, or None before the first."""
        path = self.path / CHECKPOINT
        return Checkpoint.read(path) if path.exists() else None

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint."""
        checkpoint.write(self.path / CHECKPOINT)

    def _clear(self) -> None:
        try:
            for name in (*_OURS, REPORT, MLFLOW):
                if name != JOURNAL:
                    (self.path / name).unlink(missing_ok=True)
            tensorboard.clear(self.path)
            os.truncate(self.path / JOURNAL, 0)
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def close(self) -> None:
        """Let go of the folder."""
        self.journal.__exit__(None, None, None)
