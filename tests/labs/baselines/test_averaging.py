"""The sources' own noisy averages: what they do, and that they claim nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.config import run_config
from tacit.errors import ConfigError
from tacit.modes.catalogue import MODES, plan_of, resolve
from tacit.randomness import Randomness
from tacit.runs.result import Result
from tacit.runs.run import run
from tacit.studies.plan import with_values
from tacit_labs.baselines import averaging

BASE: dict[str, Any] = {
    "seed": 1,
    "data": {"name": "digits"},
    "model": {"name": "logistic"},
    "federate": {"rounds": 1, "clients": 4, "weighting": "uniform"},
    "server": {"lr": 1.0},
}


def _ran(**how: Any) -> Result:
    with averaging.known():
        return run(run_config.from_mapping(with_values(BASE, averaging.settings(**how))))


def test_without_a_bound_and_noise_it_is_the_plain_mean() -> None:
    plain = run(run_config.from_mapping(BASE))
    ours = _ran(clip=1e6, std=0.0, per_tensor=True)
    assert ours.test_accuracy == plain.test_accuracy
    assert ours.rounds[0].train_loss == pytest.approx(plain.rounds[0].train_loss)


def test_everyone_clipped_goes_nowhere_and_one_unclipped_does() -> None:
    start = run(run_config.from_mapping(with_values(BASE, {"optimizer.lr": 1e-9})))
    bound = _ran(clip=1e-6, std=0.0, per_tensor=True)
    free = _ran(clip=1e-6, std=0.0, per_tensor=True, but_the_first=True)
    assert start.test_accuracy is not None
    assert free.test_accuracy is not None
    assert bound.test_accuracy == start.test_accuracy
    assert free.test_accuracy > start.test_accuracy + 0.1


def test_noise_has_the_standard_deviation_that_was_asked_for() -> None:
    config = run_config.from_mapping(with_values(BASE, averaging.settings(clip=0.01, std=0.3, per_tensor=True)))
    with averaging.known():
        mechanism = plan_of(resolve(config), 4).mechanism
    assert isinstance(mechanism, averaging.NoisyMean)
    assert mechanism.std == pytest.approx(0.3)


def test_one_number_per_tensor_is_the_same_for_all_of_its_weights() -> None:
    mechanism = averaging.NoisyMean(weighting="uniform", std=2.0, per_tensor=True, alike=True, layers=(3, 2))
    total = np.array([0.0] * 5 + [1.0, 0.5])
    update = mechanism.on_server(total, Randomness.of(seed=1), clients=1).update
    assert len(set(update[:3].tolist())) == len(set(update[3:].tolist())) == 1
    assert update[0] != update[3]
    apart = averaging.NoisyMean(weighting="uniform", std=2.0, per_tensor=True, layers=(3, 2))
    assert len(set(apart.on_server(total, Randomness.of(seed=1), clients=1).update.tolist())) == 5
    with pytest.raises(ConfigError, match="unclipped only"):
        averaging.settings(clip=1.0, std=1.0, per_tensor=True, alike=True)


def test_nothing_is_claimed() -> None:
    modes = {averaging.ALL, averaging.BUT_THE_FIRST, averaging.ALIKE}
    with averaging.known():
        assert modes <= set(MODES)
    assert not modes & set(MODES)
    result = _ran(clip=0.5, std=0.1, per_tensor=False)
    assert result.rounds[-1].epsilon is None


@pytest.mark.parametrize("sizes", [[3, 3], [6]])
def test_parts_are_clipped_by_themselves_and_weight_and_loss_are_left(sizes: list[int]) -> None:
    vector = np.array([3.0, 4.0, 0.0, 0.1, 0.0, 0.0, 1.0, 7.0], np.float32)
    bounded = averaging.clipped(vector, 1.0, sizes)
    parts = np.split(bounded, np.cumsum(sizes))
    assert all(np.linalg.norm(part) <= 1.0 + 1e-6 for part in parts[:-1])
    assert bounded[-2:].tolist() == [1.0, 7.0]
    assert (bounded[3] == np.float32(0.1)) == (len(sizes) == 2)


def test_a_standard_deviation_is_a_number() -> None:
    with pytest.raises(ConfigError, match="standard deviation"):
        averaging.settings(clip=1.0, std=float("nan"), per_tensor=True)
