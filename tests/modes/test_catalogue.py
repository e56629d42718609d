from __future__ import annotations

from typing import Any

import pytest

from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError
from tacit.federated.plan import Everyone, FixedSize, Poisson, Sampler
from tacit.mechanisms.weighted import WeightedMean
from tacit.modes.catalogue import MODES, plan_of, resolve
from tacit.modes.parts import minimum_clients
from tacit.protocols.clear import ClearSum


def _plan(clients: int = 10, **federate: Any) -> Any:
    return plan_of(resolve(RunConfig(federate=federate)), clients)


def test_plain_claims_nothing() -> None:
    plan = _plan()
    assert plan.mode == "plain"
    assert plan.claim is None
    assert plan.mechanism.event is None
    assert isinstance(plan.protocol, ClearSum)


@pytest.mark.parametrize(
    ("federate", "sampler"),
    [
        ({}, Everyone(population=10)),
        ({"per_round": 4}, FixedSize(population=10, size=4)),
        ({"per_round": 10}, Everyone(population=10)),
        ({"sampling": "all", "per_round": 10}, Everyone(population=10)),
        ({"sampling": "fixed"}, FixedSize(population=10, size=10)),
        ({"sampling": "poisson", "per_round": 4}, Poisson(population=10, rate=0.4)),
        ({"sampling": "poisson"}, Poisson(population=10, rate=1.0)),
    ],
)
def test_samplers(federate: dict[str, Any], sampler: Sampler) -> None:
    assert _plan(**federate).sampler == sampler


@pytest.mark.parametrize(
    ("federate", "clients", "minimum"),
    [
        ({}, 10, 5),
        ({}, 11, 6),
        ({}, 1, 1),
        ({}, 2, 2),
        ({}, 3, 2),
        ({"per_round": 1}, 10, 1),
        ({"per_round": 3}, 10, 2),
        ({"minimum_clients": 7}, 10, 7),
        ({"minimum_clients": 1}, 10, 1),
        ({"per_round": 2, "sampling": "poisson"}, 98, 2),  # 2 / 98 * 98 < 2 in floating point
        ({"per_round": 2, "sampling": "poisson", "minimum_clients": 5}, 10, 5),  # a large cohort may come
    ],
)
def test_the_fewest_replies(federate: dict[str, Any], clients: int, minimum: int) -> None:
    plan = _plan(clients, **federate)
    assert plan.protocol.minimum_clients == minimum
    assert minimum_clients(RunConfig(federate=federate), plan.sampler) == minimum


@pytest.mark.parametrize(
    ("federate", "words"),
    [
        ({"per_round": 11}, "federate.per_round=11 is more than the 10 clients"),
        ({"per_round": 4, "sampling": "all"}, "federate.sampling=all contradicts federate.per_round=4"),
        ({"minimum_clients": 11}, "federate.minimum_clients=11 could never be met: a round has 10"),
        ({"per_round": 3, "minimum_clients": 4}, "minimum_clients=4 could never be met: a round has 3"),
    ],
)
def test_what_can_not_be(federate: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _plan(**federate)


def test_unknown_modes_list_the_known() -> None:
    with pytest.raises(ConfigError, match=f"Unknown mode 'quantum'. Modes of this version: {', '.join(MODES)}"):
        plan_of(resolve(RunConfig(mode="quantum")), 10)
    with pytest.raises(ConfigError, match="Did you mean 'plain'"):
        plan_of(resolve(RunConfig(mode="Plan")), 10)


@pytest.mark.parametrize(("key", "value"), [("clip", 1.0), ("noise", 0.0), ("noise", 2.0)])
def test_privacy_options_without_privacy_are_explained(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"dp.{key} has no effect in mode 'plain'"):
        plan_of(resolve(RunConfig(dp={key: value})), 10)


def test_the_servers_settings_arrive() -> None:
    plan = plan_of(
        resolve(RunConfig(server={"name": "fedyogi", "lr": 0.1, "tau": 0.5}, federate={"weighting": "uniform"})), 4
    )
    assert (plan.optimizer.name, plan.optimizer.lr, plan.optimizer.tau, plan.mechanism) == (
        "fedyogi",
        0.1,
        0.5,
        WeightedMean(weighting="uniform"),
    )
