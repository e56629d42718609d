"""Whose rows are whose, for any number of clients: one index of rows, and where each client's part of it lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Shares(Sequence[Rows]):
    """The rows of every client, by its number: ``shares[7]`` is a view, and a million clients take three arrays.

    >>> shares = Shares.of_owners(np.array([1, 0, 1, -1]), clients=2)
    >>> shares[1].tolist(), shares.sizes.tolist(), len(shares)
    ([0, 2], [1, 2], 2)
    """

    order: Rows  # the rows that clients hold, mostly those of client 0, then of client 1, and so on
    starts: NDArray[np.int64]  # where each client's begin in it
    ends: NDArray[np.int64]  # and end

    @classmethod
    def of(cls, rows: Sequence[Rows]) -> Shares:
        """Return the shares of clients whose rows are given one by one."""
        if isinstance(rows, Shares):
            return rows
        sizes = np.array([len(own) for own in rows], np.int64)
        return cls._cut(np.concatenate([np.empty(0, np.int64), *rows]), sizes)

    @classmethod
    def of_owners(cls, owners: NDArray[np.int64], *, clients: int) -> Shares:
        """Return the rows by who owns them, ascending; rows owned by -1 are nobody's."""
        sizes = np.bincount(owners + 1, minlength=clients + 1)
        return cls._cut(np.argsort(owners, kind="stable")[sizes[0] :], sizes[1:])

    @classmethod
    def of_sizes(cls, sizes: Sequence[int] | NDArray[np.int64]) -> Shares:
        """Return the shares of clients whose rows lie one after another."""
        sizes = np.asarray(sizes, np.int64)
        return cls._cut(np.arange(sizes.sum()), sizes)

    @classmethod
    def alike(cls, rows: int, *, clients: int) -> Shares:
        """Return the shares of clients who all hold the same rows: of one who answers for any number."""
        return cls(np.arange(rows), np.zeros(clients, np.int64), np.full(clients, rows))

    @classmethod
    def _cut(cls, order: Rows, sizes: NDArray[np.int64]) -> Shares:
        ends = np.cumsum(sizes)
        return cls(order, ends - sizes, ends)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many rows each client has."""
        return self.ends - self.starts

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, client: int) -> Rows: ...

    @overload
    def __getitem__(self, client: slice) -> list[Rows]: ...

    def __getitem__(self, client: int | slice) -> Rows | list[Rows]:
        if isinstance(client, slice):
            return [self[one] for one in range(*client.indices(len(self)))]
        return self.order[self.starts[client] : self.ends[client]]
