"""The Gaussian mechanism, exactly.

With L2 sensitivity D, noise of standard deviation s and ``mu = D/s`` the mechanism is (eps, delta)-DP if and only if

    delta >= Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)

(Balle & Wang 2018, theorem 8). Releases to which everyone contributes compose to one Gaussian release with
``mu^2 = sum of mu_i^2`` (Dong, Roth & Su 2019), so that T rounds with noise multiplier z cost what one round with
``z / sqrt(T)`` does: no bound is lost, however different the rounds are.

With ``u = (eps/mu - mu/2)/sqrt 2`` and ``t = (eps/mu + mu/2)/sqrt 2`` the profile is
``2 delta = e^(-u^2) (erfcx(u) - erfcx(t))``, which neither overflows nor cancels; it is evaluated as a logarithm. Plain
floats throughout: this is the quick path of ``tacit epsilon``, which must not wait for NumPy to load.
"""

from __future__ import annotations

import math

from tacit.accounting.roots import bracket_up, first_at_most_zero
from tacit.errors import ConfigError

_ROOT_PI = math.sqrt(math.pi)
_SERIES_FROM = 4.0  # from here on the continued fraction of erfcx has settled after _TERMS
_TERMS = 60
_LARGEST_MU = 1e150  # beyond, mu^2 overflows; a noise multiplier of 1e-150 is none


def log_delta(*, epsilon: float, mu: float) -> float:
    """Return ln delta(eps) of a Gaussian release with ``mu`` = sensitivity over standard deviation."""
    if mu == 0.0:
        return -math.inf
    if mu > _LARGEST_MU:
        return 0.0
    u = (epsilon / mu - mu / 2) / math.sqrt(2)
    t = (epsilon / mu + mu / 2) / math.sqrt(2)
    gap = mu / math.sqrt(2)  # t - u, without its rounding
    if gap < 1e-5 * (1.0 + abs(u)):
        # erfcx(u) - erfcx(t) by its slope at the middle: 2/sqrt(pi) - 2 m erfcx(m) times the width.
        difference = 2.0 * gap * _slack(epsilon / mu / math.sqrt(2))
    elif u < 0.0:
        # Both terms are of ordinary size here, and e^(-u^2) is at most one.
        doubled = math.erfc(u) - math.exp(-u * u) * _erfcx(t)
        return math.log(doubled / 2) if doubled > 0.0 else -math.inf
    else:
        difference = _erfcx(u) - _erfcx(t)
    return math.log(difference / 2) - u * u if difference > 0.0 else -math.inf


def delta_of(*, epsilon: float, mu: float) -> float:
    """Return delta(eps) of a Gaussian release.

    >>> round(delta_of(epsilon=1.0, mu=1.0), 6)
    0.126937
    """
    return math.exp(log_delta(epsilon=epsilon, mu=mu))


def epsilon_of(*, delta: float, mu: float) -> float:
    """Return the smallest epsilon of a Gaussian release at ``delta``; infinite without noise.

    >>> round(epsilon_of(delta=1e-5, mu=1.0), 9)
    4.377178096
    """
    if mu == 0.0:
        return 0.0
    if mu > _LARGEST_MU:
        return math.inf

    def excess(epsilon: float) -> float:
        return log_delta(epsilon=epsilon, mu=mu) - math.log(delta)

    if excess(0.0) <= 0.0:
        return 0.0
    # Chernoff: delta(eps) <= e^(-u^2) when u > 0, hence the start is already close to an upper end.
    start = mu * mu / 2 + mu * math.sqrt(-2.0 * math.log(delta))
    high = bracket_up(excess, start)
    return math.inf if high is None else first_at_most_zero(excess, 0.0, high)


def mu_of(*, epsilon: float, delta: float) -> float:
    """Return the largest mu whose exact epsilon at ``delta`` does not exceed ``epsilon``: the analytic calibration.

    >>> round(1 / mu_of(epsilon=1.0, delta=1e-5), 9)
    3.730631635
    """

    def excess(inverse: float) -> float:
        return log_delta(epsilon=epsilon, mu=1.0 / inverse) - math.log(delta)

    low = 1e-3
    while excess(low) <= 0.0:
        low /= 10.0
    high = bracket_up(excess, low)
    if high is None:
        raise ConfigError(f"No noise gives epsilon={epsilon:g} at delta={delta:g}; both are out of a float's reach.")
    # The reciprocal rounds; one unit in the last place keeps the promise.
    return math.nextafter(1.0 / first_at_most_zero(excess, low, high), 0.0)


def _erfcx(x: float) -> float:
    """Return e^(x^2) erfc(x) for x >= 0."""
    if x < _SERIES_FROM:
        return math.exp(x * x) * math.erfc(x)
    return 1.0 / (_ROOT_PI * (x + _tail(x)))


def _slack(x: float) -> float:
    """Return 1/sqrt(pi) - x erfcx(x), without the cancellation at large x."""
    if x < _SERIES_FROM:
        return 1.0 / _ROOT_PI - x * _erfcx(x)
    tail = _tail(x)
    return tail / (_ROOT_PI * (x + tail))


def _tail(x: float) -> float:
    """Return c in erfcx(x) = 1 / (sqrt(pi) (x + c)): the continued fraction (1/2)/(x + 1/(x + (3/2)/(x + ...)))."""
    tail = 0.0
    for term in range(_TERMS, 0, -1):
        tail = 0.5 * term / (x + tail)
    return tail
