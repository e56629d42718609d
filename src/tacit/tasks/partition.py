"""How the training rows are split among clients: by lot, by class, by size, or as nature did.

A split is named by a short text: ``iid``, ``dirichlet:0.3``, ``shards:2``, ``power:1.2`` or ``natural``. Each
is a small frozen value with one method, which returns the rows of every client: disjoint, sorted, never
empty, and the same for the same generator. All but ``natural`` with fewer clients than holders cover every
row.
"""

from __future__ import annotations

import difflib
import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError
from tacit.shares import Rows, Shares

_LARGEST_ALPHA = 1e6  # above, the split differs from even shares by less than a row, and the draws soon overflow


class Split(Protocol):
    """A rule that assigns training rows to clients; its text is what :func:`parse` reads."""

    def assign(
        self,
        labels: NDArray[np.int64],
        *,
        clients: int,
        groups: NDArray[np.int64] | None,
        generator: np.random.Generator,
    ) -> Shares:
        """Return the rows of each client, by its number."""
        ...


@dataclass(frozen=True)
class Iid:
    """Every client gets an equal share (give or take one row) of the shuffled rows."""

    def __str__(self) -> str:
        return "iid"

    def assign(
        self,
        labels: NDArray[np.int64],
        *,
        clients: int,
        groups: NDArray[np.int64] | None,
        generator: np.random.Generator,
    ) -> Shares:
        """Shuffle and cut."""
        _check_clients(clients, rows=len(labels))
        owner = np.empty(len(labels), dtype=np.int64)
        owner[generator.permutation(len(labels))] = _even(len(labels), parts=clients)
        return Shares.of_owners(owner, clients=clients)


@dataclass(frozen=True, kw_only=True)
class Dirichlet:
    r"""Each class is shared out by proportions from :math:`\mathrm{Dir}(\alpha, \dots, \alpha)` over clients.

    A small :math:`\alpha` gives each class to few clients, a large one comes near to ``iid``. The measure is
    that of Hsu et al. 2019; drawing for each class over clients, so that every row is used and sizes differ
    too, is that of Yurochkin et al. 2019. A client left empty takes one row from whoever holds the most at
    that moment; drawing again until nobody is empty would never end with many clients.
    """

    alpha: float

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= _LARGEST_ALPHA:
            raise ConfigError(
                f"Expected 0 < alpha={self.alpha} <= {_LARGEST_ALPHA:g} in a Dirichlet split. "
                "0.1 is very uneven, 1 mildly; for an even split use iid."
            )

    def __str__(self) -> str:
        return f"dirichlet:{self.alpha:g}"

    def assign(
        self,
        labels: NDArray[np.int64],
        *,
        clients: int,
        groups: NDArray[np.int64] | None,
        generator: np.random.Generator,
    ) -> Shares:
        """Share out class by class, then fill the empty."""
        _check_clients(clients, rows=len(labels))
        order = _by_label(labels, generator)
        owner = np.empty(len(labels), dtype=np.int64)
        _, sizes = np.unique(labels, return_counts=True)
        end = 0
        for size in sizes.tolist():
            start, end = end, end + size
            proportions = generator.dirichlet(np.full(clients, self.alpha))
            # Rounding from a random start gives each client its proportion on average; from a fixed one, the
            # same clients would miss out in every class whenever there are more clients than rows of a class.
            cuts = np.floor(np.cumsum(proportions) * size + generator.random()).astype(np.int64)
            cuts[-1] = size  # the sum of the proportions is 1 only up to rounding
            # Each place in the class belongs to the first client whose cut lies beyond it.
            owner[order[start:end]] = np.searchsorted(cuts, np.arange(size), side="right")
        _fill_empty(owner, order=generator.permutation(len(labels)), clients=clients)
        return Shares.of_owners(owner, clients=clients)


@dataclass(frozen=True, kw_only=True)
class Shards:
    """Rows are sorted by class and cut into equal shards; each client draws some (McMahan et al. 2017)."""

    per_client: int

    def __post_init__(self) -> None:
        if self.per_client < 1:
            raise ConfigError(f"Expected shards:{self.per_client} to be at least 1; 2 is the usual choice.")

    def __str__(self) -> str:
        return f"shards:{self.per_client}"

    def assign(
        self,
        labels: NDArray[np.int64],
        *,
        clients: int,
        groups: NDArray[np.int64] | None,
        generator: np.random.Generator,
    ) -> Shares:
        """Sort, cut, deal."""
        _check_clients(clients, rows=len(labels))
        shards = clients * self.per_client
        if shards > len(labels):
            raise ConfigError(
                f"{clients} clients with {self.per_client} shards each need {shards} rows, "
                f"and there are {len(labels)}. Ask for fewer clients or fewer shards."
            )
        holder = generator.permutation(shards) // self.per_client
        owner = np.empty(len(labels), dtype=np.int64)
        owner[_by_label(labels, generator)] = holder[_even(len(labels), parts=shards)]
        return Shares.of_owners(owner, clients=clients)


