r"""How far to step: the magnitude of updates, found by private yes-or-no answers (MagRR, MindSpore Federated).

Sets of coordinates say where to go but not how far. The server keeps an estimate :math:`r`; each client compares the
magnitude of its own update with it and answers with one bit under randomized response.

=============  ======================  ==================================================================
phase          bit is 1 where          majority of the debiased answers
=============  ======================  ==================================================================
growth         magnitude < 2 r         0: r grows by a factor; 1: r stays, and after enough such rounds
                                       the phase ends
contraction    magnitude < r           1: r is halved; 0: it stays
=============  ======================  ==================================================================

The step of a round with N reports is :math:`2 r N / N` a vote.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from typing import Self

from tacit.errors import ConfigError, WireError
from tacit.mechanisms.randomized_response import RandomizedResponse

_STATE = struct.Struct(">d?I")
START = math.exp(-5.0)


@dataclass(frozen=True, kw_only=True)
class MagnitudeEstimate:
    """The estimate and its phase; the factors are public settings and don't change.

    >>> estimate = MagnitudeEstimate(response=RandomizedResponse(epsilon=5.0), estimate=0.01)
    >>> estimate.after(ones=0, reports=10).estimate  # all clients are beyond it
    0.05
    """

    response: RandomizedResponse
    estimate: float = START  # r
    growth: float = 5.0
    shrink: float = 2.0
    growth_bound: float = 2.0  # in the growth phase magnitudes are compared with this many r
    contraction_bound: float = 1.0
    step_factor: float = 2.0
    patience: int = 11  # the growth phase ends with so many majorities within the bound
    contracting: bool = False
    settled: int = 0  # majorities within the bound so far

    def __post_init__(self) -> None:
        for name in ("estimate", "growth_bound", "contraction_bound", "step_factor"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ConfigError(f"Expected a finite {name} > 0, got {getattr(self, name)}.")
        for name in ("growth", "shrink"):
            if not 1.0 < getattr(self, name) < math.inf:
                raise ConfigError(f"Expected a factor {name} > 1, got {getattr(self, name)}.")
        if self.patience < 1:
            raise ConfigError(f"Expected patience={self.patience} >= 1.")

    @property
    def bound(self) -> float:
        """What a client compares its magnitude with."""
        return self.estimate * (self.contraction_bound if self.contracting else self.growth_bound)

    def step(self, reports: int) -> float:
        r"""Return :math:`lr_{global} = 2 r N`."""
        return self.step_factor * self.estimate * reports

    def after(self, *, ones: int, reports: int) -> Self:
        """Return the estimate of the next round, ``ones`` being how many answers were 1 after their perturbation.

        The majority is that of the debiased count, :meth:`RandomizedResponse.count`. Debiasing stretches around the
        middle, so it is also that of the answers as they came, and a tie is told from a majority without rounding.
        """
        within = 2 * ones > reports
        if self.contracting:
            return self._moved(1.0 / self.shrink) if within else self
        if not within:
            return self._moved(self.growth)
        settled = self.settled + 1
        return replace(self, settled=settled, contracting=settled >= self.patience)

    def state(self) -> bytes:
        """Return what changes from round to round."""
        return _STATE.pack(self.estimate, self.contracting, self.settled)

    def with_state(self, state: bytes) -> Self:
        """Return the estimate in the state that :meth:`state` wrote."""
        if len(state) != _STATE.size:
            raise WireError(f"Expected {_STATE.size} bytes with the magnitude's estimate, got {len(state)}.")
        estimate, contracting, settled = _STATE.unpack(state)
        if not 0.0 < estimate < math.inf:
            raise WireError(f"Expected a finite magnitude above 0, was told {estimate}.")
        return replace(self, estimate=estimate, contracting=contracting, settled=settled)

    def _moved(self, factor: float) -> Self:
        moved = self.estimate * factor
        # Where all bits lie the estimate would leave the floats' range some day; there it stays.
        return replace(self, estimate=moved) if 0.0 < moved < math.inf else self
