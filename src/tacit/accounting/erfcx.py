r"""The scaled complementary error function :math:`\mathrm{erfcx}(x) = e^{x^2}\mathrm{erfc}(x)`, and differences of it.

The Gaussian profile rests on these two functions. They need nothing but :mod:`math`: loading SciPy's special functions
takes longer than a user should wait for an epsilon.

For large x, with :math:`y = 1/2x^2`, both follow from one expansion (Abramowitz & Stegun, 7.1.23):

.. math:: \tau(y) = 1 - \sqrt\pi\, x\, \mathrm{erfcx}(x) = y(1 - 3y(1 - 5y(1 - \cdots)))
"""

from __future__ import annotations

import math

_ROOT_PI = math.sqrt(math.pi)
_LARGE = 25.0  # erfc underflows soon after; eight terms of the expansion are exact to 1e-17 from here on
_GAUSS_LEGENDRE = (  # the eight nodes on [-1, 1] come in pairs
    (0.1834346424956498, 0.3626837833783620),
    (0.5255324099163290, 0.3137066458778873),
    (0.7966664774136267, 0.2223810344533745),
    (0.9602898564975363, 0.1012285362903763),
)


def erfcx(x: float) -> float:
    """Return the function for x >= -25, to about 15 digits.

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
