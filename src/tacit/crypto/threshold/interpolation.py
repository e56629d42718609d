"""Interpolation at zero with whole numbers only, since nobody can divide by what they want in a secret exponent."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction


def weights(indices: Iterable[int]) -> tuple[int, dict[int, int]]:
    r"""Return the least D > 0 and the whole :math:`\mu_i` with :math:`\sum_i \mu_i f(i) = D f(0)`.

    This holds for every polynomial f of a degree below the number of indices, with
    :math:`\mu_i = D \prod_{j \ne i} j / (j - i)` (Lagrange). D divides the factorial of the largest index
    (Shoup 2000, lemma 1), and is mostly much smaller.

    >>> weights([1, 2, 3])
    (1, {1: 3, 2: -3, 3: 1})
    >>> weights([1, 3, 5])
    (8, {1: 15, 3: -10, 5: 3})
    """
    places = sorted(indices)
    exact = {i: math.prod((Fraction(j, j - i) for j in places if j != i), start=Fraction(1)) for i in places}
    common = math.lcm(*(weight.denominator for weight in exact.values()))
    return common, {i: int(weight * common) for i, weight in exact.items()}
