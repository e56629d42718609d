from __future__ import annotations

import math
import re

import pytest

import tacit
from tacit.config.run_config import RunConfig
from tacit.federated.examples import ExampleLevel
from tacit.mechanisms.gaussian import GaussianMechanism, LocalGaussianMechanism
from tacit.mechanisms.weighted import WeightedMean
from tacit.modes.catalogue import plan_of, resolve
from tacit.modes.outlook import examples_ratio, ratio, warning
from tacit.modes.settings import suited

CNN, LINEAR = 21_840, 39_700


def _warning(config: RunConfig, parameters: int) -> str | None:
    resolved = resolve(config)
    assert resolved.federate.clients is not None
    return warning(plan_of(resolved, resolved.federate.clients), resolved, parameters=parameters)


def test_three_clients_of_a_deep_model_are_told_before_they_train() -> None:
    said = _warning(RunConfig(mode="dp", model={"name": "cnn"}, federate={"clients": 3}, dp={"epsilon": 8.0}), CNN)
    assert said is not None
    assert "times as long as all that its clients can add" in said
    assert "features before noise" in said


@pytest.mark.parametrize("mode", ["dp", "local-dp", "paillier"])
def test_what_a_mode_chooses_itself_is_not_warned_of(mode: str) -> None:
    config = suited(RunConfig(mode=mode, paillier={"dp": mode == "paillier"}))[0]
    scales = resolve(config).data.scatter_scales
    assert _warning(config, LINEAR if scales == 2 else 19_540) is None


@pytest.mark.parametrize("mode", ["dp", "local-dp"])
def test_each_piece_of_advice_is_enough_by_itself(mode: str) -> None:
    config = RunConfig(mode=mode, model={"name": "cnn"}, federate={"clients": 10}, dp={"epsilon": 4.0})
    said = _warning(config, CNN)
    assert said is not None
    patterns = (r"([\d.,]+) times as many clients with", r"epsilon ([\d.e+]+)", r"at most ([\d,]+) parameters")
    found = [re.search(pattern, said) for pattern in patterns]
    times, epsilon, *most = (float(one[1].replace(",", "")) for one in found if one is not None)
    for more in (
        {"federate": config.federate.model_copy(update={"clients": math.ceil(10 * times)})},
        {"dp": config.dp.model_copy(update={"epsilon": epsilon})},
    ):
        assert _warning(config.model_copy(update=more), CNN) is None
    assert bool(most) == (mode == "dp")  # in mode local-dp it would be a model of a parameter or two
    assert all(size < 100 or _warning(config, int(size)) is None for size in most)  # coarse where there are few


def test_more_rounds_of_the_same_noise_and_more_clients_help_and_no_noise_needs_none() -> None:
    few = GaussianMechanism(clip_bound=1.0, noise_multiplier=2.0, expected_clients=10)
    many = GaussianMechanism(clip_bound=1.0, noise_multiplier=2.0, expected_clients=100)
    local = LocalGaussianMechanism(clip_bound=1.0, noise_multiplier=2.0, expected_clients=100)
    assert [ratio(one, parameters=100, rounds=4) for one in (few, many, local)] == [1.0, 10.0, 1.0]
    assert ratio(few, parameters=100, rounds=16) == 2.0
    silent = GaussianMechanism(clip_bound=1.0, noise_multiplier=0.0, expected_clients=10)
    assert ratio(silent, parameters=100, rounds=1) == math.inf
    assert ratio(WeightedMean(weighting="uniform"), parameters=100, rounds=1) is None


def test_a_step_of_dp_sgd_is_a_batch_against_its_noise() -> None:
    level = ExampleLevel(delta=1e-5, clip=1.0, noise=2.0, batch_size=10, steps=4, rounds=1)
    assert examples_ratio(level.fitted([50, 50]), parameters=200, rounds=1) == pytest.approx(1.0)


def test_a_run_that_drowns_says_so_and_its_errors_name_the_noise() -> None:
    config = RunConfig(
        mode="dp", data="digits", model="mlp", federate={"clients": 3, "rounds": 1}, dp={"noise": 1000.0}, seed=1
    )
    assert any("The noise of this run" in note for note in tacit.run(config).notes)
    wild = config.model_copy(update={"server": config.server.model_copy(update={"lr": 1e38})})
    with pytest.raises(tacit.TacitError, match=r"The noise of this run is .* times as long"):
        tacit.run(wild)
