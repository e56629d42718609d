"""Faults that others have shipped, planted one by one: the audit finds each, and says nothing of the code as it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from torch import nn

from tacit.audit import examples, replay
from tacit.audit.audit import Effort, Finding, audit
from tacit.config.run_config import RunConfig
from tacit.federated import round as rounds
from tacit.federated.plan import FixedSize, Plan, Poisson
from tacit.mechanisms import gaussian, nbafl
from tacit.mechanisms.gaussian import AdaptiveClip, GaussianMechanism
from tacit.mechanisms.mechanism import Mechanism, Release
from tacit.mechanisms.skellam import SkellamMechanism
from tacit.modes.catalogue import plan_of, resolve
from tacit.protocols.clear import ClearSum
from tacit.randomness import Randomness
from tacit.training.private import gradient
from tacit.training.private.clipping import Clipping
from tacit.training.private.comparison import Comparison
from tacit.vectors import Vector, clipped
from tacit.wire import Turn

EFFORT = Effort(explore=40, count=100)
Pairs = tuple[int | None, int | None]  # which of what is tried, the first and the one after the last
Plant = Callable[[pytest.MonkeyPatch], None]


def _planned(change: Callable[[Plan], Plan]) -> Plant:
    """Return a fault in the plan of a mode."""
    return lambda patch: patch.setattr(replay, "plan_of", lambda config, clients: change(plan_of(config, clients)))


def _found(config: RunConfig, pairs: Pairs = (None, None), effort: Effort = EFFORT) -> Finding:
    subject = replay.subject(resolve(config), randomness=Randomness.of(seed=1))
    assert subject is not None
    return audit(replace(subject, pairs=subject.pairs[slice(*pairs)]), effort=effort)


def _noise_over_root_n(patch: pytest.MonkeyPatch) -> None:
    real = GaussianMechanism._stds
    patch.setattr(GaussianMechanism, "_stds", lambda own: real(own) / math.sqrt(own.expected_clients))


def _sensitivity_apart_from_the_clip(patch: pytest.MonkeyPatch) -> None:
    """As a mod that takes a sensitivity beside its clip: here the clip is three times what the noise is for."""
    patch.setattr(gaussian, "clipped", lambda update, bound: clipped(update, 3.0 * bound))


def _a_layer_without_clip(patch: pytest.MonkeyPatch) -> None:
    def without(own: GaussianMechanism, update: Vector) -> tuple[Vector, bool]:
        first, last = own.layers
        kept, within = clipped(update[:first], own._layer_bound)
        return np.concatenate([kept, np.clip(update[-last:], -1e6, 1e6)]), within

    patch.setattr(GaussianMechanism, "_clipped", without)
    _planned(lambda plan: replace(plan, protocol=ClearSum(minimum_clients=0)))(patch)  # which looks at no norm


def _flowers_adaptive_clip(patch: pytest.MonkeyPatch) -> None:
    """As in Flower 1.42: the bound moves the wrong way, and the noise is that of the bound after it moved."""
    real = GaussianMechanism.on_server

    def on_server(own: GaussianMechanism, total: Any, randomness: Randomness, *, clients: int) -> Release:
        return real(own._next(total, randomness), total, randomness, clients=clients)

    patch.setattr(AdaptiveClip, "moved", lambda own, bound, share: bound * math.exp(own.rate * (share - own.quantile)))
    patch.setattr(GaussianMechanism, "on_server", on_server)


def _reused_noise(patch: pytest.MonkeyPatch) -> None:
    """Two rounds draw the same noise, as from a generator that is seeded anew."""
    real = rounds.released

    def released(mechanism: Mechanism, total: Any, turn: Turn, randomness: Randomness) -> Release:
        return real(mechanism, total, replace(turn, round_number=(turn.round_number + 1) // 2), randomness)

    patch.setattr(rounds, "released", released)


def _weights_without_clip(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(nbafl, "clipped", lambda weights, bound: (np.clip(weights, -1e3 * bound, 1e3 * bound), True))


def _numbers_that_are_none_count(patch: pytest.MonkeyPatch) -> None:
    """An update that is no number is not put to zero, as a clip by comparison would leave it."""

    def passes(update: Vector, bound: float) -> tuple[Vector, bool]:
        return clipped(update, bound) if np.isfinite(update).all() else (np.full_like(update, bound), False)

    patch.setattr(gaussian, "clipped", passes)


def _population(plan: Plan) -> int:
    assert isinstance(plan.sampler, Poisson)
    return plan.sampler.population


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something wrong, and settings under which it shows."""

    plant: Plant
    config: RunConfig
    pairs: Pairs = (None, None)
    effort: Effort = EFFORT


