from __future__ import annotations

import numpy as np
import pytest

from tacit.federated import contribution


def test_the_average_is_weighted() -> None:
    updates = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    weights, losses = [60, 5, 35], [1.0, 2.0, 4.0]
    packed = [contribution.pack(u, weight=w, loss=x) for u, w, x in zip(updates, weights, losses, strict=True)]
    assert all(len(vector) == contribution.length(5) and vector.dtype == np.float32 for vector in packed)
    average = contribution.average(np.sum(packed, axis=0, dtype=np.float64))
    np.testing.assert_allclose(average.update, np.average(updates, axis=0, weights=weights), rtol=1e-5, atol=1e-6)
    assert average.weight == 100.0
    assert average.loss == pytest.approx(np.average(losses, weights=weights))
    assert average.update.dtype == np.float32


def test_the_update_is_left_as_it_was() -> None:
    update = np.ones(2, np.float32)
    contribution.pack(update, weight=7, loss=1.0)
    assert update.tolist() == [1.0, 1.0]
