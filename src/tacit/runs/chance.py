"""What a model reaches that has learned nothing: it names the most frequent class of the test data every time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

ERRORS = 3.0  # standard errors within which an accuracy is not told apart from chance


@dataclass(frozen=True, kw_only=True)
class Chance:
    """The level of chance on test data.

    >>> chance = Chance(share=0.1, examples=10_000)
    >>> chance.holds(0.108), chance.holds(0.112)
    (True, False)

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

    def holds(self, accuracy: float) -> bool:
        """Return whether an accuracy is at chance: no more than three standard errors above it."""
        return accuracy <= self.share + ERRORS * self.error
