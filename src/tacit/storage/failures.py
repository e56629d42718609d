"""What the operating system refused, in sentences."""

from __future__ import annotations

import errno
from pathlib import Path

from tacit.errors import StorageError

RUN_ADVICE = "Free some space, or choose another folder with --out; a run that has begun goes on with `tacit resume`."
_REMARKS = {
    errno.EIO: "The disk, or the way to it, is failing; the system's log says more.",
    errno.EROFS: "It can only be read from.",
    errno.EACCES: "Its owner has to allow it first.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
}


def cannot_write(path: Path | str, error: OSError, advice: str = RUN_ADVICE) -> StorageError:
    """Return the error that says which file could not be written, why, and what to do."""
    return StorageError(f"Can't write {_short(path)}: {_reason(error)} {advice}".rstrip())


def cannot_read(path: Path | str, error: OSError, advice: str = "") -> StorageError:
    """Return the error that says which file could not be read, why, and what to do."""
    return StorageError(f"Can't read {_short(path)}: {_reason(error)} {advice}".rstrip())


def _reason(error: OSError) -> str:
    remark = _REMARKS.get(error.errno or 0, "")
    return f"{error.strerror or error}. {remark}".rstrip()


def _short(path: Path | str) -> str:
    """Return a path for people: one that is too long for the system is too long for a message."""
    text = str(path)
    return text if len(text) <= 300 else f"{text[:140]}...{text[-140:]} ({len(text)} characters)"
