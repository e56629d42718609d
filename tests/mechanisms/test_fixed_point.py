from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.crypto.paillier import Layout
from tacit.errors import ConfigError, SpoiledError
from tacit.mechanisms.fixed_point import LARGEST_LOSS, BoundedMean
from tacit.mechanisms.mechanism import Release, Work
from tacit.randomness import Randomness

RANDOM = Randomness.of(seed=1)


def _release(mechanism: BoundedMean, works: list[Work]) -> Release:
    vectors = [mechanism.on_client(work, RANDOM) for work in works]
    assert all(len(v) == mechanism.length(len(w.update)) for v, w in zip(vectors, works, strict=True))
    return mechanism.on_server(np.sum(vectors, axis=0, dtype=np.float64), RANDOM, clients=len(vectors))


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
    "settings",
    [
        {"clip": 0.0},
        {"clip": -1.0},
        {"clip": float("nan")},
        {"clip": 1.0, "weight_cap": 0},
        {"clip": 1.0, "rounding": 1.0},
        {"clip": 1.0, "rounding": -0.1},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="Expected"):
        BoundedMean(**settings)  # type: ignore[arg-type]


# Clients that lie


def _sum(mechanism: BoundedMean, honest: list[Work], lies: list[list[float]]) -> Release:
    vectors = [mechanism.on_client(work, RANDOM).astype(np.float64) for work in honest]
    vectors += [np.array(lie) * mechanism.clip for lie in lies]
    assert all(np.abs(vector).max() <= mechanism.clip for vector in vectors)  # all are within the range of the slots
    return mechanism.on_server(np.sum(vectors, axis=0), RANDOM, clients=len(vectors))


FOUR = [_work([0.02, 0.02], 1, 1.0) for _ in range(4)]


def test_a_negative_weight_does_not_blow_the_mean_up() -> None:
    """One liar of five, every number within the clip: it moved the mean from 0.02 to 5.12 per coordinate."""
    light = BoundedMean(clip=1.0, weight_cap=4)  # the honest ones weigh a quarter each
    lie = [1.0, 1.0, -0.8, 0.0, 0.0]
    with pytest.raises(
        SpoiledError, match=r"a coordinate of 5\.1 times the clip in the mean, expected 1 at most.*lied"
    ):
        _sum(light, FOUR, [lie])


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ([0.0, 0.0, -1.0, 0.0, 0.0], r"a weight of 0, expected more than"),
        ([0.0, 0.0, -1.0 + 1e-7, 0.0, 0.0], r"a weight of 1e-07, expected more than 1.2e-06"),
        ([1.0, 0.0, -0.5, 0.0, 0.0], r"a coordinate of 2.04 times the clip"),
        ([-1.0, 0.0, -0.5, 0.0, 0.0], r"a coordinate of 1.96 times the clip"),
        ([0.0, 0.0, -0.5, 1.0, 0.0], r"a mean loss of 34, expected 16 at most"),
        ([0.0, 0.0, -0.5, -1.0, 0.0], r"a mean loss of -30, expected 16 at most"),
        ([0.0, 0.0, 0.0, 0.0, -0.5], r"-0.5 vectors' worth of clipped numbers, expected 0 to 5"),
        ([np.nan, 0.0, 0.0, 0.0, 0.0], r"a coordinate of nan times"),
        ([0.0, 0.0, np.nan, 0.0, 0.0], r"a weight of nan"),
    ],
)
def test_sums_that_no_honest_clients_give_are_refused(lie: list[float], words: str) -> None:
    light = BoundedMean(clip=1.0, weight_cap=4)
    vectors = [light.on_client(work, RANDOM).astype(np.float64) for work in FOUR] + [np.array(lie)]
    with pytest.raises(SpoiledError, match=words):
        light.on_server(np.sum(vectors, axis=0), RANDOM, clients=5)


@pytest.mark.parametrize(
    ("total", "words"),
    [
        ([0.0, 5.1, 0.0, 0.0], "a weight of 5.1, expected more than .* and at most 5"),
        ([0.0, -3.0, 0.0, 0.0], "a weight of -3"),
        ([0.0, 2.0, 0.0, 5.1], "5.1 vectors' worth"),
    ],
)
def test_more_than_all_clients_is_refused(total: list[float], words: str) -> None:
    with pytest.raises(SpoiledError, match=words):
        BoundedMean(clip=1.0).on_server(np.array(total), RANDOM, clients=5)


@pytest.mark.parametrize("weight", [-1.0, 0.0, 0.99, 0.99999])
def test_where_all_count_alike_any_other_weight_is_refused(weight: float) -> None:
    even = BoundedMean(clip=0.5, weighting="uniform")
    with pytest.raises(SpoiledError, match=r"a weight of .*, expected 5:"):
        _sum(even, FOUR, [[0.0, 0.0, weight, 0.0, 0.0]])
    moved = _sum(even, FOUR, [[1.0, -1.0, 1.0, 0.0, 0.0]]).update  # a lie that an honest client could have told
    assert np.abs(moved - np.float32(0.016)).max() <= 0.5 / 5 + 1e-6


@settings(deadline=None, max_examples=150)
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from([-3.0, -1.0, -0.999999, 0.0, 1e-9, 0.3, 1.0, 2.0]), min_size=2, max_size=2),
            st.integers(1, 40),
            st.floats(-50, 50),
        ),
        min_size=1,
        max_size=30,
    ),
    st.integers(8, 40),
    st.sampled_from([1e-4, 0.3, 1.0, 700.0]),
    st.sampled_from(["examples", "uniform"]),
)
def test_honest_sums_are_never_refused(
    told: list[tuple[list[float], int, float]], bits: int, clip: float, weighting: str
) -> None:
    """Through the very rounding that encryption has; all at the clip, with equal signs, is as far as it goes."""
    layout = Layout.floats(length=5, clip=clip, bits=bits, summands=len(told), key_bits=2048)
    mechanism = BoundedMean(clip=clip, weighting=weighting, weight_cap=40, rounding=layout.error(1))  # type: ignore[arg-type]
    works = [_work([clip * value for value in update], 10 + examples, loss) for update, examples, loss in told]
    rows = [layout.encode(mechanism.on_client(work, RANDOM))[0] for work in works]
    sums = np.sum([layout.sums(row, 1) for row in rows], axis=0)
    release = mechanism.on_server(np.asarray(layout.worth(sums), np.float64), RANDOM, clients=len(works))
    assert np.abs(release.update).max() <= np.float32(clip)
    assert release.train_loss is not None
    assert abs(release.train_loss) <= LARGEST_LOSS
    weights = np.array([min(work.examples / 40, 1.0) if weighting == "examples" else 1.0 for work in works])
    exact = np.average([np.clip(work.update, -clip, clip) for work in works], axis=0, weights=weights)
    allowed = 2 * len(works) * layout.error(1) / weights.sum() * 1.1 + 1e-6 * clip
    assert np.abs(release.update - exact).max() <= allowed
