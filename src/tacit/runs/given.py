"""What users pass as data: clients one by one, or rows of all of them and whose each is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import ConfigError, DataError
from tacit.runs.trained import single_column
from tacit.shares import Shares
from tacit.tasks.tables import Encoding
from tacit.training.examples import arrays, columns_of, is_flat, label_of, labels_of

_ALL = "the clients"
_PARTS = {"train", "test", "validation", "valid", "dev", "unsupervised", "all"}  # what they are called


@dataclass(frozen=True, kw_only=True)
class Part:
    """What somebody gave: features and labels, or the columns of a table and its labels."""

    labels: Any
    features: Tensor | None = None
    table: Mapping[str, Any] | None = None
    label: str | None = None


@dataclass(frozen=True, kw_only=True)
class Clients:
    """What the clients gave: a part each or, where ``shares`` says whose its rows are, one part for all of them."""

    parts: list[Part]
    whose: list[str]  # what the parts are called in messages
    names: tuple[str, ...] = ()  # of the clients, where they have any
    shares: Shares | None = None


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Reads what users pass as data."""

    label: str | None
    owner: Any  # of a table or of arrays for all clients: the column that says whose a row is, or its name

    def clients(self, given: Any) -> Clients:
        """Return what the clients gave."""
        if self.owner is not None:
            return self._shared_out(given)
        names: tuple[str, ...] = ()
        if isinstance(given, Mapping):
            names = tuple(str(name) for name in given)
            if hasattr(given, "column_names") and set(names) <= _PARTS:  # of Hugging Face
                raise ConfigError(
                    f"{', '.join(map(repr, names))} are the parts of one data set, and no clients. Share its training "
                    f"part out, such as clients=[data[{names[0]!r}].shard(10, number) for number in range(10)], and "
                    "pass what it is tested on as test=."
                )
            if any(not hasattr(one, "__len__") or getattr(one, "ndim", 2) < 2 for one in given.values()):
                raise ConfigError(
                    f"Expected clients as a list, or as a mapping from their names to their examples, got a mapping of "
                    f"{', '.join(map(repr, names[:6]))}. Of one table for all clients, name the column that says "
                    "whose a row is: client=..."
                )
            given = list(given.values())
        listed = _listed(given)
        if not listed:
            raise ConfigError("Expected at least one client, got none.")
        whose = [f"client {name}" for name in names or range(len(listed))]
        parts = [self.part(data, name) for data, name in zip(listed, whose, strict=True)]
        return Clients(parts=parts, whose=whose, names=names)

    def part(self, data: Any, whose: str) -> Part:
        """Return what one client, or the test, gave."""
        columns = columns_of(data, whose)
        if columns is None:
            features, labels = arrays(data, whose)
            return Part(features=features, labels=labels)
        if isinstance(self.owner, str):
            columns.pop(self.owner, None)
        label = label_of(columns, self.label, whose)
        rest = {name: column for name, column in columns.items() if name != label}
        if not len(columns[label]):
            raise DataError(f"{whose[0].upper()}{whose[1:]} holds no example. Leave it out.")
        if rest and all(is_flat(column) for column in rest.values()):
            return Part(table=rest, labels=columns[label], label=label)
        return Part(features=single_column(rest, whose), labels=labels_of(columns[label], f"The labels of {whose}"))

    def _shared_out(self, given: Any) -> Clients:
        """Return the rows of all clients at once, and whose each is."""
        owners = self.owner
        if isinstance(owners, str):
            columns = columns_of(given, _ALL)
            if columns is None:
                raise ConfigError(
                    f"client={owners!r} is a column of one table for all clients, got {type(given).__name__}."
                )
            if owners not in columns:
                raise ConfigError(f"There is no column {owners!r} of clients, only {', '.join(map(repr, columns))}.")
            owners = [str(owner) for owner in columns[owners]]
        part = self.part(given, _ALL)
        names, numbers = _numbered(owners)
        if len(numbers) != len(part.labels):
            raise DataError(
                f"Expected client= to say whose each of the {len(part.labels)} rows is, got {len(numbers)} values."
            )
        shares = Shares.of_owners(numbers, clients=len(names))
        told = () if names.dtype.kind in "iu" and np.array_equal(names, np.arange(len(names))) else names.tolist()
        return Clients(parts=[part], whose=[_ALL], names=tuple(map(str, told)), shares=shares)


def _numbered(owners: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the different owners in their order, and the number of each row's among them."""
    try:
        values = np.asarray(owners.to_numpy() if hasattr(owners, "to_numpy") else owners)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"client= can't be read as one value per row: {error}.") from error
    if values.dtype.kind == "O" and all(isinstance(one, str) for one in values.flat):
        values = values.astype(str)
    if values.ndim != 1 or values.dtype.kind not in "iuU":
        raise ConfigError(
            f"Expected client= as the name of a column, or as one whole number or text per row, got {values.dtype} of "
            f"shape {values.shape}."
        )
    names, numbers = np.unique(values, return_inverse=True)
    return names, numbers.reshape(-1).astype(np.int64)


def class_names(
    parts: Sequence[Part],
    tested: Part | None,
    classes: Sequence[str] | None,
    encoding: Encoding | None,
    whose: Sequence[str],
) -> tuple[tuple[str, ...], str]:
    """Return the names of the classes, if labels are text, and where they come from."""
    if encoding is not None:
        return encoding.classes, "the encoding"
    given = (*parts, *(() if tested is None else (tested,)))
    texts = [not isinstance(part.labels, Tensor) for part in given]
    if not any(texts):
        return tuple(classes or ()), "the user"
    if not all(texts):
        text, number = texts.index(True), texts.index(False)
        raise DataError(
            f"The labels of {whose[text]} are text, such as {given[text].labels[0]!r}, those of {whose[number]} are "
            "numbers. Give all as text, or number all classes from 0."
        )
    if classes is not None:
        return tuple(classes), "the user"
    shown = set() if tested is None else set(tested.labels)
    found = {label for part in parts for label in part.labels}
    if found <= shown:
        return tuple(sorted(shown)), "the test set"
    return tuple(sorted(found | shown)), "the clients' labels"


def described(columns: Any) -> dict[str, Any]:
    """Return what is publicly known of columns, if it is ranges and categories."""
    if columns is None:
        return {}
    if not isinstance(columns, Mapping) or not all(isinstance(one, list | tuple) for one in columns.values()):
        raise ConfigError(
            f"Expected columns={{'age': [18, 90], 'sex': ['female', 'male']}}: a range or categories by column, got "
            f"{columns!r:.80}."
        )
    return {str(name): list(one) for name, one in columns.items()}


def _listed(clients: Any) -> list[Any]:
    """Return the clients' data one by one."""
    if isinstance(clients, str | bytes | Mapping) or hasattr(clients, "to_numpy") or not isinstance(clients, Iterable):
        more = " Of one table for all clients, name the column that says whose a row is: client=..."
        raise ConfigError(
            f"Expected clients as a list with the examples of each, such as [(features, labels), ...], got "
            f"{type(clients).__name__}.{more if hasattr(clients, 'to_numpy') else ''}"
        )
    return list(clients)
