from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import ConfigError
from tacit.mechanisms.calibration import analytic, extended
from tacit.mechanisms.heterogeneous import Redistribution, sizes, uniform, variance_minimal
from tacit.randomness import Randomness

RISING = Redistribution(dimensions=(1, 1, 1, 1), shares=(0.1, 0.2, 0.3, 0.4))
groups = st.lists(st.tuples(st.integers(1, 500), st.floats(0.05, 20.0)), min_size=1, max_size=6)


def test_known_stds() -> None:
    expected = (1.5663175809743397, 2.2151075659973296, 2.712941631035935, 3.1326351619486794)
    assert RISING.stds(extended(2.0, 1e-5)) == pytest.approx(expected, rel=1e-12)


def test_vectors(vectors: dict[str, Any]) -> None:
    known = vectors["hgm"]
    epsilon, delta, clips = known["eps"], known["delta"], known["per_coord"]
    given_r = Redistribution(dimensions=(1,) * len(known["r"]), shares=tuple(known["r"]))
    sigma = extended(epsilon, delta, known["whitened_sens"])
    assert given_r.stds(sigma) == pytest.approx(known["stds"], rel=1e-12)
    assert uniform([1] * 4).stds(sigma) == pytest.approx(known["uniform"], rel=1e-12)
    stds = given_r.calibrated(epsilon=epsilon, delta=delta, clips=clips, mechanism="extended")
    assert stds == pytest.approx(known["stds_from_per_coord"], rel=1e-12)


def test_even_noise_is_the_ordinary_mechanism() -> None:
    stds = uniform(sizes([(8, 1, 5, 5), (8,)])).calibrated(epsilon=1.0, delta=1e-5, clips=[3.0, 4.0])
    assert stds == pytest.approx((analytic(1.0, 1e-5, 5.0),) * 2, rel=1e-14)


def test_single_coordinates_get_shares_proportional_to_their_sensitivities() -> None:
    assert variance_minimal([1, 1, 1], [2.0, 1.0, 1.0]).shares == pytest.approx((0.5, 0.25, 0.25))


def test_groups_get_variances_proportional_to_clip_over_root_of_dimension() -> None:
    small, large = variance_minimal([4, 100], [1.0, 5.0]).stds(1.0)
    assert (small / large) ** 2 == pytest.approx((1.0 / 2.0) / (5.0 / 10.0))


def _total_variance(redistribution: Redistribution, clips: list[float]) -> float:
    stds = redistribution.stds(redistribution.whitened_sensitivity(clips))
    return sum(size * std * std for size, std in zip(redistribution.dimensions, stds, strict=True))


@settings(deadline=None)
@given(groups=groups, data=st.data())
def test_no_other_redistribution_has_less_total_noise(groups: list[tuple[int, float]], data: st.DataObject) -> None:
    dimensions, clips = [size for size, _ in groups], [clip for _, clip in groups]
    raw = data.draw(st.lists(st.floats(0.01, 1.0), min_size=len(groups), max_size=len(groups)))
    total = math.fsum(size * share for size, share in zip(dimensions, raw, strict=True))
    other = Redistribution(dimensions=tuple(dimensions), shares=tuple(share / total for share in raw))
    best = _total_variance(variance_minimal(dimensions, clips), clips)
    assert best <= _total_variance(other, clips) * (1 + 1e-9)
    assert best <= _total_variance(uniform(dimensions), clips) * (1 + 1e-9)


@settings(deadline=None)
@given(groups=groups, total=st.floats(0.1, 30.0), seed=st.integers(0, 1000))
def test_no_clipped_vector_exceeds_the_whitened_sensitivity(
    groups: list[tuple[int, float]], total: float, seed: int
) -> None:
    dimensions, clips = [size for size, _ in groups], np.array([clip for _, clip in groups])
    redistribution = variance_minimal(dimensions, list(clips))
    bound = redistribution.whitened_sensitivity(list(clips), total=total)
    generator = Randomness.of(seed=seed).stream("norms")
    norms = generator.random((200, len(groups))) ** 0.25 * clips
    norms *= np.minimum(1.0, total / np.linalg.norm(norms, axis=1, keepdims=True))
    whitened = np.sqrt((norms**2 / np.array(redistribution.weights)).sum(axis=1))
    assert whitened.max() <= bound * (1 + 1e-12)
    assert bound <= redistribution.whitened_sensitivity(list(clips))


def test_the_worst_vector_spends_its_norm_where_the_noise_is_least() -> None:
    # weights 0.4, 0.8, 1.2, 1.6: the first group takes 1 of the total 2, the second what is left of the square
    found = RISING.whitened_sensitivity([1.0, 5.0, 5.0, 5.0], total=2.0)
    assert found == pytest.approx(math.sqrt(1.0 / 0.4 + 3.0 / 0.8))
    unbounded = [math.inf] * 4
    assert RISING.whitened_sensitivity(unbounded, total=2.0) == pytest.approx(2.0 / math.sqrt(0.4))


@pytest.mark.parametrize(
    ("dimensions", "shares"),
    [
        ((), ()),
        ((0, 1), (0.5, 1.0)),
        ((1, 1), (0.5, 0.4)),
        ((2, 1), (0.5, 0.5)),
        ((1, 1), (1.5, -0.5)),
        ((1, 1), (1.0, 0.0)),
        ((1, 1), (math.nan, 1.0)),
        ((1, 1), (1.0,)),
    ],
)
def test_a_bad_redistribution_is_refused(dimensions: tuple[int, ...], shares: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="Expected"):
        Redistribution(dimensions=dimensions, shares=shares)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
def test_bad_bounds_are_refused(bad: float) -> None:
    for call in (
        lambda: variance_minimal([3, 3], [1.0, bad]),
        lambda: uniform([3, 3]).whitened_sensitivity([1.0, bad]),
        lambda: uniform([3, 3]).whitened_sensitivity([1.0, 1.0], total=bad),
        lambda: uniform([3, 3]).stds(bad),
    ):
        with pytest.raises(ConfigError, match=r"Expected .*> 0"):
            call()


def test_missing_bounds_are_refused() -> None:
    with pytest.raises(ConfigError, match="each of the 2 groups, got 1"):
        uniform([3, 3]).whitened_sensitivity([1.0])
    with pytest.raises(ConfigError, match="Give total"):
        uniform([3, 3]).whitened_sensitivity([1.0, math.inf])
    with pytest.raises(ConfigError, match="Unknown Gaussian mechanism"):
        uniform([3]).calibrated(epsilon=1.0, delta=1e-5, clips=[1.0], mechanism="none")
    with pytest.raises(ConfigError, match="one or more groups"):
        uniform([])
