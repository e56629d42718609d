"""Tables of your own: a CSV file, or columns by name, as features, classes and clients.

Columns of numbers are centred and scaled; columns of text become one feature per category. A missing value (empty, `?`,
`NA`, `NaN`, `null`) becomes the centre of its column, 0 once scaled, or no category at all. What a column is centred on
and divided by, which categories and classes there are, is a statistic of somebody's rows, so it comes from a place that
may be known (:meth:`Encoding.of`): the user's own public description, a public test file or, only where no privacy is
claimed, the training rows.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import foreign
from tacit.errors import ConfigError, DataError
from tacit.tasks.data import DataSet, Examples

Table = Mapping[str, Sequence[Any]]  # columns of equal length
Described = Mapping[str, Any]  # a column's public range [low, high], or its categories

_MISSING = {"", "?", "na", "n/a", "nan", "null", "none"}
_MOST_CATEGORIES = 100
_MOST_CLASSES = 1_000
_LARGEST = 1 << 30  # bytes
_FARTHEST = 1e6  # deviations from its centre that a number may have: a slip of the pen must not become an infinity
_DELIMITERS = (",", ";", "\t")


def is_file(name: str) -> bool:
    """Return whether a data set's name is that of a CSV file.

    >>> is_file("my.csv"), is_file("mnist")
    (True, False)
    """
    return name.lower().endswith(".csv")


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """A column of numbers, centred and scaled; what lies far outside a public range is brought to its edge."""

    name: str
    centre: float
    scale: float
    bounded: bool = False

    @property
    def width(self) -> int:
        """How many features it becomes."""
        return 1

    def encoded(self, values: Sequence[Any]) -> NDArray[np.float32]:
        """Return one feature; a missing value is 0."""
        numbers = numbers_of(values)
        if numbers is None:
            wrong = next(value for value in values if _missing(value) is False and _number(value) is None)
            raise DataError(f"Column {self.name!r} holds numbers elsewhere, and {wrong!r} here.")
        scaled: NDArray[np.float64] = np.nan_to_num((numbers - self.centre) / self.scale, nan=0.0)
        kept = np.clip(scaled, -1.0, 1.0) if self.bounded else np.clip(scaled, -_FARTHEST, _FARTHEST)
        return np.array(kept[:, None], np.float32)


@dataclass(frozen=True, kw_only=True)
class Categories:
    """A column of text, one feature per category; what is missing or unknown is none of them."""

    name: str
    values: tuple[str, ...]

    @property
    def width(self) -> int:
        """How many features it becomes."""
        return len(self.values)

    def encoded(self, values: Sequence[Any]) -> NDArray[np.float32]:
        """Return a feature for each category: 1 where it is the row's."""
        places = {value: place for place, value in enumerate(self.values)}
        found = np.array([places.get(_text(value), -1) for value in values])
        return np.array(found[:, None] == np.arange(len(self.values))[None, :], np.float32)


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """How columns become features and classes.

    >>> table = {"age": ["30", "50", ""], "sex": ["f", "m", "f"]}
    >>> Encoding.of(table, labels=["no", "yes", "no"], described={"age": [20, 60]}).features(table).tolist()
    [[-0.5, 1.0, 0.0], [0.5, 0.0, 1.0], [0.0, 1.0, 0.0]]

    Attributes:
        columns: in the order of the features.
        classes: the names of the labels, numbered from 0.
        source: where its constants come from, in words.
    """

    columns: tuple[Numbers | Categories, ...]
    classes: tuple[str, ...]
    source: str

    @classmethod
    def of(
        cls,
        table: Table,
        *,
        labels: Sequence[Any],
        label: str = "the label",
        described: Described | None = None,
        source: str = "the training rows",
    ) -> Encoding:
        """Read constants off ``table``, but where ``described`` says them.

        Args:
            table: rows that may be known.
            labels: their labels.
            label: the name of the labels' column.
            described: public knowledge of columns: a range ``[low, high]``, or a list of categories.
            source: whose rows they are, in words.
        """
        known = dict(described or {})
        if not table:
            raise DataError(f"There is no column beside {label!r} to learn from.")
        columns = tuple(_column(name, values, known.get(name)) for name, values in table.items())
        said = known.get(label)
        classes = tuple(_text(one) for one in said) if said is not None else _classes(labels, label)
        every = all(name in known for name in (*table, label))
        return cls(columns=columns, classes=classes, source="a public description" if every else source)

    def features(self, table: Table) -> NDArray[np.float32]:
        """Return the features of rows."""
        absent = [column.name for column in self.columns if column.name not in table]
        if absent:
            raise DataError(f"Column {absent[0]!r} is missing; there are {', '.join(map(repr, table))}.")
        return np.hstack([column.encoded(table[column.name]) for column in self.columns])

    def labels(self, values: Sequence[Any], whose: str) -> NDArray[np.int64]:
        """Return the numbers of labels."""
        places = {name: place for place, name in enumerate(self.classes)}
        found = [places.get(_text(value), -1) for value in values]
        if -1 in found:
            wrong = values[found.index(-1)]
            raise DataError(
                f"The label {wrong!r} of {whose} is not among the classes {', '.join(self.classes[:20])}, which come "
                f"from {self.source}."
            )
        return np.array(found, np.int64)

    def to_plain(self) -> dict[str, Any]:
        """Return plain containers."""
        return {
            "columns": [asdict(column) for column in self.columns],
            "classes": list(self.classes),
            "source": self.source,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Encoding:
        """Return what :meth:`to_plain` gave."""
        columns = tuple(
            Categories(name=one["name"], values=tuple(one["values"])) if "values" in one else Numbers(**one)
            for one in plain["columns"]
        )
        return cls(columns=columns, classes=tuple(plain["classes"]), source=str(plain["source"]))


def read_csv(path: Path) -> dict[str, list[str]]:
    """Return the columns of a CSV file by the names in its first line; values are text, stripped of blanks."""
    if path.is_dir():
        raise DataError(f"{str(path)!r} is a folder. Give the path of one CSV file in it.")
    if not path.is_file():
        raise DataError(
            f"There is no file {str(path)!r}. Give the path of a CSV file whose first line names its columns."
        )
    try:
        text = foreign.read_plain(path, largest=_LARGEST).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8 ({error.reason}). Save it as CSV with that encoding.") from error
    first = text.partition("\n")[0]
    delimiter = max(_DELIMITERS, key=first.count)
    try:
        lines = [line for line in csv.reader(io.StringIO(text), delimiter=delimiter, strict=True) if line]
    except csv.Error as error:
        raise DataError(f"{path} is no CSV file: {error}.") from error
    if len(lines) < 2:
        raise DataError(f"{path} holds no rows. Expected a line of column names, and a line per row below it.")
    names = [name.strip() for name in lines[0]]
    if len(set(names)) < len(names) or not all(names):
        raise DataError(
            f"Expected the first line of {path} to name every column once, got {', '.join(map(repr, names))}."
        )
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(names):
            raise DataError(
                f"Expected {len(names)} values in line {number} of {path}, as its first line has, got {len(line)}."
            )
    return {name: [line[place].strip() for line in lines[1:]] for place, name in enumerate(names)}


def read_description(path: Path) -> dict[str, Any]:
    """Return the public ranges and categories that a YAML file says of columns, such as ``age: [18, 90]``."""
    try:
        values = foreign.yaml_value(foreign.read_plain(path, largest=foreign.LARGEST))
    except OSError as error:
        raise ConfigError(f"data.columns={str(path)!r} can't be read: {error.strerror}.") from error
    if not isinstance(values, dict) or not all(isinstance(one, list) and one for one in values.values()):
        raise ConfigError(
            f"Expected {path} to say a range or the categories of columns, such as `age: [18, 90]` and "
            "`sex: [female, male]`."
        )
    for name, one in values.items():
        if any(isinstance(value, bool) for value in one):
            raise ConfigError(
                f"YAML reads yes, no, on and off of {name!r} in {path} as true and false: write 'yes', 'no'."
            )
    return {str(name): one for name, one in values.items()}


def taken(table: Table, name: str, what: str) -> tuple[Sequence[Any], dict[str, Sequence[Any]]]:
    """Return a column, and the table without it."""
    if name not in table:
        raise ConfigError(f"There is no column {name!r} for the {what}. Columns: {', '.join(map(repr, table))}.")
    return table[name], {other: values for other, values in table.items() if other != name}


def owners(path: Path, client: str) -> list[str]:
    """Return the clients that a CSV file's column names, in the order of their numbers."""
    found, _ = taken(read_csv(path), client, "clients (--client)")
    return sorted({str(owner) for owner in found})


def load_csv(
    path: Path,
    *,
    label: str | None,
    client: str | None = None,
    test: Path | None = None,
    description: Path | None = None,
    left_out: Sequence[str] = (),
    private: bool = False,
) -> tuple[DataSet, Encoding]:
    """Load a CSV file as a data set.

    Without a test file every fifth row of each client's classes is held out for the test.

    Args:
        path: the file.
        label: the column that is to be predicted.
        client: the column that says whose a row is, if there is one.
        test: a file with rows to test on, which count as public.
        description: a YAML file with public ranges and categories of columns.
        left_out: columns that are no features, such as an identifier.
        private: whether privacy is claimed, so that no constant may come from the training rows.
    """
    table: Mapping[str, Sequence[Any]] = read_csv(path)
    if label is None:
        raise ConfigError(
            f"{path} needs the column that is to be predicted: --label, one of {', '.join(map(repr, table))}."
        )
    for name in left_out:
        _, table = taken(table, name, "data.drop")
    labels, table = taken(table, label, "label (--label)")
    owners: Sequence[Any] | None = None
    if client is not None:
        owners, table = taken(table, client, "clients (--client)")
        if any(_missing(owner) for owner in owners):
            raise DataError(f"Column {client!r} of {path} has rows without a client. Fill them in, or leave them out.")
    if any(_missing(one) for one in labels):
        raise DataError(f"Column {label!r} of {path} has rows without a label. Fill them in, or leave them out.")
    described = None if description is None else read_description(description)
    names = sorted({str(owner) for owner in owners}) if owners is not None else []
    places = {name: place for place, name in enumerate(names)}
    groups = None if owners is None else np.array([places[str(owner)] for owner in owners], np.int64)
    if test is not None:
        others: Mapping[str, Sequence[Any]] = read_csv(test)
        wanted, others = taken(others, label, "label (--label)")
        others = {name: others[name] for name in table if name in others}
    encoding = public_encoding(
        table,
        labels,
        label=label,
        described=described,
        public=None if test is None else (others, wanted),
        private=private,
        whose=str(path),
    )
    features, numbers = encoding.features(table), encoding.labels(labels, str(path))
    train = Examples(features=features, labels=numbers)
    if test is None:
        held_out = every_fifth(numbers if groups is None else groups * len(encoding.classes) + numbers)
        if not held_out.any():
            raise DataError(
                f"{path} has too few rows to hold some out for the test. Give a test file: data.test=FILE.csv."
            )
        tested = train.take(np.flatnonzero(held_out))
        train = train.take(np.flatnonzero(~held_out))
        groups = None if groups is None else groups[~held_out]
    else:
        tested = Examples(features=encoding.features(others), labels=encoding.labels(wanted, str(test)))
    data = DataSet(
        name=path.name,
        title=path.name,
        classes=len(encoding.classes),
        train=train,
        test=tested,
        origin=str(path),
        licence="your own",
        groups=groups,
        group_names=tuple(names),
    )
    return data, encoding


def public_encoding(
    table: Table,
    labels: Sequence[Any],
    *,
    label: str,
    described: Described | None,
    public: tuple[Table, Sequence[Any]] | None,
    private: bool,
    whose: str,
) -> Encoding:
    """Return the encoding whose constants come from where they may.

    Args:
        table: the training rows.
        labels: their labels.
        label: the labels' column.
        described: public knowledge of columns.
        public: test rows and their labels, which count as public.
        private: whether privacy is claimed.
        whose: the training rows, in words.
    """
    unknown = [name for name in (*table, label) if name not in (described or {})]
    if private and public is not None:
        return Encoding.of(public[0], labels=public[1], label=label, described=described, source="the public test rows")
    if private and unknown:
        some = ", ".join(map(repr, unknown[:8])) + (" ..." if len(unknown) > 8 else "")
        raise ConfigError(
            f"Ranges, categories and classes of {some} would be read off the private rows of {whose}, and epsilon does "
            "not cover that. Say what is publicly known in a YAML file (`age: [18, 90]`, `sex: [female, male]`, "
            f"`{label}: [healthy, ill]`): data.columns=FILE.yaml. Or give rows that are public: data.test=FILE.csv. In "
            "Python: columns={...}, or test=."
        )
    return Encoding.of(table, labels=labels, label=label, described=described)


def every_fifth(strata: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which rows are held out: every fifth of each stratum, in their order."""
    order = np.argsort(strata, kind="stable")
    _, first, sizes = np.unique(strata[order], return_index=True, return_counts=True)
    held_out = np.empty(len(strata), dtype=np.bool_)
    held_out[order] = (np.arange(len(strata)) - np.repeat(first, sizes)) % 5 == 4
    return held_out


def numbers_of(values: Sequence[Any]) -> NDArray[np.float64] | None:
    """Return a column's numbers, NaN where one is missing, or None where it holds something else."""
    found = np.empty(len(values))
    for place, value in enumerate(values):
        number = math.nan if _missing(value) else _number(value)
        if number is None:
            return None
        found[place] = number
    return found


def _column(name: str, values: Sequence[Any], known: Any) -> Numbers | Categories:
    if known is not None:
        pair = (
            isinstance(known, list | tuple) and len(known) == 2 and all(isinstance(one, int | float) for one in known)
        )
        if pair and not any(isinstance(one, bool) for one in known):
            low, high = map(float, known)
            if not -math.inf < low < high < math.inf:
                raise ConfigError(f"Expected a range [low, high] for column {name!r}, got {list(known)}.")
            return Numbers(name=name, centre=low / 2 + high / 2, scale=high / 2 - low / 2, bounded=True)
        if not isinstance(known, list | tuple) or not known:
            raise ConfigError(f"Expected a range [low, high] or categories for column {name!r}, got {known!r}.")
        return Categories(name=name, values=tuple(_text(one) for one in known))
    numbers = numbers_of(values)
    if numbers is not None:
        seen = numbers[~np.isnan(numbers)]
        with np.errstate(over="ignore", invalid="ignore"):
            deviation = float(seen.std()) if len(seen) else 0.0
        if not math.isfinite(deviation):
            raise DataError(
                f"Column {name!r} holds numbers as large as {np.abs(seen).max():g}, which have no finite spread. Mend "
                "them, or leave the column out: data.drop=COLUMN."
            )
        return Numbers(name=name, centre=float(seen.mean()) if len(seen) else 0.0, scale=deviation or 1.0)
    found = tuple(sorted({_text(value) for value in values if not _missing(value)}))
    if len(found) > _MOST_CATEGORIES:
        raise DataError(
            f"Column {name!r} holds {len(found)} different texts, expected at most {_MOST_CATEGORIES} categories. If "
            "it names a row, leave it out: data.drop=COLUMN, or drop it from the table."
        )
    return Categories(name=name, values=found)


def _classes(labels: Sequence[Any], label: str) -> tuple[str, ...]:
    found = {_text(one) for one in labels}
    if len(found) > _MOST_CLASSES:
        raise DataError(
            f"Column {label!r} holds {len(found)} different labels, expected classes. Tables are classified; for a "
            "number that is to be predicted pass arrays to tacit.Federation with loss='squared-error'."
        )
    if len(found) < 2:
        raise DataError(
            f"Column {label!r} holds one class only ({next(iter(found), 'none')}), so there is nothing to learn."
        )
    numbers = {one: _number(one) for one in found}
    if any(number is None for number in numbers.values()):
        return tuple(sorted(found))
    return tuple(sorted(found, key=lambda one: numbers[one] or 0.0))


def _missing(value: Any) -> bool:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return str(value).strip().lower() in _MISSING if isinstance(value, str) else str(value) in ("nan", "NaT", "<NA>")


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _text(value: Any) -> str:
    """Return a value as the name of a category; 1.0 and 1 are one."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    number = None if isinstance(value, str) else _number(value)
    return f"{number:g}" if number is not None else str(value).strip()
