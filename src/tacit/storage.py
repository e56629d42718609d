"""Everything that is written to disk: files that are whole or not there, files that only grow, folders and locks.

Every refusal of the operating system comes out as a :class:`~tacit.errors.StorageError`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import socket
import stat
import tempfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from tacit import foreign
from tacit.errors import RunError, StorageError

try:
    import fcntl
except ImportError:  # Windows: no lock against a second process
    fcntl = None  # type: ignore[assignment]  # Windows has no such module

RUN_ADVICE = "Free some space, or choose another folder with --out; a run that has begun goes on with `tacit resume`."
CACHE_VARIABLE = "TACIT_CACHE"
_REMARKS = {
    errno.EIO: "The disk, or the way to it, is failing; the system's log says more.",
    errno.EROFS: "It can only be read from.",
    errno.EACCES: "Its owner has to allow it first.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
}
_UNABLE = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}  # file systems whose folders know no fsync
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}
_ANYONE = 0o777  # less the user's mask
_SUFFIX = ".part"
_LETTERS = 40  # of the file's name; more could make the temporary name too long
_PIECE = 1 << 20
# Another user's link would have us empty a file, and to open a pipe must not wait for its reader.
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def cache_folder() -> Path:
    """Return the folder of what can be had again: downloads, features, the matrices of correlated noise."""
    try:
        if chosen := os.environ.get(CACHE_VARIABLE):
            return Path(chosen).expanduser()
        base = os.environ.get("XDG_CACHE_HOME")
        return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "tacit"
    except RuntimeError as error:
        raise StorageError(f"{error} Name a folder for downloads with {CACHE_VARIABLE}.") from error


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


def make_folder(path: Path, *, mode: int = _ANYONE, advice: str = RUN_ADVICE) -> None:
    """Make a folder and those above it, so that each outlasts a power cut; one that is there stays as it is.

    Args:
        path: the folder.
        mode: who may use it, where it is made; folders above it are as the user's mask has them.
        advice: what the error tells people to do.
    """
    here = path
    missing = []
    try:
        while not here.is_dir() and here != here.parent:
            missing.append(here)
            here = here.parent
        for folder in reversed(missing):
            folder.mkdir(mode=mode if folder == path else _ANYONE, exist_ok=True)
            sync_folder(folder.parent)
    except OSError as error:
        raise cannot_write(path, error, advice) from error


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to disk, where folders can be synced.

    Two refusals are harmless: a file system that has no such call keeps names in order by itself, or nothing can be
    done; and of a folder that may be written to but not read, nothing can be opened to sync.
    """
    if os.name == "nt":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNABLE:
            raise
    finally:
        close(descriptor)


def close(descriptor: int) -> None:
    """Close a file whose bytes were forced to disk, or do not matter; so a close that fails tells nothing new."""
    with contextlib.suppress(OSError):  # the descriptor is free all the same
        os.close(descriptor)


def is_there(path: Path) -> bool:
    """Return whether something is at ``path``; where the system will not say, that is an error and no absence."""
    try:
        return path.exists()
    except OSError as error:
        raise cannot_read(path, error) from error


def is_folder(path: Path) -> bool:
    """Return whether a folder is at ``path``; where the system will not say, that is an error and no absence."""
    try:
        return path.is_dir()
    except OSError as error:
        raise cannot_read(path, error) from error


def remove(path: Path, *, advice: str = RUN_ADVICE) -> None:
    """Take a file away; one that is not there is as good."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(path, error, advice) from error


class Lock:
    """Held by one process at a time; the system lets go of it when the process ends, however it ends.

    The file says who holds it, for people; what keeps others out is the system's lock on it (flock), so a file that a
    killed process left behind keeps nobody out.
    """

    def __init__(self, path: Path, *, advice: str = "Wait for it, or choose another --out.") -> None:
        self._path = path
        self._advice = advice
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
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | _PLAIN, 0o600)
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
                    f"{self._path.parent} is in use by another process{holder}. {self._advice}"
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
