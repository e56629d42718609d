"""Who holds what: a split of a data set in numbers, as tables and as a chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError
from tacit.report.page import Axis, Bars, BarSeries, Cell, Chart, Heatmap, Panel, Part, Table, Text
from tacit.shares import Shares

_STEPS = (0.25, 0.75, 1.5, 3.0)  # multiples of an even share at which a shade gets darker
_QUANTILES = {"smallest": 0, "quarter": 25, "median": 50, "three quarters": 75, "largest": 100}
_CLIENTS, _CLASSES = 20, 10  # rows of the table, and columns of it


@dataclass(frozen=True, kw_only=True)
class Holdings:
    """How many examples of each class each client holds."""

    counts: NDArray[np.int64]  # (clients, classes)
    names: tuple[str, ...]  # of the clients
    labels: tuple[str, ...]  # of the classes: their names, or their numbers

    @classmethod
    def of(
        cls,
        shares: Sequence[NDArray[np.int64]],
        labels: NDArray[np.int64],
        *,
        classes: int,
        names: Sequence[str] | None = None,
        class_names: Sequence[str] = (),
    ) -> Holdings:
        """Count the classes among each client's rows.

        >>> Holdings.of([np.array([0, 1]), np.array([2])], np.array([1, 1, 0]), classes=2).counts.tolist()
        [[0, 2], [1, 0]]
        """
        held = Shares.of(shares)
        owner = np.repeat(np.arange(len(held)), held.sizes)
        counts = np.bincount(owner * classes + labels[held.order], minlength=len(held) * classes)
        names = tuple(names) if names is not None else tuple(str(client) for client in range(len(shares)))
        if len(names) != len(shares):
            raise ConfigError(f"Expected a name for each of {len(shares)} clients, got {len(names)}.")
        told = tuple(class_names) or tuple(map(str, range(classes)))
        return cls(counts=counts.reshape(len(shares), classes), names=names, labels=told)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many examples each client holds."""
        return np.asarray(self.counts.sum(axis=1), dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Quantiles:
    """How a number spreads over the clients."""

    smallest: float
    quarter: float
    median: float
    three_quarters: float
    largest: float

    @classmethod
    def of(cls, values: NDArray[np.int64]) -> Quantiles:
        """Return the quantiles of ``values``."""
        smallest, quarter, median, three_quarters, largest = np.percentile(values, list(_QUANTILES.values())).tolist()
        return cls(smallest=smallest, quarter=quarter, median=median, three_quarters=three_quarters, largest=largest)

    def to_dict(self) -> dict[str, float]:
        """Return the quantiles by their names in words."""
        return dict(zip(_QUANTILES, astuple(self), strict=True))


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The spread of a split in numbers: sizes, and how many classes a client sees.

    ``skew`` is the mean total variation distance between a client's classes and everybody's: 0 where all are
    alike.
    """

    clients: int
    examples: int
    examples_per_client: Quantiles
    classes_per_client: Quantiles
    skew: float

    @classmethod
    def of(cls, holdings: Holdings) -> Summary:
        """Measure a split."""
        sizes = holdings.sizes
        overall = holdings.counts.sum(axis=0) / holdings.counts.sum()
        own = holdings.counts / np.maximum(sizes, 1)[:, np.newaxis]
        return cls(
            clients=len(sizes),
            examples=int(sizes.sum()),
            examples_per_client=Quantiles.of(sizes),
            classes_per_client=Quantiles.of((holdings.counts > 0).sum(axis=1)),
            skew=round(float(np.abs(own - overall).sum(axis=1).mean() / 2), 4),
        )

    def to_dict(self) -> dict[str, int | float | dict[str, float]]:
        """Return plain data for JSON."""
        return {
            "clients": self.clients,
            "examples": self.examples,
            "examples_per_client": self.examples_per_client.to_dict(),
            "classes_per_client": self.classes_per_client.to_dict(),
            "skew": self.skew,
        }


def parts(holdings: Holdings, *, title: str) -> list[Part]:
    """Return a split for people: its spread, the first clients one by one, and the chart."""
    told = Summary.of(holdings)
    return [
        Text(text=f"{told.examples:,} examples over {told.clients:,} clients; skew {told.skew:.2f}"),
        _spread(told),
        _first(holdings),
        chart(holdings, title=title),
    ]


def chart(holdings: Holdings, *, title: str) -> Chart:
    """Return a heat map of each client's classes beside the client's size.

    A shade is the class's share of the client's examples against an even share, 1 / classes: an even split is one
    colour all over, a skewed one has light and dark.
    """
    total, classes = holdings.counts.shape
    sizes = holdings.sizes
    shares = holdings.counts / np.maximum(sizes, 1)[:, np.newaxis]
    names = [name[:_CLIENTS] for name in holdings.names]
    heat = Panel(
        drawing=Heatmap(
            x=holdings.labels,
            y=names,
            z=shares.tolist(),
            edges=[step / classes for step in _STEPS if step <= classes],
        ),
        x=Axis(title="class", names=True),
        y=Axis(title="client", names=True, downwards=True),
        # Square roots keep small shares visible beside a client that holds one class only.
        z=Axis(title="the class's share of the client's examples", format=".1%", root=True, ends=(0, shares.max())),
    )
    beside = Panel(
        drawing=Bars(categories=names, series=[BarSeries(name="size", values=sizes.tolist())], horizontal=True),
        x=Axis(title="examples", log=bool(sizes.max() > 100 * max(1, sizes.min())), format=",d"),
        y=Axis(names=True, downwards=True),
    )
    return Chart(
        title=title,
        panels=[heat, beside],
        across=2,
        widths=(2.2, 1),
        shared=True,
        height=int(min(800, 200 + 18 * total)),
        name="split",
    )


def _spread(told: Summary) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (name, *(f"{value:,g}" for value in found.to_dict().values()))
        for name, found in (("examples", told.examples_per_client), ("classes", told.classes_per_client))
    ]
    return Table(columns=("per client", *_QUANTILES), rows=rows, align="lrrrrr")


def _first(holdings: Holdings) -> Table:
    """Return a row for each of the first clients: its classes, or the commonest where there are many."""
    total, classes = holdings.counts.shape
    shown = min(_CLIENTS, total)
    wide = classes > _CLASSES
    rows: list[tuple[Cell, ...]] = []
    for name, counts in zip(holdings.names[:shown], holdings.counts[:shown], strict=True):
        if wide:
            top = int(counts.argmax())
            cells: list[Cell] = [str(np.count_nonzero(counts)), f"{holdings.labels[top]} ({counts[top]} times)"]
        else:
            cells = [str(count) if count else "-" for count in counts.tolist()]
        rows.append((name, str(counts.sum()), *cells))
    columns = ("classes", "commonest") if wide else holdings.labels
    return Table(
        columns=("client", "examples", *columns),
        rows=rows,
        align="l" + "r" * (1 + len(columns)),
        caption=f"The first {shown} of {total:,} clients, and how many of each class they hold",
    )
