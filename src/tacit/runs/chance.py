"""What a model reaches that has learned nothing: it names the most frequent class of the test data every time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

ERRORS = 3.0  # standard errors within which an accuracy is not told apart from chance
# Weights that are noise name classes at random, but all of a kind alike, so that their accuracy strays further than
# test data of this size would let it. Their loss gives them away.
_STRAY, _LOSS = 0.1, 10.0


@dataclass(frozen=True, kw_only=True)
class Chance:
    """The level of chance on test data.

    >>> chance = Chance(share=0.1, examples=10_000)
    >>> chance.holds(0.108), chance.holds(0.112), chance.holds(0.112, loss=2258.0)
    (True, False, True)

    Attributes:
        share: of the most frequent class among the labels.
        examples: how many there are.
    """

    share: float
    examples: int

    @classmethod
    def of(cls, labels: Tensor) -> Chance | None:
        """Return the chance level of test data, None where their labels are no classes."""
        if labels.ndim != 1 or labels.is_floating_point() or not len(labels) or int(labels.min()) < 0:
            return None
        _, counts = np.unique(labels.cpu().numpy(), return_counts=True)
        return cls(share=int(counts.max()) / len(labels), examples=len(labels))

    @property
    def error(self) -> float:
        """The standard error of an accuracy at this level."""
        return math.sqrt(self.share * (1.0 - self.share) / self.examples)

    def holds(self, accuracy: float, *, loss: float | None = None) -> bool:
        """Return whether an accuracy is at chance: no more than three standard errors above it.

        Or no more than a tenth of the way from chance to one, with a loss over ten times that of a model that knows
        nothing but how frequent the most frequent class is: such weights are noise.
        """
        if loss is not None and not loss <= _LOSS * -math.log(self.share):  # NaN too
            return accuracy <= self.share + max(ERRORS * self.error, _STRAY * (1.0 - self.share))
        return accuracy <= self.share + ERRORS * self.error
