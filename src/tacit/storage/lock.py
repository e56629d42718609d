"""One process at a time, and the others are told which."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from tacit.errors import RunError
from tacit.storage.failures import cannot_write
from tacit.storage.folders import close

try:
    import fcntl
except ImportError:  # Windows: no lock against a second process
    fcntl = None  # type: ignore[assignment]

_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # another user's link would have us empty a file


class Lock:
    """Held by one process at a time; the system lets go of it when the process ends, however it ends.

    The file says who holds it, for people; what keeps others out is the system's lock on it (flock), so a file that a
    killed process left behind keeps nobody out.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        try:
            if fcntl is not None:
                self._descriptor = self._acquired()
                os.ftruncate(self._descriptor, 0)
                os.write(self._descriptor, _holder())
        except OSError as error:
            self.release()
            raise cannot_write(path, error) from error

    def _acquired(self) -> int:
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o600)
            try:
                ours = taken(descriptor)
                if ours and os.fstat(descriptor).st_nlink:
                    return descriptor
                holder = _named(descriptor)
            except BaseException:
                close(descriptor)
                raise
            close(descriptor)
            if not ours:
                raise RunError(
                    f"{self._path.parent} is in use by another process{holder}. Wait for it, or choose another --out."
                )  # where it is ours, but has no name, its last holder took the file away meanwhile

    def release(self) -> None:
        """Let another process in."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):  # a file that stays locks nobody out
                self._path.unlink()
            close(descriptor)


def taken(descriptor: int) -> bool:
    """Lock an open file, unless another process has; return whether it is ours now."""
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder() -> bytes:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return json.dumps({"process": os.getpid(), "host": socket.gethostname(), "since": since}).encode()


def _named(descriptor: int) -> str:
    """Return who holds a lock, as its file tells; nothing where it tells nothing yet."""
    try:
        told = json.loads(os.pread(descriptor, 4096, 0))
        return f" (process {int(told['process'])} on {told['host']}, since {told['since']})"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
