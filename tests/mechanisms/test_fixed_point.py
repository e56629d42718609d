from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import ConfigError
from tacit.mechanisms.fixed_point import LARGEST_LOSS, BoundedMean
from tacit.mechanisms.mechanism import Release, Work
from tacit.randomness import Randomness

RANDOM = Randomness.of(seed=1)


def _release(mechanism: BoundedMean, works: list[Work]) -> Release:
    vectors = [mechanism.on_client(work, RANDOM) for work in works]
    assert all(len(v) == mechanism.length(len(w.update)) for v, w in zip(vectors, works, strict=True))
    return mechanism.on_server(np.sum(vectors, axis=0, dtype=np.float64), RANDOM)


def _work(update: list[float], examples: int = 1, loss: float = 1.0) -> Work:
    return Work(update=np.array(update, np.float32), examples=examples, loss=loss)


def test_the_mean_is_weighted_by_examples() -> None:
    release = _release(BoundedMean(clip=1.0, weight_cap=30), [_work([0.5, -0.5], 10, 2.0), _work([0.1, 0.3], 30, 1.0)])
    np.testing.assert_allclose(release.update, [0.2, 0.1], rtol=1e-6)
    assert release.train_loss == pytest.approx(1.25)
    assert release.clipped == 0


def test_uniform_weights_ignore_the_examples() -> None:
    release = _release(BoundedMean(clip=1.0, weighting="uniform"), [_work([0.5], 10), _work([0.1], 30)])
    np.testing.assert_allclose(release.update, [0.3], rtol=1e-6)


def test_weights_beyond_the_cap_count_as_the_cap() -> None:
    release = _release(BoundedMean(clip=1.0, weight_cap=10), [_work([0.5], 10), _work([0.1], 1000)])
    np.testing.assert_allclose(release.update, [0.3], rtol=1e-6)


def test_what_is_beyond_the_clip_is_clipped_and_counted() -> None:
    release = _release(BoundedMean(clip=0.25, weight_cap=1), [_work([0.5, -3.0, 0.1]), _work([0.1, 0.25, -0.26])])
    np.testing.assert_allclose(release.update, [0.175, 0.0, -0.075], atol=1e-7)
    assert release.clipped == 3


@given(
    st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=20),
    st.integers(1, 10**6),
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 1e3),
)
def test_every_number_is_within_the_clip(update: list[float], examples: int, loss: float, clip: float) -> None:
    vector = BoundedMean(clip=clip, weight_cap=7).on_client(_work(update, examples, loss), RANDOM)
    assert np.abs(vector).max() <= np.float32(clip)


def test_a_number_that_is_none_stays_so_for_the_protocol_to_refuse() -> None:
    vector = BoundedMean(clip=1.0).on_client(_work([np.nan, 0.0]), RANDOM)
    assert np.isnan(vector[0])


def test_a_huge_loss_is_told_as_the_largest() -> None:
    assert _release(BoundedMean(clip=1.0), [_work([0.0], loss=1e9)]).train_loss == pytest.approx(LARGEST_LOSS)


@pytest.mark.parametrize(
    "settings", [{"clip": 0.0}, {"clip": -1.0}, {"clip": float("nan")}, {"clip": 1.0, "weight_cap": 0}]
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="Expected"):
        BoundedMean(**settings)  # type: ignore[arg-type]
