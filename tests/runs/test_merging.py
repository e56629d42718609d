"""Adapters that eval() merges into frozen weights and train() takes out again, as those of loralib do."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

import tacit
from tacit.errors import ConfigError


class Merging(nn.Linear):
    """A frozen layer and a product of rank 2, as loralib.Linear is."""

    def __init__(self, inputs: int, outputs: int, *, zeros: bool = False) -> None:
        super().__init__(inputs, outputs)
        self.down = nn.Parameter(torch.randn(2, inputs))
        self.up = nn.Parameter(torch.zeros(outputs, 2) if zeros else torch.randn(outputs, 2))
        self.merged = False
        self.weight.requires_grad_(False)
        self.bias.requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if mode == self.merged:
            self.weight.data += (-1 if mode else 1) * (self.up @ self.down).data
            self.merged = not mode
        return self

    def forward(self, value: Tensor) -> Tensor:
        plain = F.linear(value, self.weight, self.bias)
        return plain if self.merged else plain + value @ self.down.T @ self.up.T


class Stuck(Merging):
    """Its train() forgets to take the adapters out."""

    def train(self, mode: bool = True) -> Self:
        if not mode and not self.merged:
            return super().train(mode)
        return nn.Linear.train(self, mode)


def part(seed: int, count: int = 12) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    features = np.random.default_rng(seed).normal(size=(count, 4)).astype(np.float32)
    return features, (features[:, 0] > 0).astype(np.int64)


PARTS, TEST = [part(seed) for seed in range(4)], part(9, 40)
MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "dp": {"dp": {"noise": 0.5, "clip": 1.0}},
    "dp-sgd": {"dp": {"noise": 1.0}},
}


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_adapters_alone_train_and_are_tested_as_they_are(mode: str, zeros: bool) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(Merging(4, 5, zeros=zeros), nn.Tanh(), Merging(5, 2, zeros=zeros))
    before = {name: own.clone() for name, own in module.named_parameters()}
    federation = tacit.Federation(model=module, clients=PARTS, test=TEST, mode=mode, seed=1, **MODES[mode])
    result = federation.fit(rounds=3, quiet=True)
    same = {name for name, own in module.named_parameters() if torch.equal(own, before[name])}
    assert same == {name for name in before if name.endswith(("weight", "bias"))}
    assert module.training
    assert not any(own.merged for own in module if isinstance(own, Merging))
    features, labels = map(torch.tensor, TEST)
    with torch.no_grad():
        assert result.test_loss == pytest.approx(float(F.cross_entropy(module(features), labels)), rel=1e-4)


def test_a_merged_model_is_tested_and_asked_as_it_is() -> None:
    torch.manual_seed(0)
    layer = Merging(4, 2)
    module = nn.Sequential(layer)
    federation = tacit.Federation(model=module, clients=PARTS, seed=1)
    federation.fit(rounds=1, quiet=True)
    told = federation.evaluate(TEST)["loss"], federation.predict(TEST[0])
    module.eval()
    merged = layer.weight.clone()
    assert federation.evaluate(TEST)["loss"] == pytest.approx(told[0], rel=1e-5)
    np.testing.assert_allclose(federation.predict(TEST[0]), told[1], rtol=1e-4, atol=1e-5)
    assert torch.equal(layer.weight, merged)
    assert not module.training


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_merged_model_is_refused(frozen: bool, zeros: bool) -> None:
    module = nn.Sequential(Merging(4, 2, zeros=zeros)).eval()
    module[0].weight.requires_grad_(not frozen)
    with pytest.raises(ConfigError, match=r"changes '0.weight': eval\(\) has merged.*model.train\(\) before the run"):
        tacit.Federation(model=module, clients=PARTS, seed=1).fit(rounds=1, quiet=True)
    with pytest.raises(ConfigError, match=r"changes '0.weight'"):
        tacit.dpsgd.make_private(module, torch.optim.SGD(module.parameters()), PARTS[0], noise_multiplier=1.0, seed=1)


@pytest.mark.parametrize("zeros", [False, True])
def test_adapters_that_train_does_not_take_out_are_refused(zeros: bool) -> None:
    federation = tacit.Federation(model=nn.Sequential(Stuck(4, 2, zeros=zeros)), clients=PARTS, test=TEST, seed=1)
    with pytest.raises(ConfigError, match=r"'0.weight' is frozen, and eval\(\) and train\(\).*merge_weights=False"):
        federation.fit(rounds=1, quiet=True)
