"""Users' data as two tensors: a data set or a pair of arrays becomes features and labels in memory."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, TensorDataset, default_collate

from tacit.errors import DataError

Examples = Dataset[Any] | tuple[Any, Any]


def tensors(data: Examples, whose: str) -> tuple[Tensor, Tensor]:
    """Return features and labels of a data set or a pair of arrays."""
    if isinstance(data, IterableDataset) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise DataError(f"Expected a map-style Dataset or a pair of arrays for {whose}, got {type(data).__name__}.")
    if isinstance(data, TensorDataset):
        data = cast(tuple[Any, Any], data.tensors)  # how many there are is checked below
    if isinstance(data, Dataset):
        if len(data) == 0:
            raise DataError(f"{whose[0].upper()}{whose[1:]} holds no example. Leave it out.")
        try:
            data = tuple(default_collate([data[i] for i in range(len(data))]))
        except (RuntimeError, TypeError) as error:
            raise DataError(f"The examples of {whose} can't be stacked: {error}. They need one shape.") from error
    if len(data) != 2:
        raise DataError(f"Expected pairs of features and label for {whose}, got {len(data)} parts.")
    features, labels = (torch.as_tensor(part) for part in data)
    if len(features) != len(labels):
        raise DataError(f"Expected as many labels as examples for {whose}, got {len(labels)} and {len(features)}.")
    if len(labels) == 0:
        raise DataError(f"{whose[0].upper()}{whose[1:]} holds no example. Leave it out.")
    if features.is_floating_point():
        features = features.float()
        if not bool(torch.isfinite(features).all()):
            raise DataError(f"The features of {whose} hold NaN or infinity.")
    return features, labels.float() if labels.is_floating_point() else labels.long()
