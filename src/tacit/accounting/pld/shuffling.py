r"""What a trusted shuffler is worth: the privacy loss of one report among n that arrive without their senders.

Every report of an :math:`\varepsilon_0`-locally private client looks, with probability :math:`e^{-\varepsilon_0}`, as
if the client at hand could have sent it whichever of two data sets it has. So the mixed reports tell no more than
(A + B, C - A + 1 - B), where C ~ Bin(n - 1, :math:`e^{-\varepsilon_0}`) reports are such clones, A ~ Bin(C, 1/2) of
them on one side, and B is the client's own side with probability :math:`e^{\varepsilon_0}/(1+e^{\varepsilon_0})`
(Feldman, McMillan & Talwar, "Hiding among the clones", FOCS 2021, theorem 3.2 and its proof; rounds may be adaptive).
That pair of distributions dominates, so its losses compose like any other's.

The paper's closed form, :math:`8\sqrt{e^{\varepsilon_0} \ln(4/\delta)/n}` and so on, is three times as large and holds
for :math:`\varepsilon_0 \le \ln(n/(16\ln(2/\delta)))` only. Outside, it claims less than the truth: at
:math:`\varepsilon_0 = 4`, n = 1000, delta = 1e-5 it gives 2.07, and the clones give 3.89.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.special import gammaln
from scipy.stats import binom

from tacit.accounting.pld.loss import Array, Losses

_BLOCK = 1 << 20  # outcomes at a time
_MOST = 100_000  # more reports hide better, but are accounted as so many: the outcomes grow with their number


def shuffled(epsilon: float, reports: int, *, step: float, tail: float) -> Losses:
    """Return the losses of one of ``reports`` mixed reports on the grid of multiples of ``step``.

    Args:
        epsilon: the cost of a report that is not mixed.
        reports: how many are mixed, the client's own among them.
        step: the step of the grid.
        tail: at most this much of the outcomes is left out, and charged as infinite.
    """
    last = math.ceil(epsilon / step) + 1
    masses = np.zeros(2 * last + 1)
    for mass, loss in _outcomes(epsilon, reports, tail):
        # Between two points of the grid the mass and its counterpart, mass e^-loss, are kept (connecting the dots).
        below = np.floor(loss / step)
        left = mass * np.clip((np.exp(below * step - loss) - math.exp(-step)) / -math.expm1(-step), 0.0, 1.0)
        index = np.clip(below.astype(np.int64) + last, 0, 2 * last - 1)
        masses += np.bincount(index, left, 2 * last + 1) + np.bincount(index + 1, mass - left, 2 * last + 1)
    return Losses(step=step, first=-last, masses=masses, infinite=max(0.0, 1.0 - float(masses.sum())))


def shuffled_cells(epsilon: float, reports: int, *, step: float, tail: float) -> tuple[int, Array, Array]:
    """Return what both distributions have in cells around the multiples of ``step``, and the first of them."""
    last = math.ceil(epsilon / step) + 1
    upper, lower = np.zeros(2 * last + 1), np.zeros(2 * last + 1)
    for mass, loss in _outcomes(epsilon, reports, tail):
        index = np.clip(np.floor(loss / step + 0.5).astype(np.int64) + last, 0, 2 * last)
        upper += np.bincount(index, mass, 2 * last + 1)
        lower += np.bincount(index, mass * np.exp(-loss), 2 * last + 1)
    return -last, upper, lower


def _outcomes(epsilon: float, reports: int, tail: float) -> Iterator[tuple[Array, Array]]:
    """Yield the masses and losses of all outcomes but for ``tail`` of them, a block at a time."""
    reports = min(reports, _MOST)
    clone = math.exp(-epsilon)
    lowest = max(0, int(binom.ppf(tail / 4.0, reports - 1, clone)) - 1)
    others = max(0, int(binom.ppf(tail / 4.0, reports - 1, 1.0 - clone)) - 1)  # the upper end, from the other side:
    highest = reports - 1 - others  # scipy's isf is 1 - ppf and gives up below 1e-16
    reach = int(math.sqrt(-0.5 * (highest + 1.0) * math.log(tail / 4.0))) + 2  # Hoeffding's bound for A, and B
    block = max(1, _BLOCK // (2 * reach + 1))
    for start in range(lowest, highest + 1, block):
        clones = np.arange(start, min(start + block, highest + 1), dtype=np.float64)[:, None]
        side = np.floor(clones / 2.0) + np.arange(-reach, reach + 1, dtype=np.float64)
        yield _masses(clones, side, epsilon, reports)


def _masses(clones: Array, side: Array, epsilon: float, reports: int) -> tuple[Array, Array]:
    """Return the masses and losses of outcomes with ``side`` of ``clones`` + 1 reports on the first side."""
    inside = (side >= 0.0) & (side <= clones + 1.0)
    side = np.clip(side, 0.0, clones + 1.0)
    other = clones + 1.0 - side
    own = 1.0 / (1.0 + math.exp(-epsilon))
    # Bin(a; c, 1/2) and Bin(a - 1; c, 1/2) are both C(c + 1, a)/2^c, times (c + 1 - a)/(c + 1) and a/(c + 1).
    log = gammaln(clones + 2.0) - gammaln(side + 1.0) - gammaln(other + 1.0) - clones * math.log(2.0)
    log += binom.logpmf(clones, reports - 1, math.exp(-epsilon)) - np.log(clones + 1.0)
    first, second = own * side + (1.0 - own) * other, (1.0 - own) * side + own * other
    mass = np.where(inside, np.exp(log) * first, 0.0)
    return mass.ravel(), (np.log(first) - np.log(second)).ravel()
