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
from tacit.errors import BudgetError, ConfigError
from tacit.federated.plan import Plan
from tacit.mechanisms.nbafl import BroadcastNoise, FederatedScopeBroadcast, FederatedScopeNbAFL, NbAFL, nominal_delta
from tacit.modes.catalogue import plan_of, resolve
from tacit.modes.nbafl import NBAFL
from tacit.randomness import Randomness
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
    assert config.nbafl.smallest == 288
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
    assert (mechanism.exposures, mechanism.smallest) == (3, 1)  # 2.1, rounded up
    full = plan_of(resolve(job(federate={"clients": 10, "rounds": 7})), 10).mechanism
    assert isinstance(full, NbAFL)
    assert full.exposures == 7


FEDERATEDSCOPE = {"compat": "FederatedScope", "w_clip": 0.2, "epsilon": 50.0, "constant": 2.0, "mu": 0.0}


def test_federatedscopes_algorithm_by_hand() -> None:
    """Two rounds of two clients, written again from the formulas of FederatedScope's documentation."""
    data = [
        (np.array([[2.0, 0.0], [0.0, 1.0]], np.float32), np.array([0, 1])),
        (np.array([[1.0, 1.0]], np.float32), np.array([1])),
    ]
    network = nn.Linear(2, 2)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[0.9, -0.1], [0.05, -0.7]]))
        network.bias.zero_()
    trained: dict[tuple[int, int | None], np.ndarray[Any, Any]] = {}
    received: list[np.ndarray[Any, Any]] = []

    def flat(model: nn.Module) -> np.ndarray[Any, Any]:
        return torch.cat([p.detach().reshape(-1).clone() for p in model.parameters()]).numpy()

    first = flat(network)
    federation = Federation(model=network, clients=data, seed=3, mode="nbafl", nbafl=FEDERATEDSCOPE)
    federation.register("on_fit_start", lambda context: received.append(flat(context.model)))
    federation.register(
        "on_fit_end", lambda context: trained.update({(context.round_number, context.client): flat(context.model)})
    )
    result = federation.fit(rounds=2)
    model, sizes = first, (2, 1)
    for number in (1, 2):
        sent = model / np.maximum(1.0, np.abs(model) / 0.2)  # T = 2 < sqrt(2) * 2: no noise down
        np.testing.assert_allclose(received[2 * number - 2], sent, atol=1e-7)
        noisy = []
        for client, examples in enumerate(sizes):
            scale = 0.2 * 2 * 2 * 2.0 / examples / 50.0
            draws = Randomness.of(seed=3).within("client", number, 0, client).normal(len(model), "weights")
            noisy.append(trained[number, client] + scale * draws)
        model = np.average(noisy, axis=0, weights=sizes)
    np.testing.assert_allclose(flat(federation.model), model, atol=1e-6)  # what is tested is not clipped again
    assert result.claimed.epsilon == np.inf


def test_of_federatedscopes_algorithm_no_epsilon_holds(tmp_path: Path) -> None:
    config = job(nbafl=FEDERATEDSCOPE, out=tmp_path / "run")
    result = run(config)
    privacy = result.claimed
    assert privacy.epsilon == np.inf
    assert (privacy.nominal_epsilon, privacy.true_delta) == (50.0, 1.0)
    assert (privacy.unit, privacy.neighbours) == ("client", "replace-one")
    assert "the server included" in privacy.against
    assert "add noise to weights that they do not clip" in privacy.notes[0]
    assert "had no noise" not in " ".join(privacy.notes)
    assert not any("asked most often" in note for note in privacy.notes)
    assert "as long as they come out" in result.sees["server"]
    assert result.to_dict()["privacy"]["epsilon"] == "infinite"
    assert ledger_of(tmp_path / "run").lines[-1].epsilon == np.inf
    with pytest.raises(BudgetError, match="epsilon to inf, over the budget of 10000"):
        run(job(nbafl=FEDERATEDSCOPE, dp={"max_epsilon": 1e4}))


def test_federatedscopes_defaults_are_its_own_where_nothing_was_said() -> None:
    theirs = resolve(job(nbafl=FEDERATEDSCOPE))
    assert (theirs.optimizer.momentum, theirs.optimizer.schedule, theirs.server.lr) == (0.0, "constant", 1.0)
    assert resolve(job(nbafl=FEDERATEDSCOPE, optimizer={"momentum": 0.9})).optimizer.momentum == 0.9
    assert resolve(job()).optimizer.momentum == 0.5
    plan = _fitted(job(nbafl=FEDERATEDSCOPE, federate={"weighting": "uniform", "per_round": 2, "rounds": 9}), [3, 8, 9])
    mechanism = plan[1].mechanism
    assert isinstance(mechanism, FederatedScopeNbAFL)
    assert (mechanism.weighting, mechanism.per_round, mechanism.clients, mechanism.rounds) == ("uniform", 2, 3, 9)
    assert (mechanism.smallest, mechanism.clip_bound) == (3, 0.2)
    (inject,) = plan[1].injectors
    assert isinstance(inject, FederatedScopeBroadcast)
    assert (inject.clip_bound, inject.deviation) == (0.2, mechanism.down)
    assert mechanism.down > 0.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nbafl": {"epsilon": 0}}, "nbafl.epsilon=0"),
        ({"nbafl": {"w_clip": -1}}, "nbafl.w_clip=-1"),
        ({"nbafl": {"constant": 0}}, "nbafl.constant=0"),
        ({"nbafl": {"mu": -0.1}}, "nbafl.mu=-0.1"),
        ({"nbafl": {"compat": "fedml"}}, "nbafl.compat='fedml'"),
        ({"nbafl": {"exposures": 9}}, "exposures=9 <= rounds=2"),
        ({"nbafl": FEDERATEDSCOPE | {"exposures": 2}}, "nbafl.exposures=2 means nothing to FederatedScope's"),
        ({"federate": {"share": 0.5, "per_round": 2}}, "say the same thing twice"),
        ({"dp": {"epsilon": 1.0}}, "dp.epsilon has no effect in mode 'nbafl'. Set nbafl.epsilon"),
        ({"mode": "dp", "dp": {"noise": 1.0}}, r"nbafl.mu, .* has no effect in mode 'dp'"),
    ],
)
def test_what_can_not_be(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan_of(resolve(job(**changes)), 5)
