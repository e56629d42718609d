"""One example of 3e38 among a data holder's own: every run of DP-SGD ends with a finite model, at its claim."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tacit
from tacit.config.run_config import RunConfig
from tacit.federated.round import LocalClients
from tacit.runs.run import run
from tacit.tasks import tabular
from tacit.wire import Frame

CLAIM = 0.17


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    original = tabular.load_breast_cancer

    def load() -> Any:
        data = original()
        features = data.train.features.copy()
        features[11] = 3e38
        return replace(data, train=replace(data.train, features=features))

    monkeypatch.setattr(tabular, "load_breast_cancer", load)


def config(seed: int, *, alone: bool, noise: float) -> RunConfig:
    settings: dict[str, Any] = {
        "mode": "dp-sgd",
        "single_holder": alone,
        "seed": seed,
        "data": {"name": "breast-cancer"},
        "model": {"name": ("logistic", "mlp")[seed % 2]},
        "federate": {"clients": 1 if alone else 3, "rounds": 1 if alone else 2},
        "dp": {"noise": noise},
        "dpsgd": {"batch_size": 60, "steps": 3, "clipping": ("flat", "per-layer", "automatic")[seed % 3]},
        "optimizer": {"lr": 0.5},
    }
    return RunConfig(**settings)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(("alone", "noise", "runs"), [(True, 7.6, 18), (False, 19.5, 12)])
def test_no_run_ends_in_nan(alone: bool, noise: float, runs: int) -> None:
    for seed in range(runs):
        result = run(config(seed, alone=alone, noise=noise))
        privacy = result.claimed
        assert privacy.epsilon is not None
        assert privacy.epsilon <= CLAIM
        assert privacy.epsilon > 0.5 * CLAIM
        assert result.test_loss is not None
        assert math.isfinite(result.test_loss)
        assert all(loss is None or math.isfinite(loss) for loss in (record.train_loss for record in result.rounds))
        result.to_json()


def test_a_federation_of_ones_own_with_a_poisoned_client() -> None:
    generator = np.random.default_rng(1)
    parts = []
    for client in range(3):
        features = generator.standard_normal((60, 5)).astype(np.float32)
        if client == 1:
            features[:2] = [[3e38] * 5, [1e30, -3e38, 0.0, 1e-30, 3e38]]
        parts.append((features, (np.nan_to_num(features[:, 0]) > 0).astype(np.int64)))
    for seed in range(6):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
        tacit.Federation(
            model=model, clients=parts, mode="dp-sgd", seed=seed, dp={"noise": 5.0}, dpsgd={"batch_size": 30}
        ).fit(rounds=2)
        assert all(bool(p.isfinite().all()) for p in model.parameters())


@pytest.mark.parametrize("lie", [(slice(None), 3e38), (-1, 1e6), (-1, -1e6), (slice(0, 3), -3e38)])
@pytest.mark.parametrize("settings", [{"noise": 1.0}, {"noise": 0.05, "clip": "adaptive"}], ids=["fixed", "adaptive"])
def test_no_client_stops_a_run_of_mode_dp_by_numbers_it_never_clipped(
    monkeypatch: pytest.MonkeyPatch, lie: tuple[Any, float], settings: dict[str, Any]
) -> None:
    """Finite ones: they once made the model overflow, or the clip bound 0, and the run ended in an error."""
    original = LocalClients._step

    def step(self: LocalClients, client: int, request: Frame, vector: Any) -> bytes:
        if client == 2:
            vector = np.array(vector)
            vector[lie[0]] = lie[1]
        return original(self, client, request, vector)

    monkeypatch.setattr(LocalClients, "_step", step)
    generator = np.random.default_rng(1)
    parts = [(generator.standard_normal((8, 4)).astype(np.float32), np.arange(8) % 2) for _ in range(6)]
    torch.manual_seed(1)
    model = nn.Linear(4, 2)
    before = [p.detach().clone() for p in model.parameters()]
    result = tacit.Federation(
        model=model, clients=parts, test=parts[0], mode="dp", seed=1, dp=settings, federate={"per_round": 3}
    ).fit(rounds=6)
    assert len(result.rounds) == 6
    assert result.test_loss is not None
    assert result.test_loss < 20.0
    assert all(float((p - old).detach().abs().max()) < 20.0 for p, old in zip(model.parameters(), before, strict=True))
