"""Runs with NbAFL: the paper's noise, and the nominal claim beside the certified one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tacit.accounting import profile
from tacit.config.resolved import Resolved
from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError
from tacit.federated.plan import Plan
from tacit.mechanisms.nbafl import BroadcastNoise, NbAFL, nominal_delta
from tacit.modes.catalogue import plan_of, resolve
from tacit.modes.nbafl import NBAFL
from tacit.runs.federation import Federation
from tacit.runs.ledger import ledger_of
from tacit.runs.run import run
from tests.runs.common import digits, weights


def job(**changes: Any) -> RunConfig:
    settings: dict[str, Any] = {
        "mode": "nbafl",
        "nbafl": {"mu": 0.01, "epsilon": 1000.0, "constant": 1.0, "w_clip": 20.0},
    }
    for key, value in changes.items():
        settings[key] = settings[key] | value if isinstance(value, dict) and key in settings else value
    return digits(**settings)


def test_the_nominal_claim_stands_beside_the_certified_one(tmp_path: Path) -> None:
    result = run(job(federate={"rounds": 3}, out=tmp_path / "run"))
    privacy = result.claimed
    assert (privacy.nominal_epsilon, privacy.nominal_delta) == (1000.0, nominal_delta(1.0))
    smallest = 1_442 // 5
    noise = 2.0 * 1.0 * 3 * 20.0 / (smallest * 1000.0)
    mu = 3**0.5 * 2 * 20.0 / noise
    assert privacy.epsilon == pytest.approx(profile.epsilon_at(1e-5, mu), rel=1e-9)
    assert privacy.true_delta == pytest.approx(profile.delta_at(1000.0, mu))
    note = next(note for note in privacy.notes if "Nominal" in note)
    assert "Nominal claim: epsilon 1000 at delta 0.758. Certified: epsilon" in note
    assert any("no guarantee" in note for note in privacy.notes)
    assert any("smallest client 288, exposures 3" in note for note in privacy.notes)
    assert "under that client's own noise" in result.sees["server"]
    assert ledger_of(tmp_path / "run").lines[-1].epsilon == privacy.epsilon


def test_it_learns_where_the_noise_is_small() -> None:
    quiet = run(job(federate={"rounds": 6}, nbafl={"epsilon": 1e6}))
    loud = run(job(federate={"rounds": 6}, nbafl={"epsilon": 1.0}))
    assert quiet.test_accuracy is not None
    assert quiet.test_accuracy > 0.85
    assert loud.test_accuracy is not None
    assert loud.test_accuracy < 0.5


def test_the_clip_keeps_the_weights_within_the_bound(tmp_path: Path) -> None:
    run(job(nbafl={"w_clip": 0.1, "epsilon": 1e6}, out=tmp_path / "run"))
    norm = np.sqrt(sum(np.square(np.frombuffer(w, "<f4")).sum() for w in weights(tmp_path / "run").values()))
    assert 0.05 < norm <= 0.1 * (1 + 1e-3)


def test_the_proximal_term_is_the_trainers_own() -> None:
    config, plan = _fitted(job(), [288, 289])
    assert config.optimizer.mu == 0.01
    assert (config.nbafl.smallest, config.nbafl.largest) == (288, 289)
    assert plan.mechanism == _fitted(config, [1, 999])[1].mechanism
    assert _fitted(config, [1, 999])[0] == config  # as after a restart
    with pytest.raises(ConfigError, match=r"optimizer.mu=0.5 and nbafl.mu=0.01 are one and the same"):
        _fitted(job(optimizer={"mu": 0.5}), [3])


def _fitted(config: RunConfig, sizes: list[int]) -> tuple[Resolved, Plan]:
    resolved = resolve(config)
    return NBAFL.fitted(resolved, plan_of(resolved, len(sizes)), sizes)


def test_the_servers_noise_is_an_injector() -> None:
    sampled = job(federate={"clients": 4, "per_round": 1, "rounds": 40}, nbafl={"exposures": 2, "smallest": 50})
    plan = plan_of(resolve(sampled), 4)
    assert isinstance(plan.mechanism, NbAFL)
    (inject,) = plan.injectors
    assert isinstance(inject, BroadcastNoise)
    assert inject.deviation == plan.mechanism.down > 0.0
    model = np.zeros(2_000, np.float32)
    assert np.std(inject(model, 2)) == pytest.approx(plan.mechanism.down, rel=0.1)
    assert plan_of(resolve(job()), 5).injectors == ()  # everyone in every round: the way up has enough


def test_injected_noise_reaches_the_clients_and_does_not_pile_up() -> None:
    received: list[torch.Tensor] = []
    data = [(np.eye(2, dtype=np.float32), np.array([0, 1])) for _ in range(4)]
    nbafl = {"exposures": 1, "epsilon": 10.0, "w_clip": 1.0, "constant": 1.0}
    federate = {"per_round": 1, "minimum_clients": 1}
    federation = Federation(model=nn.Linear(2, 2), clients=data, seed=1, mode="nbafl", nbafl=nbafl, federate=federate)

    def note(context: Any) -> None:
        received.append(torch.cat([p.detach().reshape(-1).clone() for p in context.model.parameters()]))

    federation.register("on_fit_start", note)
    federation.fit(rounds=4)
    assert len(received) == 4
    assert not torch.equal(received[1], received[2])


def test_expected_exposures_and_what_has_been_counted() -> None:
    mechanism = plan_of(resolve(job(federate={"clients": 10, "per_round": 3, "rounds": 7})), 10).mechanism
    assert isinstance(mechanism, NbAFL)
    assert (mechanism.exposures, mechanism.smallest, mechanism.per_round) == (3, 1, 3)  # 2.1, rounded up
    full = plan_of(resolve(job(federate={"clients": 10, "rounds": 7})), 10).mechanism
    assert isinstance(full, NbAFL)
    assert full.exposures == 7


def test_federatedscopes_scale_is_certified_by_its_largest_client() -> None:
    mechanism = _fitted(job(nbafl={"compat": "FederatedScope"}), [100, 400])[1].mechanism
    assert isinstance(mechanism, NbAFL)
    assert (mechanism.smallest, mechanism.largest) == (100, 400)
    assert mechanism.event == NbAFL.event.fget(mechanism)  # type: ignore[attr-defined]
    assert mechanism.event.noise_multiplier * 20.0 == pytest.approx(mechanism.up(400))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nbafl": {"epsilon": 0}}, "nbafl.epsilon=0"),
        ({"nbafl": {"w_clip": -1}}, "nbafl.w_clip=-1"),
        ({"nbafl": {"constant": 0}}, "nbafl.constant=0"),
        ({"nbafl": {"mu": -0.1}}, "nbafl.mu=-0.1"),
        ({"nbafl": {"compat": "fedml"}}, "nbafl.compat='fedml'"),
        ({"nbafl": {"exposures": 9}}, "exposures=9 <= rounds=2"),
        ({"dp": {"epsilon": 1.0}}, "dp.epsilon has no effect in mode 'nbafl'. Set nbafl.epsilon"),
        ({"mode": "dp", "dp": {"noise": 1.0}}, r"nbafl.mu, .* has no effect in mode 'dp'"),
    ],
)
def test_what_can_not_be(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan_of(resolve(job(**changes)), 5)
