"""Where a falling function crosses zero, answered on the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable

_STEPS = 400  # bisection alone needs about 60 for all the bits of a float; the rest is for huge brackets


def first_at_most_zero(f: Callable[[float], float], low: float, high: float, *, relative: float = 1e-13) -> float:
    """Return ``x`` in ``[low, high]`` with ``f(x) <= 0`` that lies within ``relative`` of the crossing.

    The function falls, ``f(low) > 0`` and ``f(high) <= 0``. Secant steps with the Illinois weighting; each aims half a
    tolerance past the crossing, on the side that did not move last, so that the bracket closes from both sides. Every
    third step bisects if the bracket has not halved, which keeps the worst case logarithmic. The upper end of the last
    bracket is returned, never the lower one: who asks for a privacy loss or for noise never gets too little.

    >>> round(first_at_most_zero(lambda x: 2.0 - x * x, 0.0, 2.0), 12) == round(math.sqrt(2.0), 12)
    True
    """
    above, below = f(low), f(high)
    width, side = high - low, 0.0
    for step in range(_STEPS):
        tolerance = max(relative * abs(high), 1e-300)
        if high - low <= tolerance:
            break
        guess = low + 0.5 * (high - low)
        slow = step % 3 == 2 and high - low > 0.5 * width
        if step % 3 == 2:
            width = high - low
        if not slow and math.isfinite(above - below) and above > below:
            aimed = high + below * (high - low) / (above - below) + side * 0.5 * tolerance
            guess = min(max(aimed, low + 0.25 * tolerance), high - 0.25 * tolerance)
        if not low < guess < high:
            break
        value = f(guess)
        if value <= 0.0:
            high, below = guess, value
            above = above / 2.0 if side < 0.0 else above
            side = -1.0
        else:
            low, above = guess, value
            below = below / 2.0 if side > 0.0 else below
            side = 1.0
    return high


def bracket_up(f: Callable[[float], float], start: float, *, factor: float = 2.0, limit: float = 1e308) -> float | None:
    """Return the first of ``start, start * factor, ...`` where ``f`` is not positive, or None past ``limit``."""
    x = start
    while x <= limit:
        if f(x) <= 0.0:
            return x
        x *= factor
    return None
