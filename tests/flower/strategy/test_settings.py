from __future__ import annotations

from typing import Any

import pytest

from tacit.errors import ConfigError
from tacit.flower import Private
from tacit.flower.strategy.settings import from_run, from_text, given, plan, to_text
from tacit.mechanisms.fixed_point import BoundedMean
from tacit.parties.hello import Numbers
from tests.flower.common import quiet

NUMBERS = Numbers(clients=100, per_round=10, rounds=5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "Which protection.*plain, dp, local-dp, paillier"),
        ({"mode": "dp-sgd"}, "make_private.*client_app"),
        ({"mode": "pailler"}, "Unknown mode 'pailler'. Did you mean 'paillier'"),
        ({"mode": "dp", "dp": {"noize": 1.0}}, "Unknown key 'dp.noize'"),
        ({"mode": "plain", "optimizer": {"lr": 0.1}}, "optimizer.lr has no effect here"),
        ({"mode": "plain", "federate": {"sampling": "poisson"}}, "federate.sampling has no effect"),
        ({"mode": "dp", "dpsgd": {"noise": 1.0}}, "dpsgd.noise has no effect"),
        ({"mode": "nbafl"}, "nbafl.smallest has to be set"),
        ({"mode": "dp", "config": {"tacit.mode": "dp"}}, "got both"),
        ({"config": {"mode": "dp"}}, "no key under tacit."),
        ({"config": {"tacit.dp.noise": 1.0}}, "no tacit.mode"),
    ],
)
def test_settings_that_do_not_work(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Private(quiet(), **settings)


def test_only_what_was_set_travels_and_neither_folders_nor_keys() -> None:
    sections = {"paillier": {"keys": "shared", "key": "/secret/key", "weight_cap": 3}, "out": "/runs/1", "seed": 4}
    config = given(mode="paillier", sections=sections)
    text = to_text(config)
    assert text == '{"mode": "paillier", "paillier.keys": "shared", "paillier.weight_cap": 3, "seed": 4}'
    read = from_text(text)
    assert (read.paillier.keys, read.paillier.key, read.out, read.seed) == ("shared", None, None, 4)


def test_a_runs_config_in_dotted_keys() -> None:
    config = from_run({"tacit.mode": "DP", "tacit.dp.noise": 2, "local-epochs": 1})
    assert config is not None
    assert (config.mode, config.dp.noise) == ("dp", 2.0)
    assert from_run({"lr": 0.1}) is None


def test_the_plan_of_dp_knows_a_rounds_clients_only() -> None:
    made = plan('{"mode": "dp", "dp.noise": 1.0}', NUMBERS)
    assert made.claim is not None
    assert made.claim.rate == 1.0
    assert made.claim.neighbours == "replace-one"
    assert made.sampler.expected == 10
    everyone = plan('{"mode": "dp", "dp.noise": 1.0}', Numbers(clients=10, per_round=10, rounds=5)).claim
    assert everyone is not None
    assert everyone.neighbours == "add-remove"


def test_other_plans_have_room_for_more_clients_than_a_round_asks() -> None:
    made = plan('{"mode": "paillier", "paillier.weight_cap": 5}', NUMBERS)
    assert made.sampler.expected == 10
    layout = made.protocol.layout(4, 2048)  # type: ignore[attr-defined]
    assert layout.summands == min(100, round(10 + 12 * 10**0.5))
    with pytest.raises(ConfigError, match=r"minimum_clients=11 could never be met"):
        plan('{"mode": "plain", "federate.minimum_clients": 11}', NUMBERS)


def test_encrypted_weights_need_no_number_that_nobody_knows() -> None:
    mechanism = plan('{"mode": "paillier"}', NUMBERS).mechanism
    assert isinstance(mechanism, BoundedMean)
    assert mechanism.weight_cap == 10_000
