"""FEMNIST: handwritten digits and letters by writer, in LEAF's JSON files (Caldas et al. 2018).

Each writer is a natural client. LEAF makes the files itself from NIST Special Database 19, with a sampling
seed, so that there is no published hash to check: their structure is checked instead. It is laid out as

    <folder>/train/*.json   and   <folder>/test/*.json      (each may be compressed to .json.gz)

and every file holds ``users`` and ``user_data``: for each writer, rows of 784 pixels in 0..1 and labels in
0..61.

Writers with training images are the clients, and the test set is the test files' images of the same writers.
Writers that are in the test files only are left out: they are nobody's client here, and their hands differ
from those learned.

Paper is 1 and ink is 0 in LEAF. Pixels are inverted to MNIST's polarity and standardised with MNIST's
constants, which are public and fixed.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import foreign
from tacit.errors import DataError, WireError
from tacit.tasks.data import DataSet, Examples
from tacit.tasks.images import MNIST_DEVIATION, MNIST_MEAN
from tacit.tasks.sources import Place, data_folders

CLASSES = 62  # ten digits, then A-Z, then a-z
LICENCE = "public domain (NIST Special Database 19)"
HOW_TO_GET = (
    "Make it with LEAF (https://github.com/TalwalkarLab/leaf): in data/femnist run "
    "`./preprocess.sh -s niid --sf 0.05 -k 0 -t sample`, then copy its data/train and data/test into "
    "<folder>/femnist and name the folder with --data-dir or TACIT_DATA."
)

_FOLDERS = ("femnist", "femnist_leaf", "femnist/data", "data/femnist/data")
_PIXELS = 784
_LARGEST = 1 << 32  # bytes of a file, unpacked; LEAF writes about a tenth of this for a hundred writers

_Writers = dict[str, tuple[NDArray[np.float32], NDArray[np.int64]]]


def locate_femnist(folder: Path | None) -> tuple[Place, Path] | None:
    """Return the first place that has both folders of JSON files, and where in it; nothing is read."""
    for place in data_folders(folder):
        # Only in a folder that was named may bare train/ and test/ be taken for FEMNIST's.
        for name in (*_FOLDERS, ".") if place.trusted else _FOLDERS:
            where = place.folder / name
            if _files(where / "train") and _files(where / "test"):
                return place, where
    return None


def load_femnist(*, folder: Path | None = None) -> DataSet:
    """Load the writers found on this machine; LEAF's files are made, not downloaded."""
    found = locate_femnist(folder)
    if found is None:
        tried = "".join(f"\n  - {place.label} ({place.folder})" for place in data_folders(folder))
        raise DataError(f"FEMNIST was not found. Tried:{tried}\n{HOW_TO_GET}")
    place, where = found
    train = _read_part(where / "train")
    test = _read_part(where / "test")
    names = tuple(sorted(writer for writer, (_, labels) in train.items() if len(labels)))
    if not names:
        raise DataError(f"No file in {where / 'train'} holds a writer with images. {HOW_TO_GET}")
    tested = [writer for writer in names if writer in test]
    if not tested:
        raise DataError(
            f"No writer of {where / 'train'} is in {where / 'test'}: the two come from different LEAF runs."
        )
    return DataSet(
        name="femnist",
        title="FEMNIST",
        classes=CLASSES,
        train=_join([train[writer] for writer in names]),
        test=_join([test[writer] for writer in tested]),
        groups=np.repeat(np.arange(len(names), dtype=np.int64), [len(train[writer][1]) for writer in names]),
        group_names=names,
        origin=f"{place.label} ({where})",
        licence=LICENCE,
    )


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith((".json", ".json.gz")))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise DataError(
            f"Can't look into {folder}: {error.strerror or error}. Give yourself the right to read it."
        ) from error


def _read_part(folder: Path) -> _Writers:
    writers: _Writers = {}
    for path in _files(folder):
        for writer, pixels, labels in _read_file(path):
            if writer in writers:
                raise DataError(
                    f"{path} holds writer {writer}, and another file beside it does too. Delete one of them."
                )
            writers[writer] = pixels, labels
    return writers


def _read_file(path: Path) -> Iterator[tuple[str, NDArray[np.float32], NDArray[np.int64]]]:
    try:
        with foreign.open_plain(path) as stream:
            packed = path.name.endswith(".gz")
            data = foreign.read_all(gzip.GzipFile(fileobj=stream) if packed else stream, largest=_LARGEST)
        document = foreign.json_value(data, largest=_LARGEST, finite=False)
        users = [(str(user), document["user_data"][user]) for user in document["users"]]
    except OSError as error:
        raise DataError(f"Can't read {path}: {error.strerror or error}. Delete it or make it again.") from error
    except (EOFError, zlib.error, WireError, LookupError, TypeError) as error:
        raise DataError(f"{path} is damaged or no LEAF file ({error!r}). Delete it or make it again.") from error
    for writer, rows in users:
        yield writer, *_rows(rows, path=path, writer=writer)


def _rows(rows: Any, *, path: Path, writer: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    try:
        with np.errstate(over="ignore"):  # what is beyond a float32 is beyond 1
            pixels = np.array(rows["x"], dtype=np.float32).reshape(-1, _PIXELS)
        labels = np.array(rows["y"], dtype=np.int64)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise DataError(
            f"{path} holds no rows of {_PIXELS} pixels for writer {writer} ({error}). Make it again."
        ) from error
    # Written so that a NaN fails too.
    within = len(pixels) == 0 or (pixels.min() >= 0 and pixels.max() <= 1)
    if (
        labels.shape != (len(pixels),)
        or not within
        or (len(labels) and not 0 <= labels.min() <= labels.max() < CLASSES)
    ):
        raise DataError(
            f"{path}: expected one label in 0..{CLASSES - 1} and pixels in 0..1 for each row "
            f"of writer {writer}. Make it again."
        )
    return pixels, labels


def _join(parts: list[tuple[NDArray[np.float32], NDArray[np.int64]]]) -> Examples:
    pixels = np.concatenate([pixels for pixels, _ in parts])
    features = ((1 - MNIST_MEAN) - pixels) / np.float32(MNIST_DEVIATION)
    return Examples(
        features=features.astype(np.float32).reshape(-1, 1, 28, 28),
        labels=np.concatenate([labels for _, labels in parts]),
    )