@dataclass(frozen=True, kw_only=True)
class Power:
    r"""Sizes follow a power law: client :math:`r` (from 1) gets a share in proportion to :math:`r^{-a}`.

    Nobody gets less than one row: whoever would is set to one, and the others share the rest in proportion.
    """

    exponent: float  # a

    def __post_init__(self) -> None:
        if not (math.isfinite(self.exponent) and self.exponent >= 0):
            raise ConfigError(
                f"Expected power:{self.exponent} to be finite and >= 0; 0 is an even split, 1.2 a steep one."
            )

    def __str__(self) -> str:
        return f"power:{self.exponent:g}"

    def assign(
        self,
        labels: NDArray[np.int64],
        *,
        clients: int,
        groups: NDArray[np.int64] | None,
        generator: np.random.Generator,
    ) -> Shares:
        """Work out the sizes, shuffle and cut."""
        _check_clients(clients, rows=len(labels))
        owner = np.empty(len(labels), dtype=np.int64)
        sizes = self.sizes(len(labels), clients=clients)
        owner[generator.permutation(len(labels))] = np.repeat(np.arange(clients), sizes)
        return Shares.of_owners(owner, clients=clients)

    def sizes(self, rows: int, *, clients: int) -> NDArray[np.int64]:
        """Return how many rows each client gets, largest first.

        >>> Power(exponent=1).sizes(110, clients=4).tolist()
        [53, 26, 18, 13]
        """
        weights = np.arange(1, clients + 1, dtype=np.float64) ** -self.exponent
        above = clients  # the first so many get more than the minimum
        while True:
            shares = weights[:above] / weights[:above].sum() * (rows - (clients - above))
            kept = int(np.count_nonzero(shares >= 1))
            if kept in (above, 0):
                break
            above = kept
        sizes = np.ones(clients, dtype=np.int64)
        sizes[:above] = np.maximum(1, np.floor(shares))
        left = rows - int(sizes.sum())
        sizes[np.argsort(np.floor(shares) - shares, kind="stable")[:left]] += 1
        return sizes


@dataclass(frozen=True)
class Natural:
    """One client for each natural holder: a writer, a hospital.

    With fewer clients than holders, that many are drawn by lot and kept whole, and the rest stay out; merging
    them would make clients of a kind that does not exist.
    """

    def __str__(self) -> str:
        return "natural"

    def assign(
        self,
        labels: NDArray[np.int64],
        *,
        clients: int,
        groups: NDArray[np.int64] | None,
        generator: np.random.Generator,
    ) -> Shares:
        """Give each holder's rows to one client, in the order of the holders."""
        _check_clients(clients, rows=len(labels))
        if groups is None:
            raise ConfigError(
                "This data set's natural holders are not known, so it can't be split as `natural`. femnist, "
                "heart-disease and mnist have them; mnist's writers are in QMNIST's label file, which "
                "`tacit data get mnist` brings "
                "(or put qmnist-train-labels-idx2-int.gz into mnist_writer_ids in your data folder)."
            )
        holders, number = np.unique(groups, return_inverse=True)
        if clients > len(holders):
            raise ConfigError(
                f"{clients} clients were asked for, and the data has {len(holders)} natural holders. "
                f"Ask for {len(holders)} or fewer."
            )
        client = np.full(len(holders), -1, dtype=np.int64)
        client[np.sort(generator.permutation(len(holders))[:clients])] = np.arange(clients)
        return Shares.of_owners(client[number.reshape(-1)], clients=clients)


def parse(text: str) -> Split:
    """Return the split that ``text`` names.

    >>> parse("dirichlet:0.3")
    Dirichlet(alpha=0.3)
    >>> str(parse("shards:2"))
    'shards:2'
    """
    name, colon, number = text.strip().lower().partition(":")
    if name in _PLAIN:
        if colon:
            raise ConfigError(f"The split {name!r} takes no number, got {text!r}. Write {name!r}.")
        return _PLAIN[name]
    if name in _NUMBERED:
        make, example = _NUMBERED[name]
        try:
            return make(number)
        except ValueError as error:
            raise ConfigError(
                f"Expected a number after {name!r}, got {text!r}. Write for example {example!r}."
            ) from error
    near = difflib.get_close_matches(name, (*_PLAIN, *_NUMBERED), n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    known = (*_PLAIN, *(example for _, example in _NUMBERED.values()))
    raise ConfigError(f"No split is called {text!r}.{hint} Known: {', '.join(known)}.")


_PLAIN: dict[str, Split] = {"iid": Iid(), "natural": Natural()}
_NUMBERED: dict[str, tuple[Callable[[str], Split], str]] = {
    "dirichlet": (lambda number: Dirichlet(alpha=float(number)), "dirichlet:0.3"),
    "shards": (lambda number: Shards(per_client=int(number)), "shards:2"),
    "power": (lambda number: Power(exponent=float(number)), "power:1.2"),
}


def _check_clients(clients: int, *, rows: int) -> None:
    if clients < 1:
        raise ConfigError(f"Expected clients={clients} to be at least 1.")
    if clients > rows:
        raise ConfigError(f"{clients} clients can't share {rows} examples: each needs one. Ask for {rows} or fewer.")


def _even(rows: int, *, parts: int) -> NDArray[np.int64]:
    """Return the part of each of ``rows`` places, in order, sizes equal give or take one."""
    return np.arange(rows, dtype=np.int64) * parts // rows


def _by_label(labels: NDArray[np.int64], generator: np.random.Generator) -> Rows:
    """Return the rows sorted by label, in random order within each."""
    shuffled = generator.permutation(len(labels))
    return shuffled[np.argsort(labels[shuffled], kind="stable")]


def _fill_empty(owner: NDArray[np.int64], *, order: Rows, clients: int) -> None:
    """Give each client without a row one from the client that has the most; the last in ``order`` goes."""
    sizes = np.bincount(owner, minlength=clients)
    empty = np.flatnonzero(sizes == 0)
    if len(empty) == 0:
        return
    ordered = order[np.argsort(owner[order], kind="stable")]
    ends = np.cumsum(sizes)
    largest = [(-size, client) for client, size in enumerate(sizes.tolist())]
    heapq.heapify(largest)
    for client in empty.tolist():
        size, giver = largest[0]
        heapq.heapreplace(largest, (size + 1, giver))
        ends[giver] -= 1
        owner[ordered[ends[giver]]] = client
