from __future__ import annotations

import math
from typing import Any

import pytest

from tacit.accounting import accountant
from tacit.accounting.calibration import calibrate
from tacit.accounting.uniform_run import uniform_run
from tacit.errors import ConfigError
from tests.accounting.common import vectors


@pytest.mark.parametrize(
    ("epsilon", "rate", "rounds", "noise"),
    [
        (1.0, 0.01, 1_000, 1.4146309),
        (8.0, 0.1, 100, 0.9359251),
        (2.0, 0.1, 100, 2.2477117),
        (1.0, 1.0, 100, 37.30631635),
    ],
)
def test_known_noise(epsilon: float, rate: float, rounds: int, noise: float) -> None:
    found = calibrate(epsilon=epsilon, delta=1e-5, rate=rate, rounds=rounds)
    assert found.noise_multiplier == pytest.approx(noise, rel=1e-5)
    assert found.cost.epsilon <= epsilon


def test_the_vectors() -> None:
    for row in vectors("calibrate_pld"):
        found = calibrate(epsilon=row["eps"], delta=row["delta"], rate=row["q"], rounds=row["T"])
        if "sigma_exact" in row:
            assert found.noise_multiplier == pytest.approx(row["sigma_exact"], rel=1e-12)
        else:
            assert found.noise_multiplier == pytest.approx(row["sigma_google"], rel=1e-5)


def test_the_reference_agrees_that_it_is_enough() -> None:
    found = calibrate(epsilon=1.0, delta=1e-5, rate=0.05, rounds=50)
    made = uniform_run(noise_multiplier=found.noise_multiplier, rate=0.05, rounds=50)
    assert 0.999 < accountant.epsilon(made, 1e-5, accountant="pld-google").epsilon <= 1.0


@pytest.mark.parametrize(
    "asked",
    [
        {"epsilon": 0.1, "delta": 1e-6, "rate": 0.01, "rounds": 10},
        {"epsilon": 20.0, "delta": 1e-5, "rate": 0.2, "rounds": 30},
        {"epsilon": 2.0, "delta": 1e-5, "rate": 0.1, "rounds": 50, "neighbours": "replace-one"},
        {"epsilon": 3.0, "delta": 1e-5, "rounds": 7, "neighbours": "replace-one"},
        {"epsilon": 3.0, "delta": 1e-5, "rate": 0.01, "rounds": 150, "sampling": "shuffle"},
        {"epsilon": 3.0, "delta": 1e-5, "rate": 0.1, "rounds": 5, "sampling": "fixed", "neighbours": "add-remove"},
        {"epsilon": 3.0, "delta": 1e-5, "rate": 0.01, "rounds": 5, "sampling": "fixed", "neighbours": "zero-out"},
        {"epsilon": 3.0, "delta": 1e-5, "rate": 0.1, "rounds": 20, "sampling": "shuffle", "neighbours": "add-remove"},
        {"epsilon": 3.0, "delta": 1e-5, "rate": 0.1, "rounds": 20, "neighbours": "zero-out"},
        {"epsilon": 3.0, "delta": 1e-5, "rate": 0.3, "rounds": 10, "accountant": "pld"},
        {"epsilon": 3.0, "delta": 1e-5, "rounds": 10, "accountant": "rdp"},
    ],
    ids=str,
)
def test_enough_and_hardly_more(asked: dict[str, Any]) -> None:
    found = calibrate(**asked)
    assert found.cost.epsilon <= asked["epsilon"]
    run = {name: value for name, value in asked.items() if name not in ("epsilon", "delta", "accountant")}
    less = uniform_run(noise_multiplier=found.noise_multiplier * (1 - 3e-4), **run)
    assert accountant.epsilon(less, asked["delta"], accountant=asked.get("accountant")).epsilon > asked["epsilon"]


def test_a_sample_rarer_than_delta_needs_next_to_no_noise() -> None:
    found = calibrate(epsilon=1.0, delta=0.1, rate=0.001)
    assert found.noise_multiplier < 0.01
    assert found.cost.epsilon <= 1.0


def test_the_relation_of_a_fixed_set_is_replacement() -> None:
    assert uniform_run(noise_multiplier=1.0, sampling="fixed").neighbours == "replace-one"
    assert uniform_run(noise_multiplier=1.0, sampling="fixed", neighbours="add-remove").neighbours == "add-remove"
    assert uniform_run(noise_multiplier=1.0, sampling="shuffle").neighbours == "zero-out"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": 0.0}, "epsilon above 0"),
        ({"epsilon": math.nan}, "epsilon above 0"),
        ({"epsilon": math.inf}, "epsilon above 0"),
        ({"delta": 0.0}, "between 0 and 1"),
        ({"delta": 1.0}, "between 0 and 1"),
        ({"rounds": 0}, "1 round or more"),
        ({"rate": 0.0}, "sampling rate"),
        ({"rate": 1.5}, "sampling rate"),
        ({"sampling": "dice"}, "Unknown sampling"),
        ({"neighbours": "swap"}, "Unknown neighbours"),
        ({"accountant": "gdp", "rate": 0.5}, "Unknown accountant"),
    ],
    ids=str,
)
def test_bad_input(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        calibrate(**{"epsilon": 1.0, "delta": 1e-5, **change})
