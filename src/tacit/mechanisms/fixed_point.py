"""The weighted mean in numbers of a known range, as encryption needs them; no differential privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError, SpoiledError
from tacit.mechanisms.mechanism import Release, Work
from tacit.randomness import Randomness
from tacit.vectors import Vector, blocks

_EXTRA = 3
LARGEST_LOSS = 16.0  # a mean training loss beyond this is told as this
_FLOAT32 = 2.0**-22  # by what factors two roundings to float32 may move a number of at most 1, and some room


@dataclass(frozen=True, kw_only=True)
class BoundedMean:
    r"""Releases :math:`\sum_i w_i \bar u_i / \sum_i w_i` from vectors whose numbers are all in :math:`[-C, C]`.

    Each coordinate of an update is clipped to :math:`C`, and :math:`w_i = \min(examples_i / cap, 1)` is folded in
    before the vector leaves the client. The weight, the weighted loss and the share of clipped coordinates have slots
    of their own, scaled to the same range, so that a client tells none of them to anyone: only their sums are opened.

    A client that lies can put any number of the range into any slot. So nothing is released of a sum that k honest
    clients can't have given. With :math:`W = \sum_i w_i` it has :math:`0 < W \le k` (W = k where all count alike),
    coordinates and losses within W of zero in units of C, and a clipped share from 0 to k, each up to what k numbers
    may be rounded by. What is released is within C of zero in every coordinate. Within that a lie is not seen: one
    liar among k that count alike moves a coordinate by at most 2C/k, as an honest client could; where clients weigh
    differently it may claim the largest weight, or take others' weight off, and move it anywhere in [-C, C].

    Attributes:
        clip: C, the largest magnitude of a coordinate.
        weighting: by examples, or all clients alike.
        weight_cap: a public number of examples that counts as 1; the largest client's, so that nothing is cut off.
        rounding: how far a client's number may be from what it stands for when it is summed, beside float32's own.
    """

    clip: float
    weighting: Literal["examples", "uniform"] = "examples"
    weight_cap: int = 1
    rounding: float = 0.0
    event: None = None

    def __post_init__(self) -> None:
        if not self.clip > 0:
            raise ConfigError(
                f"Expected clip={self.clip} > 0: the largest magnitude a coordinate of an update may have."
            )
        if self.weight_cap < 1:
            raise ConfigError(f"Expected weight_cap={self.weight_cap} >= 1: the examples that count as weight 1.")
        if not 0 <= self.rounding < self.clip:
            raise ConfigError(f"Expected 0 <= rounding={self.rounding} < clip={self.clip}.")

    def fitted(self, layers: tuple[int, ...]) -> Self:
        """Return the mechanism."""
        return self

    def length(self, parameters: int) -> int:
        """Return three more than the model has."""
        return parameters + _EXTRA

    def public_state(self) -> bytes:
        """Return nothing: clients know their weight."""
        return b""

    def with_state(self, state: bytes) -> Self:
        """Return the mechanism."""
        return self

    def on_client(self, work: Work, randomness: Randomness) -> Vector:
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

    def on_server(self, total: NDArray[np.float64], randomness: Randomness, *, clients: int) -> Release:
        """Divide by the sum of weights, where honest clients can have given such sums."""
        weight, loss, outside = (float(number) for number in total[-_EXTRA:] / self.clip)
        slack = clients * (self.rounding / self.clip + _FLOAT32)  # of one slot, in units of the clip
        if self.weighting == "uniform":
            least, expected = clients - slack, f"{clients}"
        else:
            least, expected = 0.0, f"more than {slack:.2g}, as rounding hides less, and at most {clients}"
        if not max(least, slack) < weight <= clients + slack:
            raise _spoiled(f"a weight of {weight:.6g}, expected {expected}", clients)
        sums = total[:-_EXTRA]
        largest = float(np.max([np.abs(sums[part]).max() for part in blocks(len(sums))], initial=0.0)) / self.clip
        if not largest <= weight + 2 * slack:
            raise _spoiled(
                f"a coordinate of {largest / weight:.6g} times the clip in the mean, expected 1 at most", clients
            )
        if not abs(loss) <= weight + 2 * slack:
            raise _spoiled(
                f"a mean loss of {loss / weight * LARGEST_LOSS:.6g}, expected {LARGEST_LOSS:g} at most", clients
            )
        if not -slack <= outside <= clients + slack:
            raise _spoiled(f"{outside:.6g} vectors' worth of clipped numbers, expected 0 to {clients}", clients)
        update = np.empty(len(sums), np.float32)
        for part in blocks(len(sums)):
            update[part] = np.clip(sums[part] / weight, -self.clip, self.clip)
        return Release(
            update=update,
            train_loss=min(max(loss / weight, -1.0), 1.0) * LARGEST_LOSS,
            mechanism=self,
            clipped=max(round(outside * len(update)), 0),
        )


def _spoiled(met: str, clients: int) -> SpoiledError:
    return SpoiledError(
        f"The opened sum of {clients} clients has {met}: honest clients can't have given it, so at least one of them "
        "lied, or numbers were damaged. Nothing was released. Which one it was, encryption hides: look at the clients."
    )
