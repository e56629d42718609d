"""Poisson batches: each example by its own coin, which is what the accounting of DP-SGD assumes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class PoissonBatches:
    """Batches of ``expected`` examples on average, out of ``examples``; any size may come, none at all too.

    The size is drawn first, Binomial(n, q), and then that many examples without replacement: the same law as n coins
    at a cost that depends on the batch.

    >>> PoissonBatches(examples=1000, expected=10).rate
    0.01
    """

    examples: int  # n
    expected: int  # qn

    def __post_init__(self) -> None:
        if self.expected < 1:
            raise ConfigError(f"Expected a batch size of 1 or more, got {self.expected}.")
        if self.expected > self.examples:
            raise ConfigError(
                f"A batch size of {self.expected} is larger than the data, which have {self.examples} examples. "
                f"Use {self.examples} (every step sees all examples) or less."
            )

    @property
    def rate(self) -> float:
        """The probability q of each coin."""
        return self.expected / self.examples

    def steps(self, epochs: float) -> int:
        """Return how many steps see as many examples, on average, as ``epochs`` passes."""
        return max(1, -(-round(epochs * self.examples) // self.expected))

    def draw(self, generator: np.random.Generator) -> NDArray[np.int64]:
        """Return the examples of a batch, in ascending order."""
        if self.expected == self.examples:
            return np.arange(self.examples)
        size = int(generator.binomial(self.examples, self.rate))
        return np.sort(generator.choice(self.examples, size, replace=False, shuffle=False))
