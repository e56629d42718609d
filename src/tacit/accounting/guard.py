r"""No epsilon is reported that a lower bound of the same ledger contradicts.

An accountant's value is an upper bound. The guard holds against it what the ledger costs at least: the exact value of
one release and other closed forms, which no grid and no transform has touched, and an optimistic discretisation of all
of them together (``pld/optimistic.py``). The two sides share no grid, no tilt and no sum, so that a mistake in one is
an error that names both values, not a number that looks like any other. From above every value is held against Rényi
bounds: the reported one is the smaller of two, or the exact one, which no Rényi bound may undercut.

The closed forms: whoever tells two data sets apart by a test, "is the outcome beyond x?", proves

.. math:: \delta(\varepsilon) \ge P(x) - e^{\varepsilon} Q(x)

for *every* x; at the x where the densities differ by :math:`e^\varepsilon` it is an equality. So these functions are
exact for one release, and certain even where that x is not met. Leaving out releases, or adding up their outcomes, is
post-processing and can only lose: what holds of a part holds of the whole ledger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tacit.accounting.ledger import Tally
from tacit.errors import AccountingError

if TYPE_CHECKING:
    from tacit.accounting.pld.optimistic import Floor


_ROUNDING = 1e-9  # of epsilon
_HALVINGS = 60
_BERRY_ESSEEN = 0.4748  # Shevtsova 2011
_FAR = 30.0  # deviations beyond which nothing is at stake
_ERFC_ENDS = 25.0  # deviations beyond which erfc is near underflow
_ERFC_ROUNDING = 4e-15  # a few roundings of erfc, and of its argument where its slope is steepest
_LOG_ROOT_2_PI = 0.5 * math.log(2.0 * math.pi)


def check(clients: Sequence[Tally], delta: float, epsilon: float, accountant: str) -> None:
    """Raise an error where ``epsilon`` is certainly less than some client lost at ``delta``, or more than by Rényi.

    Raises:
        AccountingError: two bounds on the same epsilon contradict each other.
    """
    if not math.isfinite(epsilon):
        return
    place = epsilon * (1.0 + _ROUNDING) + 1e-12
    for tally in clients:
        if _exceeded(tally, delta, place, accountant):
            raise AccountingError(
                f"The accountant {accountant} found epsilon {epsilon:.6g} at delta {delta:g} ({tally.neighbours}, "
                f"sampling {tally.sampling}), and the same ledger certainly costs {lower(tally, delta):.6g} or more: "
                "one of the two is wrong. Please report this with the ledger. Nothing is claimed."
            )
    if accountant == "exact-gaussian":
        above = max(_gaussian_renyi(tally.mu, delta) for tally in clients)
        if epsilon > above * (1.0 + _ROUNDING):
            raise AccountingError(
                f"The accountant {accountant} found epsilon {epsilon:.6g} at delta {delta:g}, and its Rényi bound is "
                f"{above:.6g}: one of the two is wrong. Please report this with the ledger. Nothing is claimed."
            )


def lower(tally: Tally, delta: float) -> float:
    """Return a certified lower bound on the epsilon of a ledger: the largest that is known here."""
    if tally.hopeless:
        return math.inf
    found = _closed(tally, delta)
    for means, most in _sides(tally):
        if most > found:
            found = max(found, _floor(tally, means, delta).least())
    return found


def _exceeded(tally: Tally, delta: float, epsilon: float, accountant: str) -> bool:
    """Return whether a ledger certainly costs more."""
    if log_delta(tally, epsilon) > math.log(delta):
        return True
    if accountant == "basic" and not (tally.poisson or tally.fixed or tally.mixed):
        return False  # what adds up needs no other bound than the outcome in which all is lost
    return any(most > epsilon and _floor(tally, means, delta).exceeds(epsilon) for means, most in _sides(tally))


def _sides(tally: Tally) -> list[tuple[tuple[float, float], float]]:
    if not (tally.poisson or tally.fixed or tally.unmixed) or tally.skellam or tally.hopeless:
        return []
    from tacit.accounting.pld import optimistic

    return optimistic.sides(tally)


def _floor(tally: Tally, means: tuple[float, float], delta: float) -> Floor:
    from tacit.accounting.pld import optimistic

    return optimistic.Floor(tally, means, delta)


def _closed(tally: Tally, delta: float) -> float:
    """Return nearly the largest epsilon at which the closed forms exceed ``delta``, or zero."""

    def exceeds(epsilon: float) -> bool:
        return log_delta(tally, epsilon) > math.log(delta)

    low, high = 0.0, 1e-12
    while exceeds(high):
        low, high = high, 2.0 * high
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return low


def _gaussian_renyi(mu: float, delta: float) -> float:
    """Return the Rényi bound on a Gaussian release, at its best order (Mironov 2017)."""
    return 0.5 * mu * mu + mu * math.sqrt(-2.0 * math.log(delta))


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


def log_tail(x: float) -> tuple[float, float]:
    r"""Return a lower and an upper bound on ln P(Z > x) of a normal law.

    Up to 25 deviations :func:`math.erfc` is right to a few roundings. Beyond, the tail over the density is Mills's
    ratio, which lies between neighbouring convergents of its continued fraction (Laplace; Abramowitz & Stegun,
    26.2.14):

    .. math:: \frac{x^3 + 5x}{x^4 + 6x^2 + 3} < \frac{1 - \Phi(x)}{\varphi(x)} < \frac{x^2 + 2}{x^3 + 3x} .

    >>> low, high = log_tail(40.0)
    >>> low < -804.608442013754 < high, high - low < 1e-8
    (True, True)
    """
    if x < _ERFC_ENDS:
        value = math.log(0.5 * math.erfc(x / math.sqrt(2.0)))
        error = _ERFC_ROUNDING * (1.0 + x * x)
        return value - error, min(value + error, 0.0)
    density = -0.5 * x * x - _LOG_ROOT_2_PI
    error = _ERFC_ROUNDING * (1.0 + x * x)
    square = 1.0 / (x * x)  # in powers of 1/x, as x^4 may overflow
    below = (1.0 + 5.0 * square) / (1.0 + square * (6.0 + 3.0 * square))
    above = (1.0 + 2.0 * square) / (1.0 + 3.0 * square)
    return density + math.log(below) - math.log(x) - error, density + math.log(above) - math.log(x) + error


def log_less(more: float, less: float) -> float:
    """Return ln(e^more - e^less), minus infinity where nothing is left."""
    return more + math.log(-math.expm1(less - more)) if more > less else -math.inf
