"""The data sets by name: what there is, where it is or would come from, and how to load it."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import ConfigError, DataError
from tacit.tasks import femnist, images, synthetic, tabular
from tacit.tasks.data import DataSet
from tacit.tasks.sources import FileSet, locate, refresh


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What is known of a data set before it is loaded."""

    name: str
    title: str
    classes: int
    examples: str  # how many, in words for people
    holders: str  # its natural holders, or why there are none
    licence: str
    load: Callable[[Path | None, bool], DataSet]
    files: FileSet | None = None  # None where there is no published file to fetch
    of_size: Callable[[int], DataSet] | None = None  # of a set that is drawn for any number of holders: NAME:NUMBER


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of `tacit data list`."""

    name: str
    title: str
    classes: int
    examples: str
    holders: str
    licence: str
    download_bytes: int
    found: str | None  # where it is on this machine; None where it is not
    sources: tuple[str, ...]  # where it would come from


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """What `tacit data get` brought, or found to be here already."""

    name: str
    origin: str
    writers: str | None = None  # where MNIST's writers are; None for other sets
    warning: str | None = None  # a part that splits may want could not be had


_ENTRIES = {
    entry.name: entry
    for entry in (
        Entry(
            name="mnist",
            title="MNIST: handwritten digits",
            classes=10,
            examples="60,000 + 10,000",
            holders="539 writers",
            licence=images.MNIST_LICENCE,
            load=lambda folder, download: images.load_mnist(folder=folder, download=download),
            files=images.MNIST,
        ),
        Entry(
            name="fashion-mnist",
            title="Fashion-MNIST: clothes",
            classes=10,
            examples="60,000 + 10,000",
            holders="none",
            licence=images.FASHION_LICENCE,
            load=lambda folder, download: images.load_fashion_mnist(folder=folder, download=download),
            files=images.FASHION_MNIST,
        ),
        Entry(
            name="femnist",
            title="FEMNIST: digits and letters by writer",
            classes=femnist.CLASSES,
            examples="as LEAF made it",
            holders="writers",
            licence=femnist.LICENCE,
            load=lambda folder, _download: femnist.load_femnist(folder=folder),
        ),
        Entry(
            name="digits",
            title="Digits: 8x8 pixels",
            classes=10,
            examples="1,442 + 355",
            holders="none",
            licence=tabular.DIGITS_LICENCE,
            load=lambda _folder, _download: tabular.load_digits(),
        ),
        Entry(
            name="breast-cancer",
            title="Breast cancer: 30 features of a tumour",
            classes=2,
            examples="456 + 113",
            holders="none",
            licence=tabular.BREAST_CANCER_LICENCE,
            load=lambda _folder, _download: tabular.load_breast_cancer(),
        ),
        Entry(
            name="heart-disease",
            title="Heart disease: 13 features of a patient",
            classes=2,
            examples="740 + 180",
            holders="4 hospitals",
            licence=tabular.HEART_LICENCE,
            load=lambda folder, download: tabular.load_heart_disease(folder=folder, download=download),
            files=tabular.HEART_DISEASE,
        ),
        Entry(
            name="synthetic",
            title="Synthetic: clients out of nothing, synthetic:N for N of them",
            classes=synthetic.CLASSES,
            examples="4 per client",
            holders=f"{synthetic.HOLDERS:,}, or N",
            licence=synthetic.LICENCE,
            load=lambda _folder, _download: synthetic.load_synthetic(),
            of_size=synthetic.load_synthetic,
        ),
    )
}


def names() -> tuple[str, ...]:
    """Return the names :func:`load` knows.

    >>> "mnist" in names()
    True
    """
    return tuple(_ENTRIES)


def load(name: str, *, folder: Path | None = None, download: bool = True) -> DataSet:
    """Load a data set from the nearest place that has it, downloading it where none on this machine does.

    ``synthetic:1000000`` is drawn, for a million holders.

    Raises:
        ConfigError: no data set has this name.
        DataError: it could not be had, or a file of it is damaged; the message lists each source and why.
    """
    base, colon, number = name.partition(":")
    entry = _entry(base)
    if not colon:
        return entry.load(folder, download)
    if entry.of_size is None or not number.isascii() or not number.isdigit():
        raise ConfigError(
            f"No data set is called {name!r}. The one whose number of clients can be chosen is synthetic:1000."
        )
    return entry.of_size(int(number))


def fetch(name: str, *, folder: Path | None = None) -> Fetched:
    """Make sure that a data set's files are here and whole; a damaged copy in the cache is replaced."""
    entry = _entry(name)
    if entry.files is None:
        # Loading is the check: nothing is fetched for these, and a set that is missing says how it is made.
        return Fetched(name=name, origin=entry.load(folder, True).origin)
    origin = refresh(entry.files, folder=folder).origin
    if entry.files is not images.MNIST:
        return Fetched(name=name, origin=origin)
    try:
        return Fetched(name=name, origin=origin, writers=refresh(images.MNIST_WRITERS, folder=folder).origin)
    except DataError as error:
        return Fetched(
            name=name, origin=origin, warning=f"Without its writers, the split `natural` won't work. {error}"
        )


def describe(folder: Path | None = None) -> list[Row]:
    """Return what there is and where, by the files' names only: nothing is read, hashed or downloaded."""
    return [_row(entry, folder) for entry in _ENTRIES.values()]


def _row(entry: Entry, folder: Path | None) -> Row:
    found: str | None
    if entry.files is not None:
        located = locate(entry.files, folder)
        found = f"{located.label} ({located.folder})" if located else None
        sources = tuple(remote.label for remote in entry.files.remotes)
    elif entry.name == "femnist":
        place = femnist.locate_femnist(folder)
        found = f"{place[0].label} ({place[1]})" if place else None
        sources = ("LEAF's preprocess.sh",)
    else:
        found = "scikit-learn" if entry.of_size is None else "drawn when it is loaded"
        sources = (found,)
    return Row(
        name=entry.name,
        title=entry.title,
        classes=entry.classes,
        examples=entry.examples,
        holders=entry.holders,
        licence=entry.licence,
        download_bytes=entry.files.size if entry.files else 0,
        found=found,
        sources=sources,
    )


def _entry(name: str) -> Entry:
    if name in _ENTRIES:
        return _ENTRIES[name]
    wanted = name.lower().replace("_", "-")
    begun = [known for known in _ENTRIES if wanted and known.startswith(wanted)]
    near = begun or difflib.get_close_matches(wanted, _ENTRIES, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"No data set is called {name!r}.{hint} Known: {', '.join(_ENTRIES)}.")
