"""The chain of places in which a data set's files are looked for, and how they get into the cache.

1. the user's folder: the argument, or else the environment's ``TACIT_DATA``;
2. the cache: ``TACIT_CACHE``, or ``tacit`` in ``XDG_CACHE_HOME`` or ``~/.cache``;
3. ``./data``, where torchvision's examples put theirs;
4. folders the system's packages fill, such as Debian's ``/usr/share/datasets/fashion-mnist``;
5. sources outside this machine, in the order the data set names them.

A data set is read from one place whole. A damaged file in 1 or 2, places that are the user's word or Tacit's
own, is an error; in 3 and 4, which nobody asked for, it is a reason to look on.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import DataError, StorageError
from tacit.storage import CACHE_VARIABLE, cache_folder, write_atomically
from tacit.tasks.files import DataFile
from tacit.tasks.remote import Remote

DATA_VARIABLE = "TACIT_DATA"
_CACHE_ADVICE = f"Free some space, or choose a folder on another disk that you may write to with {CACHE_VARIABLE}."


@dataclass(frozen=True, kw_only=True)
class Place:
    """A folder to look in."""

    label: str
    folder: Path
    trusted: bool  # whether a damaged file here is an error rather than a reason to look on


@dataclass(frozen=True, kw_only=True)
class FileSet:
    """The published files of one data set, and every way to get at them.

    The first of ``folders`` is also the one in the cache.
    """

    name: str  # what `tacit data get` is told
    title: str
    files: tuple[DataFile, ...]
    folders: tuple[str, ...]  # inside a data folder, in the order they are tried; "." is the folder itself
    system: tuple[Place, ...] = ()
    remotes: tuple[Remote, ...] = ()
    lookalikes: frozenset[str] = frozenset()  # SHA-256 of other sets' files of the same names

    @property
    def size(self) -> int:
        """How many bytes are published."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, kw_only=True)
class Located:
    """Where a data set's files are; nothing has been read yet."""

    label: str
    folder: Path
    paths: tuple[Path, ...]
    trusted: bool


@dataclass(frozen=True, kw_only=True)
class Obtained:
    """Verified, decompressed content of each file by its published name."""

    origin: str
    contents: dict[str, bytes]


def data_folders(folder: Path | None) -> list[Place]:
    """Return the data folders of this machine, the nearest first; one that was named must exist."""
    places = []
    named = os.environ.get(DATA_VARIABLE)
    if folder is not None:
        places.append(Place(label="your data folder", folder=folder, trusted=True))
    elif named:
        places.append(Place(label=f"{DATA_VARIABLE}'s folder", folder=Path(named), trusted=True))
    for place in places:
        if not place.folder.is_dir():
            raise DataError(
                f"{place.folder}, {place.label}, is no folder that can be opened. Make it, or name another."
            )
    places.append(Place(label="the cache", folder=cache_folder(), trusted=True))
    places.append(Place(label="./data", folder=Path("data"), trusted=False))
    return places


def candidates(file_set: FileSet, folder: Path | None, *, tried: list[str]) -> Iterator[Located]:
    """Yield each place that has all the files by name, nearest first; ``tried`` collects why others don't."""
    inside = [(place, file_set.folders) for place in data_folders(folder)]
    for place, names in [*inside, *((place, (".",)) for place in file_set.system)]:
        reason = "not there"
        for where in (place.folder / name for name in names):
            try:
                found = {file.name: file.find(where) for file in file_set.files}
            except DataError as error:
                if place.trusted:
                    raise
                reason = str(error)
                continue
            paths = tuple(path for path in found.values() if path is not None)
            if len(paths) == len(found):
                reason = ""
                yield Located(label=place.label, folder=where, paths=paths, trusted=place.trusted)
            elif paths:
                reason = f"lacks {', '.join(str(where / name) for name, path in found.items() if path is None)}"
        if reason:
            tried.append(f"{place.label} ({place.folder}): {reason}")


def locate(file_set: FileSet, folder: Path | None) -> Located | None:
    """Return the first place that has all the files by name, without reading them."""
    return next(candidates(file_set, folder, tried=[]), None)


def obtain(file_set: FileSet, *, folder: Path | None, download: bool) -> Obtained:
    """Return every file, verified, from the nearest place; download into the cache where none has them.

    Raises:
        DataError: a file is damaged, or no source has the set; the message lists each that was tried and why.
        StorageError: the download could not be written into the cache.
    """
    tried: list[str] = []
    obtained = _read_local(file_set, folder, tried)
    if obtained is None and download:
        obtained = _download(file_set, tried)
    if obtained is None:
        if not download:
            tried.append("the network: not asked, since downloads are off")
        reasons = "".join(f"\n  - {reason}" for reason in tried)
        raise DataError(
            f"{file_set.title} was not found. Tried:{reasons}\n"
            f"Put {', '.join(file.name for file in file_set.files)} into a folder and name it with "
            f"--data-dir or {DATA_VARIABLE}, or run `tacit data get {file_set.name}` with a network."
        )
    return obtained


def refresh(file_set: FileSet, *, folder: Path | None) -> Obtained:
    """As :func:`obtain`, but a damaged copy in the cache is replaced instead of refused."""
    for file in file_set.files:
        path = file.find(_cached(file_set))
        if path is None:
            continue
        try:
            file.read(path, advice="")
        except DataError:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise StorageError(f"Can't replace {path}: {error.strerror or error}. Delete it yourself.") from error
    return obtain(file_set, folder=folder, download=True)


def _cached(file_set: FileSet) -> Path:
    return cache_folder() / file_set.folders[0]


def _read_local(file_set: FileSet, folder: Path | None, tried: list[str]) -> Obtained | None:
    advice = f"Delete it, and `tacit data get {file_set.name}` brings a fresh copy."
    for located in candidates(file_set, folder, tried=tried):
        contents = {}
        for file, path in zip(file_set.files, located.paths, strict=True):
            try:
                contents[file.name] = file.read(path, advice=advice)
            except DataError as error:
                other = _lookalike(file_set, path)
                if located.trusted and not other:
                    raise
                tried.append(f"{path}: another data set's file of the same name" if other else str(error))
                break
        else:
            return Obtained(origin=f"{located.label} ({located.folder})", contents=contents)
    return None


def _lookalike(file_set: FileSet, path: Path) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() in file_set.lookalikes
    except OSError:
        return False


def _download(file_set: FileSet, tried: list[str]) -> Obtained | None:
    for remote in file_set.remotes:
        try:
            fetched = remote.fetch(file_set.files)
        except DataError as error:
            tried.append(str(error))
            continue
        inside = _cached(file_set)
        for name, data in fetched.items():
            write_atomically(inside / name, data, advice=_CACHE_ADVICE)
        contents = {
            file.name: file.verified(fetched[file.name], origin=remote.label, advice="") for file in file_set.files
        }
        return Obtained(origin=f"{remote.label}, now in the cache ({inside})", contents=contents)
    return None
