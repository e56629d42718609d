"""Users' data as two tensors: a data set, a pair of arrays or columns by name become features and labels in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, TensorDataset, default_collate

from tacit.errors import DataError

UserData = Any  # a data set, features and labels, or a table: what it may be is looked at
_EXPECTED = "a map-style Dataset or a pair of arrays (features, labels)"
_LABELS = ("label", "labels")  # what a data set of Hugging Face calls them


def tensors(data: UserData, whose: str) -> tuple[Tensor, Tensor]:
    """Return features and labels of a data set or a pair of arrays.

    Features are numbers of any shape, one row per example; labels are whole numbers from 0, or floats for regression.
    What can't be that is refused, with whose it is.
    """
    features, labels = arrays(data, whose)
    if not isinstance(labels, Tensor):
        raise DataError(
            f"The labels of {whose} are no array of numbers, but text such as {labels[0]!r}. Number classes from 0."
        )
    return features, labels


def columns_of(data: Any, whose: str) -> dict[str, Any] | None:
    """Return the columns of a table by their names: a mapping, a data frame, a data set of Hugging Face; or None."""
    if isinstance(data, Mapping):
        if all(hasattr(part, "column_names") for part in data.values()) and data:
            raise DataError(
                f"Expected one data set for {whose}, got {_kind(data)} with {', '.join(map(str, data))}. Take one of "
                f"them: dataset[{next(iter(data))!r}]."
            )
        columns = {str(name): data[name] for name in data}
    else:
        frame = _is_frame(data) and hasattr(data, "columns")
        names = list(data.columns) if frame else getattr(data, "column_names", None)
        if not isinstance(names, list | tuple):
            return None
        try:
            columns = {str(name): data[name].to_numpy() if frame else _listed(data[name]) for name in names}
        except Exception as error:  # it is somebody else's code
            raise DataError(
                f"The table of {whose} can't be read: {type(error).__name__}: {_first_line(error)}."
            ) from error
    lengths = {name: len(column) for name, column in columns.items() if hasattr(column, "__len__")}
    if len(lengths) < len(columns) or len(set(lengths.values())) > 1:
        raise DataError(f"Expected columns of one length for {whose}, got {lengths or _kind(data)}.")
    return columns


def label_of(columns: Mapping[str, Any], label: str | None, whose: str) -> str:
    """Return the name of the labels' column: what was said or, in a data set of Hugging Face's kind, ``label``."""
    name = label or next((usual for usual in _LABELS if usual in columns), None)
    if name is None or name not in columns:
        asked = "" if label is None else f" {label!r}"
        raise DataError(
            f"There is no column{asked} with labels in the table of {whose}. Name it: label=..., one of "
            f"{', '.join(map(repr, columns))}."
        )
    return name


def is_flat(column: Any) -> bool:
    """Return whether a column holds one number or text per row."""
    if getattr(column, "ndim", 1) != 1:
        return False
    first = column[0] if len(column) else None
    return isinstance(first, str | bytes) or not (hasattr(first, "__len__") or _is_image(first))


def from_column(column: Any, what: str) -> Tensor:
    """Return the features of a single column: arrays, lists of one length, or images; or those of a data frame."""
    if _is_frame(column) or not hasattr(column, "__len__") or not len(column):
        return _numbers(column, what)
    if _is_image(column[0]):
        pixels = [np.asarray(image, np.float32) / 255.0 for image in column]
        column = [one[None] if one.ndim == 2 else one.transpose(2, 0, 1) for one in pixels]
    if isinstance(column, list | tuple) and hasattr(column[0], "__len__"):
        try:
            column = np.stack([np.asarray(row) for row in column])
        except ValueError as error:
            raise DataError(f"{what} can't be stacked: {_first_line(error)}. They need one shape.") from error
    numbers = _numbers(column, what)
    return numbers / 255.0 if numbers.dtype == torch.uint8 else numbers  # pixels, as of a data set with tensors


def _is_image(value: Any) -> bool:
    """Return whether something is an image, as Pillow has them."""
    return hasattr(value, "convert") and hasattr(value, "mode")


def labels_of(part: Any, what: str) -> Tensor | list[str]:
    """Return labels as numbers, or as text where they are."""
    texts = _texts(part)
    if texts is not None:
        return texts
    labels = _numbers(part, what)
    return labels if labels.is_floating_point() else labels.long()


def arrays(data: UserData, whose: str) -> tuple[Tensor, Tensor | list[str]]:
    """Return features and labels of a data set or a pair of arrays, the labels as text where they are text."""
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
    features = features.float() if features.dtype == torch.bool else features
    labels = labels_of(data[1], f"The labels of {whose}")
    if len(features) != len(labels):
        raise DataError(f"Expected as many labels as examples for {whose}, got {len(labels)} and {len(features)}.")
    if len(labels) == 0:
        raise DataError(f"{whose[0].upper()}{whose[1:]} holds no example. Leave it out.")
    return features, labels


def _texts(part: Any) -> list[str] | None:
    """Return a column of text, or None where it holds something else."""
    if isinstance(part, Tensor | str | bytes) or not hasattr(part, "__len__"):
        return None
    values = part.to_numpy() if _is_frame(part) else part
    if isinstance(values, np.ndarray) and values.dtype.kind == "U" and values.ndim == 1:
        return [str(value) for value in values]
    listed = isinstance(values, list | tuple) or (isinstance(values, np.ndarray) and values.dtype.kind in "OT")
    if listed and len(values) and all(isinstance(value, str) for value in values):
        return [str(value) for value in values]
    return None


def _listed(column: Any) -> Any:
    if hasattr(column, "to_pylist"):  # of Arrow, whose items are no numbers
        return column.to_pylist()
    return column if isinstance(column, np.ndarray | Tensor | list) else list(column)


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
    if _is_frame(part):
        part = _of_frame(part, what)
    if part is None or isinstance(part, str | bytes | dict):
        raise DataError(f"{what} are {_kind(part)}, expected an array of numbers.{_advice(part)}")
    if isinstance(part, np.ndarray) and not part.flags.writeable:  # as pandas gives columns
        part = part.copy()
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


def _of_frame(frame: Any, what: str) -> Any:
    """Return the numbers of a data frame or of one of its columns; true and false are 1 and 0."""
    values = frame.to_numpy()
    if getattr(values, "dtype", np.dtype(float)).kind != "O":
        return values
    for place, name in enumerate(getattr(frame, "columns", ())):
        if any(isinstance(value, str) for value in values[:, place]):
            raise DataError(
                f"{what} hold text in column {str(name)!r}. Encode it as numbers, or give the whole table and the name "
                "of its labels, label=...: Tacit then encodes it."
            )
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        return values


def _advice(data: Any) -> str:
    if _is_frame(data):
        return " Name the column of its labels, label=..., or pass (features, labels)."
    return " Pass (features, labels)." if isinstance(data, dict) else ""


def _kind(data: Any) -> str:
    return type(data).__name__


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [repr(error)])[0].rstrip(".")
