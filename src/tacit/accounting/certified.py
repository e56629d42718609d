r"""What releases cost at least, in closed form: lower bounds on delta(eps) that no grid and no transform has touched.

Whoever tells two data sets apart by a test, "is the outcome beyond x?", proves

.. math:: \delta(\varepsilon) \ge P(x) - e^{\varepsilon} Q(x)

for *every* x; at the x where the densities differ by :math:`e^\varepsilon` it is an equality. So these functions are
exact for one release, and certain even where that x is not met. Leaving out releases, or adding up their outcomes, is
post-processing and can only lose: what holds of a part holds of the whole ledger.
"""

from __future__ import annotations

import math

from tacit.accounting.ledger import Tally
from tacit.accounting.tails import log_less, log_tail

_BERRY_ESSEEN = 0.4748  # Shevtsova 2011
_FAR = 30.0  # deviations beyond which nothing is at stake


def log_delta(tally: Tally, epsilon: float) -> float:
    """Return the largest of these lower bounds on ln delta(eps) over what a ledger holds."""
    found = [pure(tally.pure, epsilon)]
    mu = tally.without_fixed().mu if tally.neighbours != "add-remove" else tally.mu
    if mu > 0.0:
        found.append(gaussian(mu, epsilon))
    # A set of fixed size in which all others contribute nothing is seen like a Poisson sample.
    for group in (*tally.poisson, *tally.fixed):
        forms = (sampled_replaced,) if tally.neighbours == "replace-one" else (sampled_removed, sampled_added)
        found += [form(group.noise_multiplier, group.rate, epsilon) for form in forms]
    found += [skellam(*release, count, tally.reach, epsilon) for release, count in tally.skellam]
    return max(found)


def gaussian(mu: float, epsilon: float) -> float:
    """Return a lower bound on ln delta(eps) of Gaussian noise of deviation 1/mu on a sum that moves by one."""
    place = epsilon / mu - mu / 2.0
    return log_less(log_tail(place)[0], epsilon + log_tail(place + mu)[1])


def sampled_removed(noise: float, rate: float, epsilon: float) -> float:
    """Return the same of a Poisson-sampled release, (1-q) N(0, z^2) + q N(1, z^2) against N(0, z^2)."""
    if rate == 1.0:
        return gaussian(1.0 / noise, epsilon)
    # P - e^eps Q = q N(1) - (e^eps - 1 + q) N(0)
    rest = _log_sum(_log_expm1(epsilon), math.log(rate))
    place = noise * noise * (rest - math.log(rate)) + 0.5
    return log_less(math.log(rate) + log_tail((place - 1.0) / noise)[0], rest + log_tail(place / noise)[1])


def sampled_added(noise: float, rate: float, epsilon: float) -> float:
    """Return the same of N(0, z^2) against (1-q) N(0, z^2) + q N(-1, z^2): at most -ln(1-q) is ever lost."""
    if rate == 1.0:
        return gaussian(1.0 / noise, epsilon)
    left = epsilon + math.log1p(-rate)
    if left >= 0.0:
        return -math.inf
    rest = -math.expm1(left)  # P - e^eps Q = (1 - e^eps (1-q)) N(0) - e^eps q N(-1)
    place = noise * noise * (epsilon + math.log(rate) - math.log(rest)) - 0.5
    more = math.log(rest) + log_tail(place / noise)[0]
    return log_less(more, epsilon + math.log(rate) + log_tail((place + 1.0) / noise)[1])


def sampled_replaced(noise: float, rate: float, epsilon: float) -> float:
    """Return the same of (1-q) N(0, z^2) + q N(1, z^2) against (1-q) N(0, z^2) + q N(-1, z^2)."""
    if rate == 1.0:
        return gaussian(2.0 / noise, epsilon)
    # The densities differ by e^eps where w = e^(x/z^2 - eps/2) solves w - 1/w = 2 (1-q)/q e^(1/(2 z^2)) sinh(eps/2).
    odds = math.log1p(-rate) - math.log(rate) + 0.5 / noise / noise
    size = odds + epsilon / 2.0 + _log1m(-epsilon) - math.log(2.0)  # ln of half the right-hand side
    place = noise * noise * (epsilon / 2.0 + _log_sum(size, 0.5 * _log_sum(2.0 * size, 0.0)))
    more = math.log(rate) + log_tail((place - 1.0) / noise)[0]
    unmoved = math.log1p(-rate) + _log_expm1(epsilon) + log_tail(place / noise)[1]
    return log_less(more, _log_sum(unmoved, epsilon + math.log(rate) + log_tail((place + 1.0) / noise)[1]))


def pure(releases: tuple[tuple[float, int], ...], epsilon: float) -> float:
    """Return the same of pure releases, each the worst of its epsilon, by the outcome in which all of them lose all."""
    total = sum(value * count for value, count in releases)
    luck = -sum(count * math.log1p(math.exp(-value)) for value, count in releases)
    return luck + _log1m(epsilon - total) if total > epsilon else -math.inf


def skellam(noise: float, sensitivity: float, count: int, reach: float, epsilon: float) -> float:
    r"""Return the same of ``count`` releases with Skellam noise, by the sum of one coordinate over all of them.

    It has variance v, and moves by s. A tail :math:`P(X \ge y)` is looked at under the law tilted by :math:`\theta =
    \mathrm{arsinh}(y/v)`, which has its mean there and variance :math:`v' = v \cosh\theta`. It is nearly normal, off
    by at most :math:`\kappa = 0.4748/\sqrt{v'}` (Berry & Esseen: infinitely divisible, with jumps of one), so that
    with :math:`w = \theta\sqrt{v'}` and :math:`K(\theta) = v(\cosh\theta - 1)`

    .. math:: e^{\theta y - K(\theta)} P(X \ge y) = e^{w^2/2} (1 - \Phi(w)) \pm 2\kappa .
    """
    whole = math.ceil(sensitivity)
    shift, variance = reach * whole * count, count * (noise * whole) ** 2
    if not 0.0 < variance < math.inf:
        return -math.inf
    best = -math.inf
    for quarter in range(1, 41):  # how far beyond its mean P is looked at, in deviations
        place = 0.25 * quarter * math.sqrt(variance)
        more, less = _skellam_tail(place, variance)[0], _skellam_tail(place + shift, variance)[1]
        best = max(best, log_less(more, epsilon + less))
    return best


def _skellam_tail(place: float, variance: float) -> tuple[float, float]:
    """Return a lower and an upper bound on ln P(X >= place)."""
    theta = math.asinh(place / variance)
    spread = math.hypot(variance, place)  # v cosh(theta)
    w = theta * math.sqrt(spread)
    off = 2.0 * _BERRY_ESSEEN / math.sqrt(spread)
    # Chernoff's exponent; sqrt(v^2 + y^2) - v without the cancellation
    exponent = place * (place / (spread + variance)) - place * theta
    low, high = (math.exp(0.5 * w * w + log) for log in log_tail(w)) if w < _FAR else (0.0, 1.0)
    return exponent + (math.log(low - off) if low > off else -math.inf), exponent + min(0.0, math.log(high + off))


def _log_expm1(x: float) -> float:
    """Return ln(e^x - 1), minus infinity at zero."""
    return x + _log1m(-x)


def _log1m(x: float) -> float:
    """Return ln(1 - e^x) for x <= 0, minus infinity at zero."""
    return math.log(-math.expm1(x)) if x < 0.0 else -math.inf


def _log_sum(a: float, b: float) -> float:
    """Return ln(e^a + e^b)."""
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))
