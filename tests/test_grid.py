from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import ConfigError
from tacit.grid import SLACK, Grid, within


@settings(deadline=None, derandomize=True)
@given(bound=st.floats(1e-200, 1e200), size=st.integers(0, 10**10))
def test_rounding_stays_within_what_the_bound_keeps_back(bound: float, size: int) -> None:
    step = Grid.of(bound=bound, size=size).step
    assert math.frexp(step)[0] == 0.5  # a power of two
    room = bound - within(bound)
    assert math.sqrt(size) * step <= room / 2 * (1 + 1e-12)
    assert math.sqrt(max(size, 1)) * step > room / 4 * (1 - 1e-9)  # and no finer than it need be


def test_sum_and_noise_on_the_grid_are_the_noisy_sum_rounded() -> None:
    """Which makes the release a function of the Gaussian mechanism's own."""
    grid = Grid.of(bound=1.0, size=1000)
    generator = np.random.default_rng(1)
    total, standard = grid.rounded(generator.uniform(-50, 50, 1000)), generator.standard_normal(1000)
    assert (total + grid.noise(standard, 3.0) == grid.rounded(total + 3.0 * standard)).mean() > 0.999
    # Where they differ, the double sum was rounded on the way; the sum on the grid is exact.
    assert np.abs(total + grid.noise(standard, 3.0) - grid.rounded(total + 3.0 * standard)).max() <= grid.step


def test_noise_beyond_what_doubles_resolve_is_refused() -> None:
    grid = Grid(step=2.0**-20)
    grid.noise(np.zeros(3), 2.0**29)
    with pytest.raises(ConfigError, match="gaps that would give the sum away"):
        grid.noise(np.zeros(3), 2.0**30)
    with pytest.raises(ConfigError, match="gaps"):
        grid.noise(np.zeros(3), np.array([1.0, math.inf, 1.0]))


@pytest.mark.parametrize("bound", [0.0, math.inf, math.nan, 1e-300])
def test_bounds_without_a_grid(bound: float) -> None:
    with pytest.raises(ConfigError, match="clip bound"):
        Grid.of(bound=bound, size=10)


def test_the_share_is_what_the_documentation_says() -> None:
    assert SLACK == 1 / 65_536
