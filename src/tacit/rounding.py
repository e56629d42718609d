"""Epsilons for people: a bound is rounded to the side on which it stays true."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

_ROUNDING = 1e-9  # of epsilon: what a budget that is spent to the last may be exceeded by in floats


def epsilon_text(value: float, *, digits: int = 3) -> str:
    """Return an epsilon, which is a bound: rounded up, so that nobody reads less than is true.

    >>> epsilon_text(0.37725), epsilon_text(1350.42), epsilon_text(2.57e6), epsilon_text(float("inf"))
    ('0.378', '1,351', '2.57e+06', 'infinite')
    >>> epsilon_text(4.88046, digits=4), epsilon_text(8.0000000001), epsilon_text(0.0)
    ('4.881', '8', '0')
    """
    if value == math.inf:
        return "infinite"
    least = value * (1.0 - _ROUNDING)
    if 999.0 < least <= 999_999.0:
        return f"{math.ceil(least):,}"
    up = Context(prec=digits, rounding=ROUND_CEILING).create_decimal_from_float(least)
    return f"{float(up):.{digits}g}"


def bound_text(value: float, *, digits: int = 3) -> str:
    """Return a lower bound on an epsilon, rounded down, so that nobody reads more than was shown.

    >>> bound_text(0.37775), bound_text(1350.9), bound_text(float("inf"))
    ('0.377', '1.35e+03', 'infinite')
    """
    if value == math.inf:
        return "infinite"
    down = Context(prec=digits, rounding=ROUND_FLOOR).create_decimal_from_float(value)
    return f"{float(down):.{digits}g}"
