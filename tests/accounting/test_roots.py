from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tacit.accounting.roots import bracket_up, first_at_most_zero


@pytest.mark.parametrize(
    ("f", "low", "high", "root"),
    [
        (lambda x: 1.0 - x, 0.0, 5.0, 1.0),
        (lambda x: math.exp(-x) - 1e-9, 0.0, 100.0, 9 * math.log(10)),
        (lambda x: 1.0 if x < 0.3 else -1.0, 0.0, 1.0, 0.3),
        (lambda x: 1e-3 if x < 2e-12 else -1e9, 0.0, 1.0, 2e-12),
        (lambda x: -math.inf if x >= 0.7 else 1.0, 0.0, 1.0, 0.7),
        (lambda x: 1.0 - x**31, 0.0, 40.0, 1.0),
    ],
)
@pytest.mark.parametrize("relative", [1e-13, 1e-6, 1e-3])
def test_the_answer_is_just_past_the_crossing(
    f: Callable[[float], float], low: float, high: float, root: float, relative: float
) -> None:
    calls = []

    def counted(x: float) -> float:
        calls.append(x)
        return f(x)

    found = first_at_most_zero(counted, low, high, relative=relative)
    assert f(found) <= 0.0
    assert root * (1 - 1e-12) <= found <= root * (1 + 2 * relative)
    assert len(calls) < 250


def test_brackets_grow_until_they_hold_or_give_up() -> None:
    assert bracket_up(lambda x: 5.0 - x, 1.0) == 8.0
    assert bracket_up(lambda x: 1.0, 1.0) is None
