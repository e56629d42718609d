"""The weighted mean: no differential privacy, whatever encryption is around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from tacit.errors import SpoiledError
from tacit.mechanisms.mechanism import Release, Rows, Work
from tacit.randomness import Randomness
from tacit.vectors import Vector, scaled

Weighting = Literal["examples", "uniform"]
_EXTRA = 2


@dataclass(frozen=True, kw_only=True)
class WeightedMean:
    r"""Releases :math:`\sum_i w_i u_i / \sum_i w_i`, with :math:`w_i` the examples or 1 (McMahan et al. 2017).

    The weight is folded in before the vector leaves the client; the sum of weights and the weighted loss have slots of
    their own. So a protocol only ever adds vectors: the same layout serves a sum in the clear and one under encryption.
    """

    weighting: Weighting = "examples"
    losses: bool = True  # whether clients tell their training loss; it is a statistic of their data
    event: None = None

    def fitted(self, layers: tuple[int, ...]) -> Self:
        """Return the mechanism."""
        return self

    def length(self, parameters: int) -> int:
        """Return two more than the model has."""
        return parameters + _EXTRA

    def public_state(self) -> bytes:
        """Return nothing: clients know their weight."""
        return b""

    def with_state(self, state: bytes) -> Self:
        """Return the mechanism."""
        return self

    def on_client(self, work: Work, randomness: Randomness) -> Vector:
        """Return the weighted update, the weight and the weighted loss."""
        weight = work.examples if self.weighting == "examples" else 1
        vector = np.empty(len(work.update) + _EXTRA, np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows here the server refuses by name
            np.multiply(work.update, np.float32(weight), out=vector[:-_EXTRA])
            vector[-_EXTRA:] = weight, weight * work.loss if self.losses else 0.0
        return vector

    def on_cohort(
        self, rows: Rows, examples: NDArray[np.int64], losses: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]] | None:
        """Return the sum over clients whose update and loss are finite; see :meth:`on_client`."""
        present = np.isfinite(rows.norms()) & np.isfinite(losses)
        weights = np.where(present, examples if self.weighting == "examples" else 1, 0).astype(np.float64)
        told = weights * np.where(present, losses, 0.0) if self.losses else np.zeros_like(weights)
        with np.errstate(over="ignore", invalid="ignore"):
            extras = [np.sum(part.astype(np.float32), dtype=np.float64) for part in (weights, told)]
            total = np.append(rows.weighted_sum(weights), extras)
        return (present, total) if np.isfinite(total).all() else None  # what overflows is refused by name

    def on_server(self, total: NDArray[np.float64], randomness: Randomness, *, clients: int) -> Release:
        """Divide by the sum of weights."""
        weight = float(total[-2])
        if not weight > 0 or (self.weighting == "uniform" and weight != clients):
            raise SpoiledError(
                f"The sum of {clients} clients has a weight of {weight:g}, expected "
                f"{clients if self.weighting == 'uniform' else 'more than 0'}: one of them lied about its examples. "
                "Nothing was released."
            )
        update = scaled(total[:-_EXTRA], 1.0, weight)
        return Release(update=update, train_loss=float(total[-1]) / weight if self.losses else None, mechanism=self)
