r"""The epsilons of the two reports: the formula, and what the noise costs under each reading of it.

``003_80a3edf6a6b18d18.txt`` quotes epsilons that come out of
:math:`\varepsilon = C \sqrt{2 \ln(1.25/\delta)} / \sigma` at delta 0.001: the classical Gaussian mechanism for one
release of sensitivity C with noise of standard deviation sigma. In ``000_040aa826a603186f.txt`` the noise is meant to
have standard deviation sigma C. Then C cancels, and what counts is :math:`\mu = \sqrt{T}/\sigma` over T rounds, whose
exact cost is :func:`tacit.accounting.profile.epsilon_at` (Balle & Wang 2018).
"""

from __future__ import annotations

import math

from tacit.accounting.profile import epsilon_at

DELTA = 1e-3  # stated in 000; in 003 the one at which the quoted values come out of the formula


def formula(sigma: float, clip: float, delta: float = DELTA) -> float:
    """Return 003's epsilon: sigma is taken as the standard deviation, C as the sensitivity.

    >>> round(formula(0.05, 0.5), 2)
    37.76
    """
    return clip * math.sqrt(2.0 * math.log(1.25 / delta)) / sigma


def tuned(sigma: float, clip: float, delta: float = DELTA) -> float:
    """Return 000's epsilon by its author's dp_tune.py, which takes the logarithm of e to the base 1.25/delta.

    So it divides by the logarithm where :func:`formula` multiplies, and promises 7.13 times less than that.

    >>> round(tuned(0.05, 0.5), 2), round(formula(0.05, 0.5) / tuned(0.05, 0.5), 2)
    (5.3, 7.13)
    """
    return math.sqrt(2.0 * math.log(math.e, 1.25 / delta)) * clip / sigma


def composed(sigma: float, rounds: int, delta: float = DELTA) -> float:
    """Return what ``rounds`` releases cost, each with noise of standard deviation sigma C on sensitivity C.

    >>> round(composed(0.05, 6), 1)
    1350.4
    """
    return epsilon_at(delta, math.sqrt(rounds) / sigma)


def coded(sigma: float, clip: float, delta: float = DELTA, *, tensors: int = 1, rounds: int = 1) -> float:
    """Return what 000's code costs: the variance (sigma C)^2 handed over as the standard deviation.

    Clipping each of several tensors to C by itself makes the sensitivity sqrt(tensors) C. With eight of them, one round
    at C 0.5 and sigma 0.05:

    >>> round(coded(0.05, 0.5, tensors=8) / 1e6, 2)
    2.57
    """
    return epsilon_at(delta, math.sqrt(rounds * tensors) * clip / (sigma * clip) ** 2)