def _dp(**sections: Any) -> RunConfig:
    return RunConfig(**{"mode": "dp", "dp": {"noise": 1.0, "clip": 1.0}, "federate": {"clients": 10}} | sections)


FAULTS = {
    "noise over the root of n": Fault(plant=_noise_over_root_n, config=_dp()),
    "sensitivity apart from the clip": Fault(
        plant=_sensitivity_apart_from_the_clip, config=RunConfig(mode="local-dp", dp={"noise": 4.0})
    ),
    "no clip on one layer": Fault(
        plant=_a_layer_without_clip, config=_dp(dp={"noise": 1.0, "clip": 1.0, "per_layer": True})
    ),
    "adaptive clipping as in Flower 1.42": Fault(
        plant=_flowers_adaptive_clip,
        config=_dp(
            dp={"noise": 1.0, "clip": "adaptive", "clip_start": 1.0, "clip_rate": 1.0}, federate={"clients": 20}
        ),
        pairs=(4, 5),
        effort=Effort(explore=20, count=100),
    ),
    "noise that is used twice": Fault(plant=_reused_noise, config=_dp()),
    "a gate on the cohort's size": Fault(
        plant=_planned(
            lambda plan: replace(plan, protocol=ClearSum(minimum_clients=max(1, round(plan.sampler.expected))))
        ),
        config=_dp(dp={"noise": 20.0, "clip": 1.0}, federate={"clients": 3, "per_round": 2}),
        pairs=(None, 1),
    ),
    "fixed-size cohorts charged as Poisson": Fault(
        plant=_planned(
            lambda plan: replace(
                plan, sampler=FixedSize(population=_population(plan), size=round(plan.sampler.expected))
            )
        ),
        config=_dp(federate={"clients": 10, "per_round": 5}),
        pairs=(4, 5),
        effort=Effort(explore=20, count=300),
    ),
    "weights that nobody clips": Fault(
        plant=_weights_without_clip,
        config=RunConfig(mode="nbafl", nbafl={"epsilon": 100.0, "smallest": 1}),
        pairs=(None, 2),
    ),
    "an update that is no number, and counts": Fault(
        plant=_numbers_that_are_none_count, config=RunConfig(mode="local-dp", dp={"noise": 4.0}), pairs=(6, 7)
    ),
    "a share of the noise for another cohort": Fault(
        plant=_planned(
            lambda plan: replace(
                plan,
                mechanism=replace(plan.mechanism, smallest_cohort=64)
                if isinstance(plan.mechanism, SkellamMechanism)
                else plan.mechanism,
            )
        ),
        config=RunConfig(mode="paillier", paillier={"dp": True}, dp={"noise": 2.0}),
        pairs=(-1, None),
        effort=Effort(explore=20, count=60),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS[name]
    fault.plant(monkeypatch)
    found = _found(fault.config, pairs=fault.pairs, effort=fault.effort)
    assert found.refuted
    assert found.bound >= found.epsilon


@pytest.mark.parametrize("name", FAULTS)
def test_without_the_fault_nothing_is_found(name: str) -> None:
    fault = FAULTS[name]
    found = _found(fault.config, pairs=fault.pairs, effort=Effort(explore=20, count=40))
    assert not found.refuted
    assert found.bound <= found.epsilon


def test_batch_norm_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused; let through, one example moves the gradients of all the others."""
    for check in ("check_normalisation", "check_examples_apart"):
        monkeypatch.setattr(gradient, check, lambda *_, **__: None)
    monkeypatch.setattr(Comparison, "check_book_keeping", lambda *_: None)
    norm = nn.BatchNorm1d(16, affine=False, track_running_stats=False)
    subject = examples.subject(
        "mixed", _training(lambda: nn.Sequential(norm, nn.Linear(16, 2, bias=False))), randomness=Randomness.of(seed=1)
    )
    found = audit(replace(subject, pairs=subject.pairs[:1]), effort=Effort(explore=20, count=80))
    assert found.refuted


def test_examples_without_batch_norm_are_hidden() -> None:
    subject = examples.subject("apart", _training(), randomness=Randomness.of(seed=1))
    found = audit(replace(subject, pairs=subject.pairs[2:3]), effort=Effort(explore=20, count=80))
    assert 0.2 * found.epsilon < found.bound <= found.epsilon
    assert not found.refuted


def _training(model: Callable[[], nn.Module] | None = None) -> examples.Training:
    made = examples.Training(
        noise_multiplier=1.0, rate=1.0, clipping=Clipping(bound=1.0), delta=1e-5, against="whoever sees the model"
    )
    return made if model is None else replace(made, model=model)
