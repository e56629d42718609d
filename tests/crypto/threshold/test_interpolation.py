from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from tacit.crypto.threshold.combination import weights

indices = st.sets(st.integers(1, 100), min_size=1, max_size=12)


@given(indices, st.lists(st.integers(-(10**9), 10**9), min_size=12, max_size=12))
def test_the_weights_interpolate_every_polynomial_of_low_degree(places: set[int], coefficients: list[int]) -> None:
    used = coefficients[: len(places)]
    common, factors = weights(places)
    values = {i: sum(a * i**power for power, a in enumerate(used)) for i in places}
    assert set(factors) == places
    assert sum(factors[i] * values[i] for i in places) == common * used[0]


@given(indices)
def test_the_common_denominator_is_the_least_and_divides_the_factorial(places: set[int]) -> None:
    common, factors = weights(places)
    assert common > 0
    assert math.factorial(max(places)) % common == 0
    assert math.gcd(common, *factors.values()) == 1


def test_consecutive_numbers_from_one_need_no_denominator() -> None:
    for count in range(1, 30):
        common, factors = weights(range(1, count + 1))
        assert common == 1
        assert factors == {i: (-1) ** (i - 1) * math.comb(count, i) for i in range(1, count + 1)}


def test_the_order_does_not_matter() -> None:
    expected = weights([2, 3, 7])
    assert all(weights(order) == expected for order in itertools.permutations([2, 3, 7]))
