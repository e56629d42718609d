from __future__ import annotations

import numpy as np
import pytest

from tacit.errors import ConfigError
from tacit.tasks import catalogue
from tacit.tasks.synthetic import CLASSES, load_synthetic


def test_its_name_says_what_it_is() -> None:
    data = catalogue.load("synthetic:300")
    again = load_synthetic(300)
    assert data.name == "synthetic:300"
    assert data.groups is not None
    assert np.array_equal(data.train.features, again.train.features)
    assert np.array_equal(data.train.labels, again.train.labels)
    sizes = np.bincount(data.groups)
    assert len(sizes) == 300
    assert set(sizes.tolist()) == {2, 3, 4, 5, 6}
    assert catalogue.load("synthetic").name == "synthetic"


def test_it_can_be_learned_and_clients_differ() -> None:
    data = load_synthetic(500)
    assert data.groups is not None
    features, labels = data.train.features.astype(np.float64), data.train.labels
    fit = np.linalg.lstsq(features, np.eye(CLASSES)[labels], rcond=None)[0]
    right = float((np.argmax(data.test.features @ fit, axis=1) == data.test.labels).mean())
    assert right > 0.6 > float((data.test.labels == 2).mean()) + 0.1
    means = np.array([features[data.groups == holder].mean(axis=0) for holder in range(500)])
    assert means.std() > 0.6  # 0.5 from around 4 examples alone would be 0.5


@pytest.mark.parametrize(
    "name", ["synthetic:0", "synthetic:99999999", "synthetic:-3", "synthetic:", "digits:3", "synthetic:\u0663"]
)
def test_other_sizes_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="synthetic"):
        catalogue.load(name)
