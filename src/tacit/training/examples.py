"""Users' data as two tensors: a data set or a pair of arrays becomes features and labels in memory."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, TensorDataset, default_collate

from tacit.errors import DataError

UserData = Dataset[Any] | tuple[Any, Any]  # a data set, or features and labels
_EXPECTED = "a map-style Dataset or a pair of arrays (features, labels)"


def tensors(data: UserData, whose: str) -> tuple[Tensor, Tensor]:
    """Return features and labels of a data set or a pair of arrays.

    Features are numbers of any shape, one row per example; labels are whole numbers from 0, or floats for regression.
    What can't be that is refused, with whose it is.
    """
    if isinstance(data, IterableDataset) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise DataError(f"Expected a map-style Dataset or a pair of arrays for {whose}, got {_kind(data)}.")
    if isinstance(data, TensorDataset):
        data = cast(tuple[Any, Any], data.tensors)  # how many there are is checked below
    if isinstance(data, Dataset):
        data = _stacked(data, whose)
    if _is_frame(data) or isinstance(data, str | bytes | dict):
        raise DataError(f"Expected {_EXPECTED} for {whose}, got {_kind(data)}.{_advice(data)}")
    if len(data) != 2:
        raise DataError(f"Expected pairs of features and label for {whose}, got {len(data)} parts.")
    features = _numbers(data[0], f"The features of {whose}")
    labels = _numbers(data[1], f"The labels of {whose}")
    if len(features) != len(labels):
        raise DataError(f"Expected as many labels as examples for {whose}, got {len(labels)} and {len(features)}.")
    if len(labels) == 0:
        raise DataError(f"{whose[0].upper()}{whose[1:]} holds no example. Leave it out.")
    return features, labels if labels.is_floating_point() else labels.long()


def _stacked(data: Dataset[Any], whose: str) -> tuple[Any, Any]:
    """Bring the examples of a data set together."""
    place = "how many there are"
    examples = []
    try:
        count = len(cast(Any, data))
        for index in range(count):
            place = f"example {index}"
            examples.append(data[index])
    except Exception as error:  # it is somebody else's code
        raise DataError(
            f"The data set of {whose} can't be read: {place} ended in {type(error).__name__}: {error}. Mend it first."
        ) from error
    if not examples:
        raise DataError(f"{whose[0].upper()}{whose[1:]} holds no example. Leave it out.")
    if not isinstance(examples[0], tuple | list):
        raise DataError(f"Expected pairs of features and label for {whose}, got {_kind(examples[0])} as an example.")
    try:
        stacked = default_collate(examples)
    except (RuntimeError, TypeError, ValueError, KeyError, IndexError) as error:
        raise DataError(f"The examples of {whose} can't be stacked: {error}. They need one shape.") from error
    return cast(tuple[Any, Any], tuple(stacked))


def _numbers(part: Any, what: str) -> Tensor:
    """Return an array of finite numbers, one row per example."""
    if _is_frame(part) or part is None or isinstance(part, str | bytes | dict):
        raise DataError(f"{what} are {_kind(part)}, expected an array of numbers.{_advice(part)}")
    try:
        numbers = torch.as_tensor(part).detach()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        kind = getattr(part, "dtype", None)
        raise DataError(
            f"{what} are no array of numbers{'' if kind is None else f', but of {kind}'}: {_first_line(error)}. "
            "Number classes from 0, write categories as numbers, and give every row the same length."
        ) from error
    if numbers.dim() == 0:
        raise DataError(f"{what} are the single number {numbers.item()}, expected an array with one row per example.")
    if numbers.layout is not torch.strided or numbers.is_quantized:
        raise DataError(f"{what} are a sparse or quantized tensor. Make it dense first: tensor.to_dense().")
    if numbers.is_complex():
        raise DataError(f"{what} are complex numbers ({numbers.dtype}). Give real and imaginary parts as columns.")
    if not numbers.is_floating_point():
        return numbers
    numbers = numbers.float()
    if not bool(torch.isfinite(numbers).all()):
        raise DataError(
            f"{what} hold NaN or infinity, or numbers beyond what 32 bits hold. Fill gaps and scale columns first."
        )
    return numbers


def _is_frame(data: Any) -> bool:
    """Return whether something is a table with named columns, or a column of one, as of pandas or Polars."""
    return hasattr(data, "to_numpy") and not isinstance(data, Tensor)


def _advice(data: Any) -> str:
    if _is_frame(data):
        return " Pass arrays: frame.to_numpy()."
    return " Pass (features, labels)." if isinstance(data, dict) else ""


def _kind(data: Any) -> str:
    return type(data).__name__


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [repr(error)])[0].rstrip(".")
