from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.errors import SpoiledError
from tacit.mechanisms.mechanism import Work
from tacit.mechanisms.weighted import WeightedMean, Weighting
from tacit.randomness import Randomness

RANDOMNESS = Randomness.of(seed=1)


def test_the_mean_is_weighted_by_examples() -> None:
    updates = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    weights, losses = [60, 5, 35], [1.0, 2.0, 4.0]
    mechanism = WeightedMean()
    vectors = [
        mechanism.on_client(Work(update=u, examples=w, loss=x), RANDOMNESS)
        for u, w, x in zip(updates, weights, losses, strict=True)
    ]
    assert all(len(vector) == mechanism.length(5) and vector.dtype == np.float32 for vector in vectors)
    release = mechanism.on_server(np.sum(vectors, axis=0, dtype=np.float64), RANDOMNESS, clients=len(vectors))
    np.testing.assert_allclose(release.update, np.average(updates, axis=0, weights=weights), rtol=1e-5, atol=1e-6)
    assert release.train_loss == pytest.approx(np.average(losses, weights=weights))
    assert release.update.dtype == np.float32
    assert release.mechanism == mechanism.with_state(mechanism.public_state()) == mechanism


def test_uniform_weights_count_everyone_once() -> None:
    mechanism = WeightedMean(weighting="uniform")
    vector = mechanism.on_client(Work(update=np.ones(2, np.float32), examples=7, loss=3.0), RANDOMNESS)
    assert vector.tolist() == [1.0, 1.0, 1.0, 3.0]


def test_the_update_is_left_as_it_was() -> None:
    update = np.ones(2, np.float32)
    WeightedMean().on_client(Work(update=update, examples=7, loss=1.0), RANDOMNESS)
    assert update.tolist() == [1.0, 1.0]
    assert WeightedMean().event is None


@pytest.mark.parametrize(
    ("weighting", "weight"), [("examples", 0.0), ("examples", -3.0), ("examples", math.nan), ("uniform", 1.5)]
)
def test_a_weight_that_no_honest_clients_have_is_refused(weighting: Weighting, weight: float) -> None:
    with pytest.raises(SpoiledError, match=r"a weight of .*, expected .*: one of them lied"):
        WeightedMean(weighting=weighting).on_server(np.array([1.0, weight, 1.0]), RANDOMNESS, clients=2)
