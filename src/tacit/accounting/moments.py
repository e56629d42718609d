r"""Epsilon of Poisson samples by Rényi differential privacy: a second opinion that knows no grid and no transform.

With :math:`t = q e^{(2x-1)/2z^2}` the moments of one release, removed against kept, are

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

from tacit.accounting.ledger import Tally
from tacit.accounting.renyi import Array, bound, pure
from tacit.errors import ConfigError

_WHOLE = np.unique(np.concatenate([np.arange(1, 65), np.round(np.geomspace(64, 4096, 120))]))
_ORDERS: Array = np.unique(
    np.concatenate([1.0 + np.geomspace(1e-7, 1.0, 113), np.arange(2.0, 32.0, 0.125), _WHOLE[1:].astype(float)])
)


def epsilon(tally: Tally, delta: float) -> float:
    """Return epsilon at ``delta`` of Poisson samples, Gaussian and pure releases together.

    Raises:
        ConfigError: the ledger has Skellam noise.
    """
    if tally.skellam:
        raise ConfigError("This ledger has Skellam noise, which is accounted by rdp-skellam.")
    total = 0.5 * _ORDERS * (_ORDERS - 1.0) * tally.mu**2
    for group in tally.poisson:
        moments = _log_moments(group.noise_multiplier, group.rate, tally.neighbours == "replace-one")
        total = total + group.count * moments
    for value, count in tally.unmixed:
        total = total + count * pure(_ORDERS, value) * (_ORDERS - 1.0)
    return bound(_ORDERS, total, delta)


@functools.lru_cache(maxsize=64)
def _log_moments(noise: float, rate: float, replaced: bool) -> Array:
    """Return a bound on (order - 1) times the divergence of one release at every order."""
    full = 0.5 * _ORDERS * (_ORDERS - 1.0) / noise / noise
    if replaced:
        doubled = 0.5 * (_at_whole(2.0 * _WHOLE, noise, rate) + _at_whole(2.0 * _WHOLE - 1.0, noise, rate))
        doubled[0] = 0.0  # at order one the divergence counts for nothing
        return np.minimum(np.interp(_ORDERS, _WHOLE, doubled), 4.0 * full)
    chord = np.interp(_ORDERS, _WHOLE, _at_whole(_WHOLE, noise, rate))
    low = _ORDERS[_ORDERS <= 2.0]
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
