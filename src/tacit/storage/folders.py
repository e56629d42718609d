"""Folders: made, looked into, and forced to disk."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from tacit.storage.failures import RUN_ADVICE, cannot_read, cannot_write

_UNABLE = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}  # file systems whose folders know no fsync
_ANYONE = 0o777  # less the user's mask


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
