"""Which examples each client of a chunk sees in which step, and with which dropout key.

Every form of training follows this one table, so that a client's result does not depend on who trains beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.training import counter
from tacit.training.holdings import Holdings

_ORDER, _DROPOUT = 0, 1  # what a client's key is used for


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """S steps of K clients in batches of B.

    A client with fewer examples than the largest has steps with fewer than B, or no, examples: ``counts`` says how
    many of the B rows are real; the others are padding.
    """

    rows: Tensor  # (S, K, B)
    keys: Tensor  # (S, K)
    counts: NDArray[np.int64]  # (S, K)
    steps_per_epoch: int

    @property
    def ragged(self) -> bool:
        """Whether any batch has padding."""
        return bool((self.counts != self.rows.shape[2]).any())


def schedule(
    holdings: Holdings,
    clients: Sequence[int],
    keys: NDArray[np.int64],
    *,
    epochs: int,
    batch_size: int,
) -> Schedule:
    """Lay out ``epochs`` passes, each in a new random order, for ``clients`` with their keys of the round."""
    device = holdings.features.device
    sizes = holdings.sizes(clients)
    width = min(batch_size, int(sizes.max()))
    steps = -(-int(sizes.max()) // width)
    longest = steps * width
    table = holdings.padded_rows(clients, longest)
    size_tensor = torch.from_numpy(sizes).to(device)
    passes = []
    for epoch in range(epochs):
        order_keys = torch.from_numpy(counter.derive(keys, _ORDER, epoch)).to(device)
        shuffled = table.gather(1, counter.order(order_keys, size_tensor, longest))
        passes.append(shuffled.view(len(clients), steps, width).transpose(0, 1))
    numbers = np.arange(epochs * steps)[:, None]
    starts = (numbers % steps) * width
    return Schedule(
        rows=torch.cat(passes).contiguous(),
        keys=torch.from_numpy(counter.derive(keys, _DROPOUT, numbers // steps, numbers % steps)).to(device),
        counts=np.clip(sizes[None, :] - starts, 0, width),
        steps_per_epoch=steps,
    )
