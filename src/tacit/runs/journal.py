"""The journal: JSON lines, written ahead and forced to disk, readable after a crash at any byte."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tacit.errors import RunError
from tacit.storage import cannot_write

try:
    import fcntl
except ImportError:  # Windows: no lock against a second process on the same folder
    fcntl = None  # type: ignore[assignment]

Record = dict[str, Any]


class Journal:
    """Appends records; one process at a time.

    A record is on disk when :meth:`append` returns. A line that a crash cut short is taken away when the journal is
    opened again, as if it had not been begun.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("ab", buffering=0)  # nothing is left in a buffer when a write fails
        except OSError as error:
            raise cannot_write(path, error) from error
        try:
            if fcntl is not None:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise RunError(
                f"{path.parent} is in use by another process. Wait for it, or choose another --out."
            ) from error
        except OSError as error:
            self._file.close()
            raise cannot_write(path, error) from error
        whole = _whole_lines(path.read_bytes())
        if whole < path.stat().st_size:
            os.truncate(path, whole)

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record and wait until it is on disk; a record that does not fit leaves nothing behind."""
        line = memoryview(json.dumps(record, allow_nan=False).encode() + b"\n")
        before = self._path.stat().st_size
        try:
            while line:
                line = line[self._file.write(line) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            os.truncate(self._path, before)
            raise cannot_write(self._path, error) from error

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read(path: Path) -> list[Record]:
    """Return the records of a journal; a last line that was cut short does not count."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunError(f"Can't read {path}: {error.strerror}. Is {path.parent} the folder of a run?") from error
    records = []
    for number, line in enumerate(data[: _whole_lines(data)].splitlines(), start=1):
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise RunError(f"{path} is damaged in line {number}: {line[:60]!r} is not JSON.") from error
    return records


def _whole_lines(data: bytes) -> int:
    return data.rfind(b"\n") + 1
