"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from tacit.errors import StorageError

RUN_ADVICE = (
    "What was there before is unchanged. Free some space, or choose another folder with --out; "
    "a run that has begun goes on with `tacit resume`."
)


def write_atomically(
    path: Path, data: bytes, *, advice: str = RUN_ADVICE, mode: int = 0o644, replace: bool = True
) -> None:
    """Write ``data`` to ``path``: a reader, or a crash, finds the old file or the new one, never a part.

    The bytes go to a temporary file in the same folder, reach the disk (fsync) and then take the name. On any failure
    the temporary file is removed and the old file, if there was one, is left as it was.

    Args:
        path: the file.
        data: all that it will hold.
        advice: what the error tells people to do.
        mode: who may read it; until it is whole, only its owner.
        replace: whether an existing file may be replaced; where not, it is refused, even one that appears meanwhile.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if replace:
            Path(temporary).replace(path)
        else:
            _take_free_name(temporary, path, advice)
        _sync_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error, advice) from error
    else:
        temporary = None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()


def _take_free_name(temporary: str, path: Path, advice: str) -> None:
    """Give a whole file its name, unless the name is taken."""
    try:
        os.link(temporary, path)  # fails where the name is taken, also since a moment ago
        Path(temporary).unlink()
    except FileExistsError as error:
        raise StorageError(f"{path} is there already and is left as it was. {advice}") from error
    except OSError:  # no hard links, as on a memory stick: an empty file holds the name until it is replaced
        try:
            path.touch(mode=0o600, exist_ok=False)
        except FileExistsError as error:
            raise StorageError(f"{path} is there already and is left as it was. {advice}") from error
        try:
            Path(temporary).replace(path)
        except BaseException:
            path.unlink()
            raise


def _sync_folder(folder: Path) -> None:
    """Force a new name to disk, where the system lets folders be synced."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def cannot_write(path: Path, error: OSError, advice: str = RUN_ADVICE) -> StorageError:
    """Return the error that says which file could not be written, why, and what to do."""
    return StorageError(f"Can't write {path}: {error.strerror or error}. {advice}")
