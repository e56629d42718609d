"""Where a falling function crosses zero, answered on the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable

_STEPS = 400  # bisection alone needs about 60 for all the bits of a float; the rest is for huge brackets


def first_at_most_zero(f: Callable[[float], float], low: float, high: float, *, relative: float = 1e-13) -> float:
    """Return ``x`` in ``[low, high]`` with ``f(x) <= 0`` that lies within ``relative`` of the crossing.

    The function falls, ``f(low) > 0`` and ``f(high) <= 0``. Secant steps with the Illinois weighting, and a bisection
    whenever the bracket did not halve, so that the worst case stays logarithmic. The upper end of the last bracket is
    returned, never the lower one: a caller who asks for a privacy loss or for noise never gets too little.

    >>> round(first_at_most_zero(lambda x: 2.0 - x * x, 0.0, 2.0), 12) == round(math.sqrt(2.0), 12)
    True
    """
    below, above = f(high), f(low)
    for _ in range(_STEPS):
        if high - low <= relative * abs(high) or high - low < 1e-300:
            break
        width = high - low
        for secant in (True, False):
            middle = low + 0.5 * (high - low)
            if secant and math.isfinite(above) and math.isfinite(below) and above > below:
                guess = high + below * (high - low) / (above - below)
                # A step onto an end makes no progress; stay one tolerance inside, which also closes the bracket.
                inside = 0.25 * relative * abs(high)
                middle = min(max(guess, low + inside), high - inside) if high - low > 4 * inside else middle
            if not low < middle < high:
                break
            value = f(middle)
            if value <= 0.0:
                high, below, above = middle, value, above / 2 if secant else above
            else:
                low, above, below = middle, value, below / 2 if secant else below
            if high - low <= 0.5 * width:
                break
    return high


def bracket_up(f: Callable[[float], float], start: float, *, factor: float = 2.0, limit: float = 1e308) -> float | None:
    """Return the first of ``start, start * factor, ...`` where ``f`` is not positive, or None past ``limit``."""
    x = start
    while x <= limit:
        if f(x) <= 0.0:
            return x
        x *= factor
    return None
