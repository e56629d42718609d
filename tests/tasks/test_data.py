from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.errors import DataError
from tacit.tasks.data import DataSet, Examples


def _examples(rows: int = 4, width: int = 3) -> Examples:
    return Examples(
        features=np.arange(rows * width, dtype=np.float32).reshape(rows, width),
        labels=np.arange(rows, dtype=np.int64) % 2,
    )


def test_take_keeps_rows_and_labels_together() -> None:
    taken = _examples().take(np.array([3, 1]))
    assert taken.features.tolist() == [[9, 10, 11], [3, 4, 5]]
    assert taken.labels.tolist() == [1, 1]
    assert len(taken) == 2


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (np.zeros((2, 1), np.float64), np.zeros(2, np.int64), "float64"),
        (np.zeros((2, 1), np.float32), np.zeros(2, np.int32), "int32"),
        (np.zeros((2, 1), np.float32), np.zeros(3, np.int64), "2 rows and 3 labels"),
        (np.zeros(2, np.float32), np.zeros(2, np.int64), "shape"),
        (np.array([[np.nan], [0]], np.float32), np.zeros(2, np.int64), "NaN"),
        (np.array([[0], [np.inf]], np.float32), np.zeros(2, np.int64), "NaN or infinity"),
        (np.array([[0], [-np.inf]], np.float32), np.zeros(2, np.int64), "NaN or infinity"),
        (np.zeros((2, 1), np.float32), np.array([0, -1], np.int64), "-1"),
    ],
)
def test_examples_refuse(features: Any, labels: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Examples(features=features, labels=labels)


def _data_set(**changes: Any) -> DataSet:
    fields: dict[str, Any] = {
        "name": "toy",
        "title": "Toy",
        "classes": 2,
        "train": _examples(),
        "test": _examples(2),
        "origin": "here",
        "licence": "none",
    }
    return DataSet(**fields | changes)


def test_data_set_accepts_holders() -> None:
    data = _data_set(groups=np.array([0, 1, 1, 0]), group_names=("a", "b"))
    assert data.group_names == ("a", "b")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": 1}, "below 1"),
        ({"test": _examples(0)}, "test part of toy is empty"),
        ({"test": _examples(2, width=4)}, "differ in shape"),
        ({"groups": np.array([0, 1]), "group_names": ("a", "b")}, "4 training rows"),
        ({"groups": np.array([0, 1, 2, 0]), "group_names": ("a", "b")}, r"found 0\.\.2"),
    ],
)
def test_data_set_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        _data_set(**changes)
