"""A site's own data: read once, when its process starts, and the same as when the site was made."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit import foreign
from tacit.errors import ConfigError, DataError
from tacit.site.contract import SiteData
from tacit.tasks.tables import Table, is_file, public_encoding, read_csv, read_description, taken

_LARGEST = 1 << 30  # bytes of a file


@dataclass(frozen=True, kw_only=True)
class Rows:
    """All rows of a site: features, and classes by their numbers."""

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    classes: int


def digest(data: SiteData) -> str | None:
    """Return what stands for the bytes of a site's file and of what it is scaled by; None of a public data set."""
    if data.file is None:
        return None
    found = hashlib.sha256()
    for path in (data.file, data.columns):
        if path is not None:
            found.update(_bytes_of(path))
    return found.hexdigest()


def load(data: SiteData) -> Rows | None:
    """Return a site's rows, all for training; None of a public data set, which each run deals out.

    Ranges, categories and classes come from the public description alone: no constant is read off private rows.
    """
    if data.file is None:
        if is_file(data.name) and not data.dealt:
            raise ConfigError(f"data.name={data.name} is that of a CSV file, and data.file says none.")
        return None
    table: Table = read_csv(data.file)
    if data.label is None:
        raise ConfigError(f"data.label is missing: one of {', '.join(map(repr, table))}.")
    for name in data.drop:
        _, table = taken(table, name, "data.drop")
    labels, table = taken(table, data.label, "label")
    if data.columns is None:
        raise ConfigError(
            f"What may be known of the columns {', '.join(map(repr, (*table, data.label)))} has to be said: ranges, "
            "categories and classes that were read off private rows would tell of them. Write a YAML file, such as "
            f"`age: [18, 90]`, `sex: [female, male]`, `{data.label}: [healthy, ill]`, the same at all sites, and name "
            "it with --columns FILE.yaml (data.columns in site.yaml)."
        )
    encoding = public_encoding(
        table,
        labels,
        label=data.label,
        described=read_description(data.columns),
        public=None,
        private=True,
        whose=str(data.file),
    )
    return Rows(
        features=encoding.features(table),
        labels=encoding.labels(labels, str(data.file)),
        classes=len(encoding.classes),
    )


def check_same(data: SiteData) -> None:
    """Refuse data that changed since the site was made."""
    now = digest(data)
    if now != data.sha256:
        raise DataError(
            f"{data.file} is not what it was when this site was made (SHA-256 {now}, and site.yaml says "
            f"{data.sha256}). Its ledger is about the old rows. Bring them back, or make a site of the new ones: "
            "`tacit site init`."
        )


def _bytes_of(path: Path) -> bytes:
    try:
        return foreign.read_plain(path, largest=_LARGEST)
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror or error}.") from error
