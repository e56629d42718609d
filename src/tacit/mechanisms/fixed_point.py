"""The weighted mean in numbers of a known range, as encryption needs them; no differential privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError
from tacit.mechanisms.mechanism import Release, Work
from tacit.randomness import Randomness
from tacit.vectors import Vector

_EXTRA = 3
LARGEST_LOSS = 16.0  # a mean training loss beyond this is told as this


@dataclass(frozen=True, kw_only=True)
class BoundedMean:
    r"""Releases :math:`\sum_i w_i \bar u_i / \sum_i w_i` from vectors whose numbers are all in :math:`[-C, C]`.

    Each coordinate of an update is clipped to :math:`C`, and :math:`w_i = \min(examples_i / cap, 1)` is folded in
    before the vector leaves the client. The weight, the weighted loss and the share of clipped coordinates have slots
    of their own, scaled to the same range, so that a client tells none of them to anyone: only their sums are opened.

    Attributes:
        clip: C, the largest magnitude of a coordinate.
        weighting: by examples, or all clients alike.
        weight_cap: a public number of examples that counts as 1; the largest client's, so that nothing is cut off.
    """

    clip: float
    weighting: Literal["examples", "uniform"] = "examples"
    weight_cap: int = 1
    event: None = None

    def __post_init__(self) -> None:
        if not self.clip > 0:
            raise ConfigError(
                f"Expected clip={self.clip} > 0: the largest magnitude a coordinate of an update may have."
            )
        if self.weight_cap < 1:
            raise ConfigError(f"Expected weight_cap={self.weight_cap} >= 1: the examples that count as weight 1.")

    def fitted(self, layers: tuple[int, ...]) -> Self:  # noqa: ARG002
        """Return the mechanism."""
        return self

    def length(self, parameters: int) -> int:
        """Return three more than the model has."""
        return parameters + _EXTRA

    def public(self) -> bytes:
        """Return nothing: clients know their weight."""
        return b""

    def told(self, public: bytes) -> Self:  # noqa: ARG002
        """Return the mechanism."""
        return self

    def on_client(self, work: Work, randomness: Randomness) -> Vector:  # noqa: ARG002
        """Return the weighted, clipped update, and the weight, loss and clipped share beside it."""
        weight = min(work.examples / self.weight_cap, 1.0) if self.weighting == "examples" else 1.0
        outside = np.count_nonzero(np.abs(work.update) > self.clip)
        vector = np.empty(len(work.update) + _EXTRA, np.float32)
        np.clip(work.update, -self.clip, self.clip, out=vector[:-_EXTRA])  # what is not finite stays so, and is refused
        vector[:-_EXTRA] *= np.float32(weight)
        loss = min(max(work.loss, -LARGEST_LOSS), LARGEST_LOSS) / LARGEST_LOSS
        vector[-_EXTRA:] = np.array([weight, weight * loss, outside / max(len(work.update), 1)]) * self.clip
        np.clip(vector[-_EXTRA:], -self.clip, self.clip, out=vector[-_EXTRA:])  # float32 may round the clip up
        return vector

    def on_server(self, total: NDArray[np.float64], randomness: Randomness) -> Release:  # noqa: ARG002
        """Divide by the sum of weights."""
        weight, loss, outside = total[-_EXTRA:] / self.clip
        update = total[:-_EXTRA] / weight
        return Release(
            update=update.astype(np.float32),
            train_loss=float(loss / weight) * LARGEST_LOSS,
            mechanism=self,
            clipped=round(outside * len(update)),
        )
