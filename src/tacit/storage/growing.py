"""A file that only grows, line by line, each line on disk before the next thing happens."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from tacit import foreign
from tacit.errors import StorageError
from tacit.storage.atomic import write_atomically
from tacit.storage.failures import cannot_read, cannot_write
from tacit.storage.folders import close

_PIECE = 1 << 20
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # to open a pipe must not wait for its reader


class GrowingFile:
    """Appends lines; for its owner alone (mode 0600).

    After an fsync that failed nobody knows what is on disk: the system may have dropped the bytes, and a second fsync
    then reports success all the same (Rebello et al. 2020). So the file takes nothing more, and whoever goes on with
    it later begins with :meth:`renew`, which brings all that can be read to a new file and to disk.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._broken: str | None = None
        self._descriptor = -1
        try:
            self._open()
            size = os.fstat(self._descriptor).st_size
            whole = whole_lines(path)
            if whole < size:  # a crash cut the last line short; the next append forces this to disk too
                os.ftruncate(self._descriptor, whole)
        except OSError as error:
            self.close()
            raise cannot_write(path, error) from error

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _PLAIN, 0o600)
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, expected a plain file", str(self._path))
        os.fchmod(self._descriptor, 0o600)  # it may be there with another

    def append(self, line: bytes) -> None:
        """Write one line and wait until it is on disk; one that does not fit leaves nothing behind."""
        if self._broken is not None:
            raise StorageError(
                f"Can't write {self._path}: {self._broken} What is on disk is not certain, so nothing more is written."
            )
        try:
            before = os.fstat(self._descriptor).st_size
            self._write(line, before)
            try:
                os.fsync(self._descriptor)
            except OSError:
                self._broken = "an earlier fsync failed."
                raise
        except OSError as error:
            raise cannot_write(self._path, error) from error

    def _write(self, line: bytes, before: int) -> None:
        view = memoryview(line)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except BaseException:
            self._broken = "an earlier line could not be taken back."
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, before)
                self._broken = None
            raise

    def renew(self) -> None:
        """Bring all lines that can be read to a new file under the same name, and to disk."""
        self._replace(_pieces(self._path))

    def clear(self) -> None:
        """Begin anew with an empty file."""
        self._replace(iter(()))

    def _replace(self, pieces: Iterator[bytes]) -> None:
        write_atomically(self._path, pieces, mode=0o600)
        self.close()
        try:
            self._open()
        except OSError as error:
            self.close()
            raise cannot_write(self._path, error) from error

    def close(self) -> None:
        """Close the file; all that was appended is on disk already."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            close(descriptor)


def whole_lines(path: Path) -> int:
    """Return how many bytes the whole lines of a file take; a last line without its end does not count."""
    with foreign.open_plain(path) as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - _PIECE)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
    return 0


def _pieces(path: Path) -> Iterator[bytes]:
    try:
        left = whole_lines(path)
        with foreign.open_plain(path) as file:
            while left and (piece := file.read(min(left, _PIECE))):
                yield piece
                left -= len(piece)
    except OSError as error:
        raise cannot_read(path, error) from error
