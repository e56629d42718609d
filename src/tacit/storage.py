"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tacit.errors import StorageError


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``: a reader, or a crash, finds the old file or the new one, never a part.

    The bytes go to a temporary file in the same folder, are forced to disk, and take the name in one step.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise storage_error(path, error) from error


def storage_error(path: Path, error: OSError) -> StorageError:
    """Return the error that says which file could not be written, and why."""
    return StorageError(
        f"Can't write {path}: {error.strerror or error}. What was there before is unchanged. "
        "Free some space or choose another folder with --out, then go on with `tacit resume`."
    )
