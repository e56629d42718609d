from __future__ import annotations

import numpy as np
import pytest

from tacit.vectors import clipped, finite, first_not_finite, norm


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
