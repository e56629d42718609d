"""What a data set is in memory: examples to learn from, examples to test on, and who holds them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Features and labels, row by row.

    >>> few = Examples(features=np.zeros((3, 2), dtype=np.float32), labels=np.array([0, 1, 1]))
    >>> len(few), few.take(np.array([2, 0])).labels.tolist()
    (3, [1, 0])
    """

    features: NDArray[np.float32]  # (n, ...)
    labels: NDArray[np.int64]  # (n,), each >= 0

    def __post_init__(self) -> None:
        if self.features.dtype != np.float32 or self.labels.dtype != np.int64:
            raise DataError(
                f"Expected float32 features and int64 labels, "
                f"got {self.features.dtype} and {self.labels.dtype}. Convert them with astype first."
            )
        if self.features.ndim < 2 or self.labels.ndim != 1:
            raise DataError(
                f"Expected features of shape (n, ...) and labels of shape (n,), "
                f"got {self.features.shape} and {self.labels.shape}."
            )
        if len(self.features) != len(self.labels):
            raise DataError(f"Expected one label a row, got {len(self.features)} rows and {len(self.labels)} labels.")
        if not self._finite():
            raise DataError("Expected finite features, found NaN or infinity. Fill in missing values first.")
        if len(self.labels) and self.labels.min() < 0:
            raise DataError(f"Expected labels >= 0, found {self.labels.min()}. Number the classes from 0.")

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: NDArray[np.int64]) -> Examples:
        """Return a copy of the given rows, in the order given."""
        return Examples(features=self.features[rows], labels=self.labels[rows])

    def _finite(self) -> bool:
        # NaN and infinity both survive min and max, so that no boolean array of the same length is needed.
        if self.features.size == 0:
            return True
        return bool(np.isfinite(self.features.min()) and np.isfinite(self.features.max()))


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A named data set, ready to be split among clients.

    Image features are (n, 1, 28, 28), standardised with constants that are public and fixed; tables are (n,
    f).
    """

    name: str
    title: str
    classes: int
    train: Examples
    test: Examples
    origin: str  # words on where it was found: "the cache (...)", "scikit-learn"
    licence: str
    groups: NDArray[np.int64] | None = None  # the natural holder of each training row: its writer, its hospital
    group_names: tuple[str, ...] = ()  # by the numbers in ``groups``, where they have names

    def __post_init__(self) -> None:
        for part, examples in (("train", self.train), ("test", self.test)):
            if len(examples) == 0:
                raise DataError(f"The {part} part of {self.name} is empty.")
            if examples.labels.max() >= self.classes:
                raise DataError(
                    f"Expected labels below {self.classes} in the {part} part of {self.name}, "
                    f"found {examples.labels.max()}."
                )
        if self.train.features.shape[1:] != self.test.features.shape[1:]:
            raise DataError(
                f"The train and test parts of {self.name} differ in shape: "
                f"{self.train.features.shape[1:]} and {self.test.features.shape[1:]}."
            )
        if self.groups is not None:
            self._check_groups(self.groups)

    def _check_groups(self, groups: NDArray[np.int64]) -> None:
        if groups.shape != self.train.labels.shape or groups.dtype != np.int64:
            raise DataError(
                f"Expected one int64 holder for each of the {len(self.train)} training rows of {self.name}, "
                f"got {groups.dtype} of shape {groups.shape}."
            )
        if groups.min() < 0 or (self.group_names and groups.max() >= len(self.group_names)):
            raise DataError(
                f"Expected holders of {self.name} in 0..{len(self.group_names) - 1}, one for each name, "
                f"found {groups.min()}..{groups.max()}."
            )
