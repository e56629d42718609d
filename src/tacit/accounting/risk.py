r"""What an epsilon means as a risk: how often the best test of one person's part can be right.

Somebody who holds everything that was released, and all data but one person's, tests whether that person's were among
them. With false alarms at a rate :math:`\alpha`, any test finds a share of at most

.. math:: \min(e^\varepsilon \alpha + \delta,\; 1 - e^{-\varepsilon} (1 - \delta - \alpha))

of those who were (Kairouz, Oh & Viswanath 2015), and where both answers are equally likely it is right with a
probability of at most :math:`(e^\varepsilon + \delta) / (1 + e^\varepsilon)`. A pair of epsilon and delta is one point
of what is known about a ledger. Its whole profile says more: the best guess is right with probability
:math:`(1 + \delta(0)) / 2`, and Gaussian releases without sampling have the exact trade-off
:math:`\Phi(\Phi^{-1}(\alpha) + \mu)` (Dong, Roth & Su 2022).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from statistics import NormalDist

from tacit.accounting import accountant, profile
from tacit.accounting.ledger import Ledger, Tally
from tacit.errors import ConfigError

_EXACT = 0.002  # of delta(0), where it has to be searched for
_LARGE = 700.0  # e to this is beyond floats


@dataclass(frozen=True, kw_only=True)
class Risk:
    """How well the best test of one person's part can do.

    >>> risk = Risk.of_pair(epsilon=1.0, delta=1e-5)
    >>> round(risk.right_guesses, 4), round(risk.power(0.01), 4)
    (0.7311, 0.0272)

    Attributes:
        epsilon: the guarantee's, and
        delta: its own.
        right_guesses: how often a guess is right at the most, where both answers are equally likely.
        mu: of the Gaussian trade-off, where all that was released is charged as Gaussian noise without sampling.
    """

    epsilon: float
    delta: float
    right_guesses: float
    mu: float | None = None

    @classmethod
    def of_pair(cls, *, epsilon: float, delta: float) -> Risk:
        """Return what follows from epsilon and delta alone."""
        if not (epsilon >= 0.0 and 0.0 <= delta <= 1.0):
            raise ConfigError(f"Expected epsilon >= 0 and 0 <= delta <= 1, got epsilon {epsilon} and delta {delta}.")
        odds = math.exp(-min(epsilon, _LARGE))
        return cls(epsilon=epsilon, delta=delta, right_guesses=min(1.0, (1.0 + delta * odds) / (1.0 + odds)))

    def power(self, alpha: float) -> float:
        """Return the largest share that a test finds which raises false alarms at the rate ``alpha``."""
        if not 0.0 <= alpha <= 1.0:
            raise ConfigError(f"Expected a rate of false alarms between 0 and 1, got {alpha}.")
        if self.mu is not None and 0.0 < alpha < 1.0:
            normal = NormalDist()
            return normal.cdf(normal.inv_cdf(alpha) + self.mu)
        grown = math.exp(min(self.epsilon, _LARGE)) * alpha + self.delta
        left = 1.0 - math.exp(-min(self.epsilon, _LARGE)) * (1.0 - self.delta - alpha)
        return max(alpha, min(1.0, grown, left, alpha + 2.0 * self.right_guesses - 1.0))

    def belief(self, before: float) -> float:
        """Return what somebody may come to believe at the most who thought it likely by ``before``, delta apart.

        >>> round(Risk.of_pair(epsilon=1.0, delta=1e-5).belief(0.5), 4)
        0.7311
        """
        if not 0.0 <= before <= 1.0:
            raise ConfigError(f"Expected a probability between 0 and 1, got {before}.")
        kept = (1.0 - before) * math.exp(-min(self.epsilon, _LARGE))
        return before / (before + kept) if before else 0.0


@functools.lru_cache(maxsize=64)
def of_ledger(ledger: Ledger, delta: float) -> Risk:
    """Return the risk of all that a ledger holds, by its whole profile and not by one delta alone."""
    cost = accountant.epsilon(ledger, delta)
    if cost.epsilon == math.inf:
        return Risk(epsilon=math.inf, delta=delta, right_guesses=1.0)
    tallies = [Tally.of(own) for own in ledger.of_clients()]
    exact = not any(tally.poisson or tally.unmixed or tally.skellam for tally in tallies)
    if exact and cost.accountant == "exact-gaussian":
        mu = max(tally.mu for tally in tallies)
        at_zero = profile.delta_at(0.0, mu) if mu > 0.0 else 0.0
        return Risk(epsilon=cost.epsilon, delta=delta, right_guesses=(1.0 + at_zero) / 2.0, mu=mu)
    best = Risk.of_pair(epsilon=cost.epsilon, delta=delta).right_guesses
    low, high = 0.0, 1.0  # the least delta at which epsilon is nothing lies between
    while high - low > _EXACT and high > 2.0 * delta:
        middle = (low + high) / 2.0
        found = accountant.epsilon(ledger, middle)
        best = min(best, Risk.of_pair(epsilon=found.epsilon, delta=middle).right_guesses)
        low, high = (middle, high) if found.epsilon > 0.0 else (low, middle)
    return Risk(epsilon=cost.epsilon, delta=delta, right_guesses=best)
