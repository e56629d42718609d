from __future__ import annotations

import math
from typing import Any

import pytest

from tacit.accounting import accountant
from tacit.accounting.ledger import RunningLedger
from tacit.config.run_config import RunConfig, from_mapping
from tacit.errors import ConfigError
from tacit.federated.plan import Plan, Separated
from tacit.mechanisms.correlated.mechanism import CorrelatedMechanism
from tacit.modes.catalogue import plan_of, resolve


def _plan(*, clients: int = 30, federate: dict[str, Any] | None = None, **dp: Any) -> Plan:
    wanted = {"rounds": 20, "separation": 5} | (federate or {})
    return plan_of(resolve(RunConfig(mode="dp", federate=wanted, dp={"epsilon": 4.0} | dp)), clients)


@pytest.mark.parametrize("kind", ["none", "banded", "toeplitz", "blt"])
@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
@pytest.mark.parametrize("rounds", [20, 18])
def test_a_schedule_costs_its_budget_when_it_is_over_and_not_more(kind: str, neighbours: str, rounds: int) -> None:
    plan = _plan(federate={"rounds": rounds}, correlation=kind, neighbours=neighbours)
    assert plan.claim is not None
    assert plan.claim.by_participation
    ledger = RunningLedger(neighbours=plan.claim.neighbours)
    mechanism, spent = plan.mechanism, [0.0]
    for number in range(1, rounds + 1):
        assert isinstance(plan.sampler, Separated)
        event = plan.claim.event(mechanism.event)  # type: ignore[arg-type]
        ledger.add(event, clients=plan.sampler.asked(number))
        spent.append(accountant.epsilon(ledger.short(), plan.claim.delta).epsilon)
        if isinstance(mechanism, CorrelatedMechanism):
            mechanism = mechanism.on_server(_nothing(), _seeded(), clients=0).mechanism
    assert spent == sorted(spent)
    assert 4.0 * (1 - 1e-6) <= spent[-1] <= 4.0


def test_correlated_noise_is_not_larger_for_the_same_budget() -> None:
    independent, banded = _plan(), _plan(correlation="banded")
    assert isinstance(banded.mechanism, CorrelatedMechanism)
    assert banded.mechanism.gaussian == independent.mechanism


def test_the_kind_of_noise_may_be_named_as_the_noise() -> None:
    config = from_mapping({"mode": "dp", "dp": {"noise": "banded", "epsilon": 4}, "federate": {"separation": 5}})
    assert (config.dp.correlation, config.dp.noise) == ("banded", None)


@pytest.mark.parametrize(
    ("federate", "dp", "words"),
    [
        ({"separation": None}, {"correlation": "banded"}, "needs federate.separation"),
        ({}, {"bands": 3}, "no effect without dp.correlation"),
        ({}, {"buffers": 3}, "no effect without dp.correlation"),
        ({}, {"correlation": "blt", "bands": 3}, "dp.bands=3 has no effect with dp.correlation=blt"),
        ({}, {"correlation": "banded", "buffers": 3}, "dp.buffers=3 has no effect"),
        ({}, {"correlation": "banded", "bands": 6}, "1 to 5 bands"),
        (
            {},
            {"correlation": "banded", "clip": "adaptive", "epsilon": None, "noise": 0.1},
            "adaptive does not work with dp.correlation",
        ),
        ({}, {"correlation": "toeplitz", "denoise": "james-stein"}, "denoise=james-stein does not work"),
        ({}, {"neighbours": "add-remove"}, "the schedule tells who is there"),
        ({"per_round": 3}, {}, "Leave out federate.per_round"),
        ({"sampling": "poisson"}, {}, "Leave out federate.sampling"),
        ({"separation": 31}, {}, "<= clients=30"),
        ({"rounds": 5000}, {"correlation": "banded"}, "up to 4096 rounds"),
    ],
)
def test_what_does_not_hold_is_refused(federate: dict[str, Any], dp: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _plan(federate=federate, **dp)


def test_without_noise_epsilon_is_infinite() -> None:
    plan = _plan(epsilon=None, noise=0.0, correlation="toeplitz")
    assert plan.claim is not None
    ledger = RunningLedger(neighbours="zero-out")
    ledger.add(plan.mechanism.event, clients=[0])  # type: ignore[arg-type]
    assert math.isinf(accountant.epsilon(ledger.short(), 1e-5).epsilon)


def _nothing() -> Any:
    import numpy as np

    return np.zeros(2)


def _seeded() -> Any:
    from tacit.randomness import Randomness

    return Randomness.of(seed=1)
