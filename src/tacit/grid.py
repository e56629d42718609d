r"""Noise that floating point does not give away: sums and noise on one grid.

The mathematics of noise is about real numbers. The sum of two floats is rounded by an amount that depends on both, so
the set of floats that sum plus noise can reach depends on the sum, and the last bits of a release may rule inputs out
(Mironov, "On significance of the least significant bits for differential privacy", 2012). Here the sum and the noise
are rounded to multiples of one power of two g before they are added:

.. math:: \mathrm{round}_g(s) + \mathrm{round}_g(n) = \mathrm{round}_g(\mathrm{round}_g(s) + n).

Both summands are integers times g, so the release is a function of an integer whose law is that of a Gaussian shifted
by an integer and rounded: every integer can be reached from every sum. What is done with it later, a division or fewer
digits, sees no more than the integer.

Rounding may bring two sums of length d apart by :math:`\sqrt d\, g`. The grid is so fine that this is at most half of
:data:`SLACK` times the bound, and what is bounded is bounded by :func:`within` it: nothing more is charged.

What remains is the law of the noise itself: logarithm and cosine are computed in double precision (a relative error of
:math:`2^{-52}`), and numbers beyond 8.6 standard deviations never come (a probability of 1e-17 each).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError

SLACK = 2.0**-16  # the share of a bound that is kept back for rounding: half for the grid, half for adding up
_WIDEST = 2.0**49  # standard deviations in steps: noise of nine of them is still a whole number of steps
_FINEST = 2.0**-900


def within(bound: float) -> float:
    """Return the bound less what rounding may add.

    >>> within(1.0)
    0.9999847412109375
    """
    return bound * (1.0 - SLACK)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Multiples of a power of two.

    >>> Grid.of(bound=1.0, size=4).step == 2.0**-18
    True
    >>> Grid(step=0.25).rounded(np.array([0.3, -0.9, 2.0]))
    array([ 0.25, -1.  ,  2.  ])
    """

    step: float  # g

    @classmethod
    def of(cls, *, bound: float, size: int) -> Grid:
        """Return the grid for sums of ``size`` numbers to which a unit adds a vector of norm at most ``bound``."""
        largest = 0.5 * SLACK * bound / math.sqrt(max(size, 1))
        if not _FINEST < largest < math.inf:
            raise ConfigError(f"Expected a clip bound that floating point can divide, got {bound}. 1.0 is common.")
        return cls(step=math.ldexp(0.5, math.frexp(largest)[1]))

    def rounded(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the nearest points of the grid."""
        found = np.asarray(values, np.float64) / self.step
        np.rint(found, out=found)
        found *= self.step
        return found

    def noise(self, standard: NDArray[np.float64], std: float | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return standard normal numbers times ``std``, rounded to the grid."""
        self.check(std)
        return self.rounded(standard * std)

    def check(self, std: float | NDArray[np.float64]) -> None:
        """Refuse noise of which some numbers would lie between those of double precision."""
        widest = float(np.max(std, initial=0.0))
        if not widest <= _WIDEST * self.step:
            raise ConfigError(
                f"Expected noise of a standard deviation up to {_WIDEST * self.step:.3g}, got {widest:.3g}: beyond it "
                "floating point has gaps that would give the sum away. Lower the noise multiplier."
            )


def fixed_point(*, clip: float, bits: int) -> tuple[int, float]:
    """Return the largest integer and the step by which floats in [-clip, clip] are written with ``bits`` bits each.

    >>> fixed_point(clip=1.0, bits=3)
    (3, 0.3333333333333333)
    """
    if not 2 <= bits <= 52:
        raise ConfigError(f"Expected bits={bits} between 2 and 52.")
    if not (math.isfinite(clip) and clip > 0):
        raise ConfigError(f"Expected clip={clip} to be a finite number above 0.")
    bound = (1 << (bits - 1)) - 1
    step = clip / bound
    if step * bound < clip:  # by rounding: the clip itself must not be beyond the clip
        step = math.nextafter(step, math.inf)
    return bound, step
