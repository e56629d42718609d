"""The journal: JSON lines, written ahead and forced to disk, readable after a crash at any byte."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tacit import foreign
from tacit.errors import RunError, WireError
from tacit.storage import GrowingFile, Lock, cannot_read, whole_lines

Record = dict[str, Any]

_LONGEST = 1 << 26  # bytes of a line, which may name every client of a round


class Journal:
    """Appends records; one process at a time, and only its owner may read it.

    A record is on disk when :meth:`append` returns. A line that a crash cut short is taken away when the journal is
    opened again, as if it had not been begun. After a failure of which nobody knows what it left on disk, nothing more
    is appended.
    """

    def __init__(self, path: Path) -> None:
        self._lock = Lock(lock_of(path))
        try:
            self._file = GrowingFile(path)
        except BaseException:
            self._lock.release()
            raise

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record and wait until it is on disk; a record that does not fit leaves nothing behind."""
        self._file.append(json.dumps(record, allow_nan=False).encode() + b"\n")

    def renew(self) -> None:
        """Bring all records to a new file and to disk; so goes on who does not know how the last session ended."""
        self._file.renew()

    def clear(self) -> None:
        """Begin anew without a record."""
        self._file.clear()

    def close(self) -> None:
        """Let go of the journal."""
        self._file.close()  # fails never
        self._lock.release()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def lock_of(path: Path) -> Path:
    """Return the file that says who is at a journal."""
    return path.with_name(f".{path.name}.lock")


def read(path: Path) -> list[Record]:
    """Return the records of a journal; a last line that was cut short does not count."""
    return list(each(path))


def each(path: Path) -> Iterator[Record]:
    """Yield the records of a journal one by one; a last line that was cut short does not count."""
    try:
        with foreign.open_plain(path) as file:
            for number in itertools.count(1):
                line = file.readline(_LONGEST + 1)
                if not line.endswith(b"\n") and len(line) <= _LONGEST:
                    return
                try:
                    record = foreign.json_value(line, largest=_LONGEST)
                except WireError as error:
                    raise RunError(f"{path} is damaged in line {number}: {line[:60]!r} is not JSON. {error}") from error
                yield record
    except FileNotFoundError as error:
        raise RunError(f"Can't read {path}: {error.strerror}. Is {path.parent} the folder of a run?") from error
    except OSError as error:
        raise cannot_read(path, error, f"Is {path.parent} the folder of a run?") from error


def is_empty(path: Path) -> bool:
    """Return whether a journal has no whole record; False where there is no journal."""
    try:
        return whole_lines(path) == 0
    except FileNotFoundError:
        return False
    except OSError as error:
        raise cannot_read(path, error) from error
