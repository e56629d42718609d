from __future__ import annotations

import pytest

from tacit.config.run_config import RunConfig
from tacit.modes.budget import EPSILON, budgeted


@pytest.mark.parametrize(
    "config",
    [
        RunConfig(mode="dp"),
        RunConfig(mode="local-dp"),
        RunConfig(mode="dp-sgd"),
        RunConfig(mode="paillier", paillier={"dp": True}),
    ],
    ids=lambda config: config.mode,
)
def test_a_mode_without_a_budget_is_given_one_and_says_so(config: RunConfig) -> None:
    given, note = budgeted(config)
    assert given.dp.epsilon == EPSILON
    assert note is not None
    assert f"{config.mode}: dp.epsilon=8" in note


@pytest.mark.parametrize(
    "config",
    [
        RunConfig(),
        RunConfig(mode="paillier"),
        RunConfig(mode="signds"),
        RunConfig(mode="dp", dp={"noise": 1.0}),
        RunConfig(mode="dp", dp={"epsilon": 2.0}),
        RunConfig(mode="dp-sgd", dpsgd={"epsilon": 2.0}),
    ],
)
def test_what_has_a_budget_or_needs_none_is_left_alone(config: RunConfig) -> None:
    assert budgeted(config) == (config, None)
