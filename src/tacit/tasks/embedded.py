"""The tables that scikit-learn carries, read from its files: to import it takes longer than a small run."""

from __future__ import annotations

import gzip
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.errors import DataError


@cache
def table(name: str, *, header: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the features and labels of one of its files; they are read once per process and can't be written to.

    >>> features, labels = table("digits.csv.gz")
    >>> features.shape, labels[:5].tolist()
    ((1797, 64), [0, 1, 2, 3, 4])
    """
    found = find_spec("sklearn")
    if found is None or found.origin is None:
        raise DataError(f"{name} comes with scikit-learn, which is not installed: pip install scikit-learn.")
    path = Path(found.origin).parent / "datasets" / "data" / name
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"Can't read {path}, which comes with scikit-learn: {error.strerror}. Install it again."
        ) from error
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    rows = np.loadtxt(text.decode().splitlines(), delimiter=",", skiprows=header)
    labels = rows[:, -1].astype(np.int64)
    rows.flags.writeable = labels.flags.writeable = False
    return rows[:, :-1], labels
