r"""The exact privacy profile of Gaussian noise, and its inverses.

Noise of standard deviation :math:`s` on a query of L2 sensitivity :math:`D`, in any dimension, is
:math:`(\varepsilon, \delta)`-differentially private if and only if, with :math:`\mu = D/s`,

.. math:: \delta \ge \delta(\varepsilon)
    = \Phi(\mu/2 - \varepsilon/\mu) - e^\varepsilon\, \Phi(-\mu/2 - \varepsilon/\mu)

(Balle & Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018, theorem 8).

Both terms can overflow or cancel, so neither is ever computed. With :math:`u = (\varepsilon/\mu - \mu/2)/\sqrt2` and
:math:`t = (\varepsilon/\mu + \mu/2)/\sqrt2 = \sqrt{u^2 + \varepsilon}`,

.. math:: 2\,\delta(\varepsilon) = e^{-u^2} (\mathrm{erfcx}(u) - \mathrm{erfcx}(t)),
    \qquad \mathrm{erfcx}(x) = e^{x^2} \mathrm{erfc}(x),

and where u and t are close the difference is the integral of the derivative between them. The inverses follow from two
facts: :math:`\log\delta` is concave in :math:`\log\mu` and in :math:`\varepsilon` (both are integrals of log-concave
functions). Newton's method therefore approaches each root from one side, and it is the side with more privacy: less
:math:`\mu`, more :math:`\varepsilon`. A margin above rounding and below 1e-12 keeps it there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist

from tacit.errors import ConfigError

_ROOT_2 = math.sqrt(2.0)
_LOG_2 = math.log(2.0)
_ROOT_2_PI = math.sqrt(2.0 * math.pi)
_ROOT_PI = math.sqrt(math.pi)
_LARGE = 25.0  # erfc underflows soon after; eight terms of the expansion are exact to 1e-17 from here on
_GAUSS_LEGENDRE = (  # the eight nodes on [-1, 1] come in pairs
    (0.1834346424956498, 0.3626837833783620),
    (0.5255324099163290, 0.3137066458778873),
    (0.7966664774136267, 0.2223810344533745),
    (0.9602898564975363, 0.1012285362903763),
)
_MU_MARGIN = 3e-13  # of mu itself, which is well determined everywhere
_EPSILON_MARGIN = 2e-14  # of epsilon and of log delta, because for large delta epsilon is not
_CONVERGED = 1e-14
_HUGE_MU = 1e7
_MOST_STEPS = 100  # six are usual; the limit only matters for arguments so far out that rounding is all there is


def check_epsilon(epsilon: float) -> None:
    """Refuse an epsilon that is negative, infinite or not a number."""
    if not 0.0 <= epsilon < math.inf:
        raise ConfigError(f"Expected a finite epsilon >= 0, got {epsilon}. Common budgets lie between 0.1 and 10.")


def check_delta(delta: float) -> None:
    """Refuse a delta outside the open interval from 0 to 1."""
    if not 0.0 < delta < 1.0:
        raise ConfigError(
            f"Expected 0 < delta < 1, got {delta}. Gaussian noise can't reach 0, and 1 promises nothing; "
            "choose one well below 1 / (number of people), such as 1e-5."
        )


def check_positive(name: str, value: float) -> None:
    """Refuse a value that is zero, negative, infinite or not a number."""
    if not 0.0 < value < math.inf:
        raise ConfigError(f"Expected a finite {name} > 0, got {value}. Give the {name} of the query that is released.")


def log_delta_at(epsilon: float, mu: float) -> float:
    r"""Return :math:`\log \delta(\varepsilon)`, exact where :math:`\delta` itself would underflow.

    >>> round(log_delta_at(2.0, 1 / 20), 6)
    -810.294613
    """
    check_epsilon(epsilon)
    check_positive("mu", mu)
    u, t = _arguments(epsilon, mu)
    if u < -1.0:  # erfcx(u) would overflow further out; the complement of delta is small and has no cancellation
        return math.log1p(-0.5 * math.exp(-u * u) * (erfcx(-u) + erfcx(t)))
    gap = erfcx_gap(u, t, mu / _ROOT_2)
    return math.log(gap) - _LOG_2 - u * u if gap > 0.0 else -math.inf


def delta_at(epsilon: float, mu: float) -> float:
    r"""Return :math:`\delta(\varepsilon)`, the smallest delta for which the noise is private.

    >>> round(delta_at(1.0, 1.0), 12)
    0.126936737507
    """
    return math.exp(log_delta_at(epsilon, mu))


def epsilon_at(delta: float, mu: float) -> float:
    r"""Return the smallest :math:`\varepsilon \ge 0` with :math:`\delta(\varepsilon) \le \delta`, rounded up.

    >>> round(epsilon_at(1e-5, 0.5), 9)
    1.993091404
    """
    check_delta(delta)
    if log_delta_at(0.0, mu) <= math.log(delta):
        return 0.0
    # Leaving out the second term of the profile gives too large an epsilon: the safe side, where Newton wants to start.
    epsilon = max(0.0, mu * (mu / 2.0 + _ROOT_2 * inverse_erfc(2.0 * delta)))
    if mu > _HUGE_MU:  # the second term adds less than 2 / mu^2 of epsilon, and rounding hides it
        return epsilon * (1.0 + _EPSILON_MARGIN)
    aim = math.log(delta) * (1.0 + _EPSILON_MARGIN)
    for _ in range(_MOST_STEPS):
        u, t = _arguments(epsilon, mu)
        now = log_delta_at(epsilon, mu)
        fall = math.exp(math.log(0.5 * erfcx(t)) - u * u - now)
        step = (now - aim) / fall
        epsilon = max(0.0, epsilon + step)
        if step > -_CONVERGED * epsilon:
            break
    return epsilon * (1.0 + _EPSILON_MARGIN)


def largest_mu(epsilon: float, delta: float) -> float:
    r"""Return the largest :math:`\mu` that is :math:`(\varepsilon, \delta)`-private, rounded down.

    >>> round(1 / largest_mu(1.0, 1e-5), 9)
    3.730631635
    """
    check_epsilon(epsilon)
    check_delta(delta)
    aim = math.log(delta)
    # Two values that are private: the profile is at most its density times mu, and at most its first term (Zhao's
    # mechanism 1). The larger is never far from the largest.
    mu = delta * _ROOT_2_PI
    if epsilon > 0.0:
        x = inverse_erfc(2.0 * delta)
        root = math.hypot(x, math.sqrt(epsilon))
        mu = max(mu, _ROOT_2 * (root - x) if x < 0.0 else _ROOT_2 * epsilon / (root + x))
    for _ in range(_MOST_STEPS):
        u, _ = _arguments(epsilon, mu)
        now = log_delta_at(epsilon, mu)
        rise = math.exp(math.log(mu / _ROOT_2_PI) - u * u - now)
        if rise == 0.0:  # beyond what floats tell apart, as at an epsilon of 1e38: what is private already will do
            break
        step = (aim - now) / rise
        mu *= math.exp(step)
        if step < _CONVERGED:
            break
    return mu * (1.0 - _MU_MARGIN)


def std(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    r"""Return the smallest standard deviation that is :math:`(\varepsilon, \delta)`-private, rounded up.

    >>> round(std(1.0, 1e-5, 2.0), 9)
    7.46126327
    """
    check_positive("sensitivity", sensitivity)
    return sensitivity / largest_mu(epsilon, delta)


def composed_mu(mus: Iterable[float]) -> float:
    r"""Return :math:`\sqrt{\sum \mu_i^2}`: several Gaussian releases are exactly as private as this single one.

    For T equal rounds it is :math:`\sqrt{T}\,\mu`, that is, the noise of one round divided by :math:`\sqrt{T}` (Dong,
    Roth & Su, "Gaussian differential privacy", 2022).

    >>> composed_mu([3.0, 4.0])
    5.0
    """
    values = list(mus)
    for value in values:
        check_positive("mu", value)
    if not values:
        raise ConfigError("Expected at least one mu to compose, got none. Without a release nothing is spent.")
    return math.hypot(*values)


def inverse_erfc(value: float) -> float:
    r"""Return the x with :math:`\mathrm{erfc}(x)` equal to the value, which lies between 0 and 2.

    >>> round(math.erfc(inverse_erfc(1e-5)), 18)
    1e-05
    """
    return -NormalDist().inv_cdf(0.5 * value) / _ROOT_2


def _arguments(epsilon: float, mu: float) -> tuple[float, float]:
    return (epsilon / mu - mu / 2.0) / _ROOT_2, (epsilon / mu + mu / 2.0) / _ROOT_2


def erfcx(x: float) -> float:
    r"""Return :math:`e^{x^2} \mathrm{erfc}(x)` for x >= -25, to about 15 digits.

    It needs nothing but :mod:`math`: loading SciPy's special functions takes longer than a user should wait for an
    epsilon. For large x, with :math:`y = 1/2x^2`, the function and its descent follow from one expansion (Abramowitz &
    Stegun, 7.1.23): :math:`\tau(y) = 1 - \sqrt\pi\, x\, \mathrm{erfcx}(x) = y(1 - 3y(1 - 5y(1 - \cdots)))`.

    >>> round(erfcx(1.0), 15), round(erfcx(1e6) * 1e6, 15)
    (0.427583576155807, 0.564189583547474)
    """
    if x >= _LARGE:
        return (1.0 - _expansion(x)) / (x * _ROOT_PI)
    # The exponential would magnify the rounding of x^2, so x is split: the first part has an exact square.
    first = round(x * 65536.0) / 65536.0
    return math.exp(first * first) * (math.exp((x - first) * (x + first)) * math.erfc(x))


def erfcx_gap(u: float, t: float, width: float) -> float:
    """Return erfcx(u) - erfcx(t), where t = u + width and -1 <= u; t - u itself would have lost its digits.

    Values that lie close together are not subtracted: the derivative is integrated between them.

    >>> round(erfcx_gap(0.0, 1e-20, 1e-20) * 1e20, 12)
    1.128379167096
    """
    if width > 0.25 * (1.0 + abs(u)):
        return erfcx(u) - erfcx(t)
    middle, half = 0.5 * (u + t), 0.5 * width
    return half * math.fsum(
        weight * (_descent(middle - half * node) + _descent(middle + half * node)) for node, weight in _GAUSS_LEGENDRE
    )


def _descent(x: float) -> float:
    """Return minus the derivative of erfcx, 2 / sqrt(pi) - 2 x erfcx(x)."""
    if x >= _LARGE:
        return 2.0 / _ROOT_PI * _expansion(x)
    return 2.0 / _ROOT_PI - 2.0 * x * erfcx(x)


def _expansion(x: float) -> float:
    y = 0.5 / (x * x)
    bracket = 1.0
    for odd in (17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0):
        bracket = 1.0 - odd * y * bracket
    return y * bracket
