"""Who holds which examples: all of them in two tensors, and a list of rows for each client.

Nothing here costs time in proportion to the population: a round touches the rows of its cohort only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Holdings:
    """The examples of all clients, on the device that trains."""

    features: Tensor
    labels: Tensor
    rows: Sequence[NDArray[np.int64]]

    def __post_init__(self) -> None:
        for client, rows in enumerate(self.rows):
            if len(rows) == 0:
                raise DataError(
                    f"Client {client} holds no example. Use fewer clients or another split, "
                    "such as data.split=iid, or leave empty clients out."
                )

    def sizes(self, clients: Sequence[int]) -> NDArray[np.int64]:
        """Return how many examples each of ``clients`` holds."""
        return np.array([len(self.rows[client]) for client in clients], np.int64)

    def padded_rows(self, clients: Sequence[int], longest: int) -> Tensor:
        """Return the rows of ``clients``, one client a line, padded with the client's own first row.

        Padding has no weight in a loss, and yet a gradient of 0 times infinity is NaN: with somebody else's example for
        padding, what that holds could spoil a client's update.
        """
        table = np.empty((len(clients), longest), np.int64)
        for line, client in enumerate(clients):
            own = self.rows[client]
            table[line, : len(own)], table[line, len(own) :] = own, own[0]
        return torch.from_numpy(table).to(self.features.device)
