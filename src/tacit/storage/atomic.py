"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tacit.errors import StorageError
from tacit.storage.failures import RUN_ADVICE, cannot_write
from tacit.storage.folders import close, make_folder, sync_folder
from tacit.storage.lock import taken

_SUFFIX = ".part"
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}
_LETTERS = 40  # of the file's name; more could make the temporary name too long


def write_atomically(
    path: Path,
    data: bytes | Iterable[bytes],
    *,
    advice: str = RUN_ADVICE,
    mode: int = 0o644,
    replace: bool = True,
) -> None:
    """Write ``data`` to ``path``: a reader, or a crash, finds the old file or the new one, never a part.

    The bytes go to a temporary file in the same folder, reach the disk (fsync) and then take the name, which is forced
    to disk too. On any failure before that the temporary file is removed and the old file, if there was one, is left
    as it was. What a killed process left of the same file is taken away.

    Args:
        path: the file.
        data: all that it will hold, in one piece or several.
        advice: what the error tells people to do.
        mode: who may read it; until it is whole, only its owner.
        replace: whether an existing file may be replaced; where not, it is refused, even one that appears meanwhile.
    """
    make_folder(path.parent, advice=advice)
    _remove_abandoned(path)
    temporary: Path | None = None
    placed = False
    try:
        _refuse_special(path)
        descriptor, temporary = _part(path)
        try:
            _write(descriptor, [data] if isinstance(data, bytes) else data)
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
            if replace:
                temporary.replace(path)
                temporary = None
            else:
                temporary = _take_free_name(temporary, path, advice)
        finally:
            close(descriptor)  # and with it the lock, when the temporary name is no longer needed
        placed = True
        sync_folder(path.parent)
    except OSError as error:
        if placed:
            raise StorageError(
                f"{path} is written, but may not outlast a power cut: {error.strerror or error}. {advice}"
            ) from error
        raise cannot_write(path, error, f"What was there before is unchanged. {advice}") from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):  # the next who writes this file tries again
                temporary.unlink()


def _write(descriptor: int, pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        view = memoryview(piece)
        while view:
            view = view[os.write(descriptor, view) :]


def _part(path: Path) -> tuple[int, Path]:
    """Return a new file beside ``path``, locked so that nobody takes it for one that a killed process left."""
    while True:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=_prefix(path), suffix=_SUFFIX)
        try:
            if _ours(descriptor) and os.fstat(descriptor).st_nlink:
                return descriptor, Path(name)
        except BaseException:
            close(descriptor)
            Path(name).unlink()
            raise
        close(descriptor)  # somebody came between the two calls and is removing it


def _ours(descriptor: int) -> bool:
    """Lock a temporary file; where a file system has no locks, nobody can take it for an abandoned one either."""
    try:
        return taken(descriptor)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return True


def _prefix(path: Path) -> str:
    return f".{path.name[:_LETTERS]}."


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of ``path`` that no process is writing: those of processes that were killed.

    A failure here is harmless: such a file is in nobody's way, and the next write tries again.
    """
    pattern = re.compile(re.escape(_prefix(path)) + "[a-z0-9_]{8}" + re.escape(_SUFFIX))
    with contextlib.suppress(OSError):
        for name in os.listdir(path.parent):  # noqa: PTH208 - names alone
            if pattern.fullmatch(name):
                part = path.parent / name
                descriptor = os.open(part, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
                try:
                    if taken(descriptor):
                        part.unlink()
                finally:
                    close(descriptor)


def _take_free_name(temporary: Path, path: Path, advice: str) -> Path | None:
    """Give a whole file its name, unless the name is taken; return the temporary name if it is still there."""
    occupied = f"{path} is there already and is left as it was. {advice}"
    try:
        os.link(temporary, path)  # fails where the name is taken, also since a moment ago
    except FileExistsError as error:
        raise StorageError(occupied) from error
    except OSError:  # no hard links, as on a memory stick: an empty file holds the name until it is replaced
        try:
            path.touch(mode=0o600, exist_ok=False)
        except FileExistsError as error:
            raise StorageError(occupied) from error
        try:
            temporary.replace(path)
        except BaseException:
            path.unlink()
            raise
        return None
    return temporary


def _refuse_special(path: Path) -> None:
    """Raise OSError where the name is that of a device, a pipe or a socket: its owner wants it there, not a file."""
    with contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):  # a folder is refused by the system
            raise OSError(errno.EINVAL, "it is a pipe or a device, expected a plain file")
