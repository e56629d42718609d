"""Whose rows are whose, for any number of clients: one index of all rows, and where each client's part of it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Shares(Sequence[Rows]):
    """The rows of every client, by its number: ``shares[7]`` is a view, and a million clients take two arrays.

    >>> shares = Shares.of_owners(np.array([1, 0, 1, -1]), clients=2)
    >>> shares[1].tolist(), shares.sizes.tolist(), len(shares)
    ([0, 2], [1, 2], 2)
    """

    rows: Rows  # of client 0, then of client 1, and so on
    ends: NDArray[np.int64]  # where each client's end

    @classmethod
    def of_owners(cls, owners: NDArray[np.int64], *, clients: int) -> Shares:
        """Return the rows by who owns them, ascending; rows owned by -1 are nobody's."""
        rows = np.argsort(owners, kind="stable")
        sizes = np.bincount(owners + 1, minlength=clients + 1)
        return cls(rows[sizes[0] :], np.cumsum(sizes[1:]))

    @classmethod
    def of_sizes(cls, sizes: Sequence[int] | NDArray[np.int64]) -> Shares:
        """Return the shares of clients whose rows lie one after another."""
        ends = np.cumsum(sizes, dtype=np.int64)
        return cls(np.arange(ends[-1] if len(ends) else 0), ends)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many rows each client has."""
        return np.diff(self.ends, prepend=0)

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, client: int) -> Rows: ...

    @overload
    def __getitem__(self, client: slice) -> list[Rows]: ...

    def __getitem__(self, client: int | slice) -> Rows | list[Rows]:
        if isinstance(client, slice):
            return [self[one] for one in range(*client.indices(len(self)))]
        place = range(len(self))[client]  # also from the end; beyond it, an IndexError ends whoever goes through them
        return self.rows[self.ends[place - 1] if place else 0 : self.ends[place]]


def sizes_of(shares: Sequence[Rows]) -> NDArray[np.int64]:
    """Return how many rows each client has."""
    return shares.sizes if isinstance(shares, Shares) else np.array([len(rows) for rows in shares], np.int64)


def joined(shares: Sequence[Rows]) -> Rows:
    """Return the rows of all clients, one client after another."""
    return shares.rows if isinstance(shares, Shares) else np.concatenate(shares)
