"""Randomized response: a bit that is private by itself, and the count that can still be had from many."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.accounting.profile import check_positive
from tacit.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class RandomizedResponse:
    r"""Each bit is kept with probability :math:`P = e^\varepsilon/(1+e^\varepsilon)`, and flipped otherwise.

    The likelihood of a report changes by at most :math:`P/(1-P) = e^\varepsilon` when its bit does, so a report is
    :math:`\varepsilon`-locally private (Warner, "Randomized response", 1965).

    >>> response = RandomizedResponse(epsilon=math.log(3))
    >>> round(response.keep, 12), round(response.count(60, reports=100), 9)
    (0.75, 70.0)
    """

    epsilon: float

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)

    @classmethod
    def keeping(cls, keep: float) -> RandomizedResponse:
        """Return the response that keeps a bit with this probability."""
        if not 0.5 < keep < 1.0:
            raise ConfigError(
                f"Expected 1/2 < keep < 1, got {keep}. At 1/2 nothing is learnt, at 1 nothing is private."
            )
        return cls(epsilon=math.log(keep) - math.log1p(-keep))

    @property
    def keep(self) -> float:
        """The probability that a bit is reported as it is."""
        return 1.0 / (1.0 + math.exp(-self.epsilon))

    @property
    def flip(self) -> float:
        """The probability that a bit is reported as its opposite; not 1 - keep, which is 0 from epsilon 37 on."""
        return math.exp(-self.epsilon) / (1.0 + math.exp(-self.epsilon))

    def perturb(self, bits: NDArray[np.bool_], generator: np.random.Generator) -> NDArray[np.bool_]:
        """Return the bits, each flipped independently with the probability of a flip."""
        if bits.dtype != np.bool_:
            raise ConfigError(f"Expected an array of booleans to randomize, got {bits.dtype}. Convert it with `!= 0`.")
        # A uniform draw is a multiple of 2^-53 and may be 0, so `<=` rounds the probability of a flip up, to the
        # private side, even where it underflows.
        return bits ^ (generator.random(bits.shape) <= self.flip)

    def count(self, ones: float, *, reports: int) -> float:
        r"""Return the unbiased estimate :math:`(n_1 - n(1-P))/(2P-1)` of how many bits were set before."""
        if not 0 <= ones <= reports or reports < 1:
            raise ConfigError(f"Expected 0 <= ones={ones} <= reports={reports}, with one report at least.")
        return (ones - reports * self.flip) / math.tanh(self.epsilon / 2.0)
