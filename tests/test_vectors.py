from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.vectors import ExactSum, clipped, finite, first_not_finite, norm, scaled

_LONG = (1 << 20) + 3  # one block and a few numbers


def test_a_norm_is_accumulated_in_float64() -> None:
    assert norm(np.full(4, 3e30, np.float32)) == pytest.approx(6e30, rel=1e-6)
    assert norm(np.zeros(0, np.float32)) == 0.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [0, 3, 6])
def test_the_first_bad_coordinate_is_named(bad: float, where: int) -> None:
    vector = np.ones(7, np.float32)
    vector[where] = bad
    vector[6] = bad
    assert first_not_finite(vector) == where


def test_extremes_are_finite() -> None:
    largest = np.finfo(np.float32).max
    assert first_not_finite(np.array([largest, -largest, 0.0], np.float32)) is None


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_has_no_direction_is_clipped_to_zero(bad: float) -> None:
    vector = np.array([3e38, bad, 1.0], np.float32)
    result, within = clipped(vector, 1.0)
    assert (result.tolist(), within) == ([0.0, 0.0, 0.0], False)
    assert result.dtype == np.float32
    assert finite(vector).tolist() == [0.0, 0.0, 0.0]


def test_a_finite_vector_stays_as_it_is() -> None:
    vector = np.array([3e38, -3e38], np.float32)
    assert finite(vector) is vector
    assert norm(clipped(vector, 1.0)[0]) <= 1.0


def test_long_vectors_are_gone_over_in_blocks_up_to_the_last_number() -> None:
    vector = np.zeros(_LONG, np.float32)
    vector[0], vector[-1] = 3.0, 4.0
    assert norm(vector) == 5.0
    result, within = clipped(vector, 1.0)
    assert not within
    assert result[[0, 1, -2, -1]] == pytest.approx([0.6, 0.0, 0.0, 0.8])
    assert norm(result) <= 1.0
    assert np.array_equal(scaled(vector, 1.0, 3.0), (vector.astype(np.float64) / 3.0).astype(np.float32))


_NUMBERS = st.floats(-1e6, 1e6, width=32).map(lambda x: 0.0 if abs(x) < 1e-9 else x)  # within a factor of 2^50


@given(st.lists(_NUMBERS, min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_a_sum_is_rounded_once_whatever_the_order(numbers: list[float], order: object) -> None:
    shuffled = list(numbers)
    order.shuffle(shuffled)  # type: ignore[attr-defined]  # a Random, which Hypothesis does not say
    for some in (numbers, shuffled):
        total = ExactSum(1)
        for number in some:
            total.add(np.array([number], np.float32))
        assert total.value()[0] == math.fsum(numbers)


def test_a_long_sum_reaches_every_number() -> None:
    length = (1 << 15) + 1
    total = ExactSum(length)
    for number in (1e20, 0.25, -1e20):
        total.add(np.full(length, number, np.float32))
    assert np.array_equal(total.value(), np.full(length, 0.25))
