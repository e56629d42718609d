r"""Epsilon by Rényi differential privacy: of ledgers with Skellam noise, and of Poisson samples as a second opinion.

Rényi divergences of independent releases add up at every order :math:`\alpha > 1`, and a total of :math:`\rho(\alpha)`
is :math:`(\varepsilon, \delta)`-differentially private with

.. math:: \varepsilon = \min_\alpha \rho(\alpha) + \log\frac{\alpha - 1}{\alpha} - \frac{\log \delta\alpha}{\alpha - 1}

(Mironov 2017; Canonne, Kamath & Steinke, "The discrete Gaussian for differential privacy", 2020, proposition 12).

*Skellam noise.* The bound is proved at whole orders. In between, the chord is one: :math:`(\alpha - 1) \rho(\alpha)`
is the logarithm of a moment generating function, hence convex, and zero at order one.

*Poisson samples*, without a grid or a transform. With :math:`t = q e^{(2x-1)/2z^2}` the moments of one release, removed
against kept, are

.. math:: A_\alpha = E\left[(1 - q + t)^\alpha\right] = \sum_k \binom{\alpha}{k} (1-q)^{\alpha-k} q^k e^{k(k-1)/2z^2}

at whole orders, and the other direction has no larger ones (Mironov, Talwar & Zhang 2019). :math:`\ln A_\alpha` is
convex in :math:`\alpha` and zero at one, so between whole orders the chord is a bound. Below order two a sharper one
for little noise follows from :math:`(a + b)^\alpha \le a^\alpha + \alpha a^{\alpha-1} b + b^\alpha`. Where one unit
replaces another, Cauchy and Schwarz give :math:`\tfrac12 (\ln A_{2\alpha} + \ln A_{2\alpha-1})`, by way of the data
without either, and leaving out the amplification gives :math:`2\alpha(\alpha-1)/z^2`.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from tacit.accounting.ledger import Tally
from tacit.errors import ConfigError

Array = NDArray[np.float64]

_MARGIN = 1e-12  # of epsilon: above what the sums round off
# Steps of 1/32 up to 32, then whole orders 0.5% apart: halfway between two of them epsilon is 1e-5 above its minimum.
_FINE = np.arange(1.0 + 1.0 / 32.0, 32.0, 1.0 / 32.0)
_WIDE = np.unique(np.floor(np.geomspace(32.0, 1e9, 3500)))
_SKELLAM: Array = np.concatenate([_FINE, _WIDE])
_BELOW, _ABOVE = np.floor(_SKELLAM), np.ceil(_SKELLAM)
_WHOLE = np.unique(np.concatenate([np.arange(1, 65), np.round(np.geomspace(64, 4096, 120))]))
_SAMPLED: Array = np.unique(
    np.concatenate([1.0 + np.geomspace(1e-7, 1.0, 113), np.arange(2.0, 32.0, 0.125), _WHOLE[1:].astype(float)])
)


def skellam(orders: Array, *, noise_multiplier: float, sensitivity: float, reach: float = 1.0) -> Array:
    r"""Return the Rényi bound of Skellam noise at whole orders (Agarwal, Kairouz & Liu 2021, corollary 3.6).

    With L2 sensitivity :math:`D_2`, L1 sensitivity :math:`D_1` and variance m,

    .. math:: \rho(\alpha) = \frac{\alpha D_2^2}{2m} + \min\left(\frac{(2\alpha-1) D_2^2 + 6 D_1}{4m^2},
        \frac{3 D_1}{2m}\right).

    Here :math:`m = (zD)^2`. A change of the data moves the sum by one vector of norm D, or by the difference of two:
    :math:`D_2 = rD` and, integers having :math:`|x| \le x^2`, :math:`D_1 \le r D^2`, with r the ``reach`` 1 or 2.
    """
    inverse = (1.0 / noise_multiplier) * (1.0 / noise_multiplier)  # D^2/m
    quarter = inverse / sensitivity / sensitivity / 4.0  # 1/(4m)
    close = ((2.0 * orders - 1.0) * reach**2 + 6.0 * reach) * inverse * quarter
    bound: Array = orders * (reach**2 * inverse / 2.0) + np.minimum(close, 1.5 * reach * inverse)
    return bound


def pure(orders: Array, epsilon: float) -> Array:
    """Return the Rényi divergence of randomized response, the worst epsilon-DP release (Kairouz et al. 2015)."""
    # With p/(1-p) = e^epsilon: log(p e^((a-1) epsilon) + (1-p) e^(-(a-1) epsilon)) / (a-1), without overflow.
    steps = orders - 1.0
    loss: Array = (
        epsilon + np.log1p(np.exp(-epsilon) * np.expm1(-2.0 * steps * epsilon) / (1.0 + math.exp(-epsilon))) / steps
    )
    return loss


def skellam_epsilon(tally: Tally, delta: float) -> float:
    """Return epsilon at ``delta`` of Skellam, Gaussian and pure releases together.

    Raises:
        ConfigError: the ledger has Poisson samples, whose amplification is not accounted here.
    """
    if tally.poisson:
        raise ConfigError(
            "This ledger has Poisson samples, and rdp-skellam knows no amplification by sampling. Keep releases with "
            "Skellam noise and sampled ones in ledgers of their own, and add up their epsilons and deltas."
        )
    with np.errstate(over="ignore", invalid="ignore"):
        below, above = _scaled(tally, _BELOW), _scaled(tally, _ABOVE)
    if not math.isfinite(above[-1]):  # noise that is next to none
        return math.inf
    return bound(_SKELLAM, below + (_SKELLAM - _BELOW) * (above - below), delta)


def bound(orders: Array, scaled: Array, delta: float) -> float:
    """Return the smallest epsilon over all orders, given ``(order - 1) * divergence`` at each."""
    bounds = (scaled - math.log(delta) - np.log(orders)) / (orders - 1.0) + np.log1p(-1.0 / orders)
    return max(0.0, float(bounds.min()) * (1.0 + _MARGIN))


def _scaled(tally: Tally, orders: Array) -> Array:
    """Return ``(order - 1) * divergence`` of everything at whole orders; 0 at order one."""
    steps = orders - 1.0
    total = 0.5 * orders * tally.mu**2 * steps
    for (noise, sensitivity), count in tally.skellam:
        curve = skellam(orders, noise_multiplier=noise, sensitivity=sensitivity, reach=tally.reach)
        total = total + count * curve * steps
    for value, count in tally.unmixed:
        at = np.maximum(orders, 2.0)  # the curve divides by the step; at order one the product is zero anyway
        total = total + count * np.where(orders > 1.0, pure(at, value) * (at - 1.0), 0.0)
    return total


def sampled_epsilon(tally: Tally, delta: float) -> float:
    """Return epsilon at ``delta`` of Poisson samples, Gaussian and pure releases together.

    Raises:
        ConfigError: the ledger has Skellam noise.
    """
    if tally.skellam:
        raise ConfigError("This ledger has Skellam noise, which is accounted by rdp-skellam.")
    total = 0.5 * _SAMPLED * (_SAMPLED - 1.0) * tally.mu**2
    for group in tally.poisson:
        moments = _log_moments(group.noise_multiplier, group.rate, tally.neighbours == "replace-one")
        total = total + group.count * moments
    for value, count in tally.unmixed:
        total = total + count * pure(_SAMPLED, value) * (_SAMPLED - 1.0)
    return bound(_SAMPLED, total, delta)


@functools.lru_cache(maxsize=64)
def _log_moments(noise: float, rate: float, replaced: bool) -> Array:
    """Return a bound on (order - 1) times the divergence of one release at every order."""
    full = 0.5 * _SAMPLED * (_SAMPLED - 1.0) / noise / noise
    if replaced:
        doubled = 0.5 * (_at_whole(2.0 * _WHOLE, noise, rate) + _at_whole(2.0 * _WHOLE - 1.0, noise, rate))
        doubled[0] = 0.0  # at order one the divergence counts for nothing
        return np.minimum(np.interp(_SAMPLED, _WHOLE, doubled), 4.0 * full)
    chord = np.interp(_SAMPLED, _WHOLE, _at_whole(_WHOLE, noise, rate))
    low = _SAMPLED[_SAMPLED <= 2.0]
    terms = (
        low * math.log1p(-rate),
        np.log(low) + (low - 1.0) * math.log1p(-rate) + math.log(rate),
        low * math.log(rate) + full[: low.size],
    )
    chord[: low.size] = np.minimum(chord[: low.size], np.logaddexp(np.logaddexp(terms[0], terms[1]), terms[2]))
    return np.minimum(chord, full)


def _at_whole(orders: Array, noise: float, rate: float) -> Array:
    """Return ln A at whole orders."""
    found = np.empty(orders.size)
    for place, order in enumerate(orders):
        k = np.arange(order + 1.0)
        # ln binomial(order, k), as a running sum: exact to the last digits where it matters, near k = 0
        binomial = np.concatenate([[0.0], np.cumsum(np.log(order - k[:-1]) - np.log(k[1:]))])
        exponents = binomial + (order - k) * math.log1p(-rate) + k * math.log(rate) + k * (k - 1.0) / 2.0 / noise**2
        largest = exponents.max()
        found[place] = largest + math.log(float(np.exp(exponents - largest).sum()))
    return np.maximum(found, 0.0)
