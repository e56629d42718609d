r"""Bounds on the tail of a normal law, certain on either side.

Up to 25 deviations :func:`math.erfc` is right to a few roundings. Beyond, the tail over the density is Mills's ratio,
which lies between neighbouring convergents of its continued fraction (Laplace; Abramowitz & Stegun, 26.2.14):

.. math:: \frac{x^3 + 5x}{x^4 + 6x^2 + 3} < \frac{1 - \Phi(x)}{\varphi(x)} < \frac{x^2 + 2}{x^3 + 3x} .
"""

from __future__ import annotations

import math

_FAR = 25.0
_ROUNDING = 4e-15  # a few roundings of erfc, and of its argument where its slope is steepest
_LOG_ROOT_2_PI = 0.5 * math.log(2.0 * math.pi)


def log_tail(x: float) -> tuple[float, float]:
    """Return a lower and an upper bound on ln P(Z > x).

    >>> low, high = log_tail(40.0)
    >>> low < -804.608442013754 < high, high - low < 1e-8
    (True, True)
    """
    if x < _FAR:
        value = math.log(0.5 * math.erfc(x / math.sqrt(2.0)))
        error = _ROUNDING * (1.0 + x * x)
        return value - error, min(value + error, 0.0)
    density = -0.5 * x * x - _LOG_ROOT_2_PI
    error = _ROUNDING * (1.0 + x * x)
    square = 1.0 / (x * x)  # in powers of 1/x, as x^4 may overflow
    below = (1.0 + 5.0 * square) / (1.0 + square * (6.0 + 3.0 * square))
    above = (1.0 + 2.0 * square) / (1.0 + 3.0 * square)
    return density + math.log(below) - math.log(x) - error, density + math.log(above) - math.log(x) + error


def log_less(more: float, less: float) -> float:
    """Return ln(e^more - e^less), minus infinity where nothing is left."""
    return more + math.log(-math.expm1(less - more)) if more > less else -math.inf
