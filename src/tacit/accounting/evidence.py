r"""What was seen of a mechanism, held against what its ledger claims: a lower bound on epsilon that may be trusted.

Somebody plays a mechanism many times on each of two neighbouring data sets, and counts how often an event happens:
:func:`rates` turns the counts into two rates that hold together with a chosen confidence, and :class:`Claimed` says
what they mean for a claim.

**The rates.** The event is fixed before the counted trials (chosen on others), and trials are independent: the counts
are binomial. Of a count the lower end of its rate fails to hold with probability at most :math:`\beta/2`, and so does
the upper end of the other (Clopper & Pearson 1934: the exact test, inverted). By the union bound

.. math:: p \ge p_{low} \quad\text{and}\quad q \le q_{high} \quad\text{with probability at least } 1 - \beta .

**The verdict.** A ledger claims :math:`(\varepsilon, \delta(\varepsilon))` for every epsilon at once, so it claims that
the event, of probability q on one data set, has on the other at most

.. math:: T(q) = \inf_\varepsilon \min\bigl(e^\varepsilon q + \delta,\; 1 - e^{-\varepsilon} (1 - \delta - q)\bigr)

(Kairouz, Oh & Viswanath 2015; for Gaussian noise without sampling :math:`\Phi(\Phi^{-1}(q) + \mu)`, Dong, Roth & Su
2022). T does not fall, so where :math:`p_{low} > T(q_{high})` the claim is false, but for a probability of
:math:`\beta`. Nothing is assumed of the mechanism.

**The bound.** Scale all noise of the ledger by a factor s: its T falls as s grows. Let :math:`s^*` be the largest
factor under which :math:`p_{low} \le T_s(q_{high})`. A mechanism of the claimed shape, with whatever noise, has at
most that factor, so that its epsilon is at least :math:`\varepsilon(s^*)`, but for a probability of :math:`\beta`. The
bound exceeds the claim exactly where :math:`s^* < 1`, which is where the claim is false whatever the shape. Beside it
stands :math:`\ln((p_{low} - \delta)/q_{high})`, which needs no shape at all and is smaller.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tacit.accounting import accountant
from tacit.accounting.events import (
    ComposedEvent,
    Event,
    GaussianEvent,
    PureEvent,
    RepeatedEvent,
    SampledEvent,
    ShuffledEvent,
    SkellamEvent,
)
from tacit.accounting.ledger import Ledger, Tally
from tacit.accounting.risk import Risk
from tacit.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CONFIDENCE = 0.95
_DELTAS = tuple(10.0 ** (-place / 2.0) for place in range(1, 17))  # where a profile is cheap to look at
_FEW_DELTAS = (0.2, 0.05, 0.01, 1e-3, 1e-5)  # where a point takes a tenth of a second
_FACTORS, _HALVINGS = 64.0, 24  # how far noise is scaled, and how finely, where a profile is cheap
_FEW_FACTORS, _FEW_HALVINGS = 8.0, 5


@dataclass(frozen=True, kw_only=True)
class Rates:
    """How often an event was seen on two neighbouring data sets, each at the end that is safe to use.

    Attributes:
        likely: what its probability is at least on one of them, p.
        unlikely: what it is at most on the other, q.
        confidence: with which both hold.
        trials: how many were counted on each.
    """

    likely: float
    unlikely: float
    confidence: float
    trials: int


def rates(hits: int, misses: int, trials: int, *, confidence: float = CONFIDENCE) -> Rates:
    """Return what counts of an event say: ``hits`` of ``trials`` where it is likely, ``misses`` of as many elsewhere.

    >>> found = rates(400, 100, 500)
    >>> round(found.likely, 3), round(found.unlikely, 3)
    (0.762, 0.238)
    """
    if not (0 <= hits <= trials and 0 <= misses <= trials and trials > 0):
        raise ConfigError(f"Expected counts from 0 to trials={trials}, got {hits} and {misses}.")
    if not 0.5 <= confidence < 1.0:
        raise ConfigError(f"Expected a confidence from 0.5 to 1, got {confidence}.")
    import numpy as np

    low, high = ends(np.array([hits]), np.array([misses]), trials, confidence=confidence)
    return Rates(likely=float(low[0]), unlikely=float(high[0]), confidence=confidence, trials=trials)


def ends(
    hits: NDArray[np.int64], misses: NDArray[np.int64], trials: int, *, confidence: float = CONFIDENCE
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lower ends of the rates of ``hits`` and the upper ends of those of ``misses``, for many events."""
    import numpy as np
    from scipy.special import betaincinv

    tail = (1.0 - confidence) / 2.0
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), trials - hits + 1, tail), 0.0)
    high = np.where(misses < trials, betaincinv(misses + 1, np.maximum(trials - misses, 1), 1.0 - tail), 1.0)
    return np.asarray(low), np.asarray(high)


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """What is claimed of some releases: a ledger, or no more than one pair of epsilon and delta.

    >>> from tacit.accounting.events import GaussianEvent
    >>> claimed = Claimed(ledger=Ledger().charged(GaussianEvent(noise_multiplier=1.0), round_number=1), delta=1e-5)
    >>> round(claimed.epsilon, 3), round(claimed.most_found(0.1), 3)
    (4.377, 0.389)
    >>> claimed.refuted_by(rates(240, 60, 500)), claimed.refuted_by(rates(420, 60, 500))
    (False, True)
    >>> round(claimed.least_epsilon(rates(420, 60, 500)), 2)
    9.31
    """

    ledger: Ledger
    delta: float
    pair: float | None = None  # the epsilon that somebody claims at delta, where no ledger stands behind it

    @functools.cached_property
    def epsilon(self) -> float:
        """The claim at delta."""
        return self.pair if self.pair is not None else accountant.epsilon(self.ledger, self.delta).epsilon

    def most_found(self, unlikely: float) -> float:
        """Return T(q): the largest probability of an event on the neighbour, by all that is claimed."""
        return min((risk.power(unlikely) for risk in self._profile), default=1.0)

    @functools.cached_property
    def _profile(self) -> tuple[Risk, ...]:
        """Points of what is claimed; with Gaussian noise alone one of them is all of it."""
        if self.pair is not None:
            return (Risk.of_pair(epsilon=self.pair, delta=self.delta),)
        tallies = [Tally.of(own) for own in self.ledger.of_clients()]
        if any(tally.hopeless for tally in tallies):
            return ()
        if all(_is_gaussian(tally) for tally in tallies):
            mu = max(tally.mu for tally in tallies)
            return (Risk(epsilon=math.inf, delta=1.0, right_guesses=1.0, mu=mu),)
        deltas = _FEW_DELTAS if self._slow else _DELTAS
        points = [(delta, accountant.estimate(self.ledger, delta).epsilon) for delta in deltas]
        return tuple(Risk.of_pair(epsilon=epsilon, delta=delta) for delta, epsilon in points if epsilon < math.inf)

    @functools.cached_property
    def _slow(self) -> bool:
        tallies = [Tally.of(own) for own in self.ledger.of_clients()]
        return any(tally.poisson or tally.fixed or tally.mixed for tally in tallies)

    def refuted_by(self, seen: Rates) -> bool:
        """Return whether the claim is false, with the confidence of what was seen."""
        return seen.likely > self.most_found(seen.unlikely)

    def margins(self, likely: NDArray[np.float64], unlikely: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how far rates exceed what is claimed, in deviations of a normal law: to choose an event by.

        A thousandth of how far they are apart is added, for claims that no rates could exceed.
        """
        import numpy as np
        from scipy.special import ndtri

        places, found = self._table
        more, less = (ndtri(np.clip(rate, 1e-12, 1.0 - 1e-12)) for rate in (likely, unlikely))
        return np.asarray(more - np.interp(less, places, found) + 1e-3 * (more - less))

    @functools.cached_property
    def _table(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What is claimed at rates from 1e-12 to 1 - 1e-12, both in deviations of a normal law."""
        import numpy as np
        from scipy.special import ndtr, ndtri

        places = np.linspace(-7.0, 7.0, 113)
        found = [self.most_found(float(rate)) for rate in ndtr(places)]
        return places, np.asarray(ndtri(np.clip(found, 1e-12, 1.0 - 1e-12)))

    def least_epsilon(self, seen: Rates) -> float:
        """Return what epsilon is at least for a mechanism of the claimed shape, with the confidence of what was seen.

        Infinite where no noise of this shape explains it.
        """
        if seen.likely <= seen.unlikely:
            return 0.0
        if self.pair is not None or self.epsilon == math.inf:
            return self.least_of_any_shape(seen)
        most = _FEW_FACTORS if self._slow else _FACTORS
        low, high = (1.0 / most, 1.0) if self.refuted_by(seen) else (1.0, most)
        if high == 1.0 and self.scaled(low).refuted_by(seen):
            return math.inf
        if low == 1.0 and not self.scaled(high).refuted_by(seen):  # so little was seen that any noise explains it
            return self.least_of_any_shape(seen)
        for _ in range(_FEW_HALVINGS if self._slow else _HALVINGS):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if self.scaled(middle).refuted_by(seen) else (middle, high)
        # Noise by `high` would not explain it: epsilon is at least that of `high`, and the claim's where that is 1.
        return max(self.scaled(high).epsilon, self.least_of_any_shape(seen))

    def least_of_any_shape(self, seen: Rates) -> float:
        """Return the same of any mechanism whatever, by the two events themselves."""
        found = [0.0]
        for more, less in ((seen.likely, seen.unlikely), (1.0 - seen.unlikely, 1.0 - seen.likely)):
            if more > self.delta:
                found.append(math.log((more - self.delta) / less) if less > 0.0 else math.inf)
        return max(found)

    def scaled(self, factor: float) -> Claimed:
        """Return the claim about the same releases with all noise ``factor`` times as large."""
        charges = tuple(replace(charge, event=scaled(charge.event, factor)) for charge in self.ledger.charges)
        return replace(self, ledger=replace(self.ledger, charges=charges))


def scaled(event: Event, factor: float) -> Event:
    """Return the event with ``factor`` times the noise; of a pure release with epsilon over it."""
    match event:
        case GaussianEvent() | SkellamEvent():
            return replace(event, noise_multiplier=event.noise_multiplier * factor)
        case PureEvent() | ShuffledEvent():
            return replace(event, epsilon=event.epsilon / factor)
        case ComposedEvent():
            return ComposedEvent(events=tuple(scaled(inner, factor) for inner in event.events))
        case RepeatedEvent() | SampledEvent():
            return replace(event, event=scaled(event.event, factor))


def _is_gaussian(tally: Tally) -> bool:
    return tally.mu > 0.0 and not (tally.poisson or tally.unmixed or tally.skellam or tally.fixed)
