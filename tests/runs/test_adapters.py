"""Adapters on a frozen model (LoRA): they alone train and travel, and a run in which they can't is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import tacit
from tacit.errors import ConfigError
from tacit.training.parameters import Parameters


class Lora(nn.Module):
    """A frozen layer and a trained product of rank 2 beside it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)
        self.on = True

    def forward(self, x: Tensor) -> Tensor:
        value: Tensor = self.base(x)
        return value + self.up(self.down(x)) if self.on else value


class Masked(nn.Module):
    """A layer of the base with a table of its own, of the kind that decoders have."""

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.linspace(-1.0, 1.0, 5))
        self.register_buffer("mask", torch.full((3, 3), -torch.inf).triu(1))  # infinity minus itself is no update
        self.layer = nn.Linear(5, 5).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        value: Tensor = self.layer(x) + self.table
        return value


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Lora(nn.Linear(4, 5)), nn.Tanh(), Masked(), Lora(nn.Linear(5, 2)))


def part(seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    features = np.random.default_rng(seed).normal(size=(12, 4)).astype(np.float32)
    return features, (features[:, 0] > 0).astype(np.int64)


PARTS = [part(seed) for seed in range(4)]
MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "dp": {"dp": {"noise": 0.5, "clip": 1.0}},
    "masks": {"dp": {"noise": 0.5, "clip": 1.0}, "masks": {"dp": True}},
}


def moved(module: nn.Module, before: dict[str, Tensor]) -> set[str]:
    return {name for name, tensor in module.state_dict().items() if not torch.equal(tensor, before[name])}


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def trained(module: nn.Module) -> set[str]:
    return {name for name, p in module.named_parameters() if p.requires_grad}


def test_the_vector_holds_the_adapters_alone() -> None:
    layout = Parameters.of(model())
    assert set(layout.names) == trained(model())
    assert layout.size == 2 * (4 + 5) + 2 * (5 + 2)
    whole = model().requires_grad_()
    assert "2.table" in Parameters.of(whole).names  # as ever where nothing is frozen


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", ["auto", "loop"])
def test_adapters_train_and_nothing_else_does(mode: str, form: str) -> None:
    module = model()
    before = state(module)
    federation = tacit.Federation(model=module, clients=PARTS, mode=mode, seed=1, train={"form": form}, **MODES[mode])
    result = federation.fit(rounds=2, quiet=True)
    assert moved(module, before) == trained(module)
    assert result.form in ("vmap", "loop")
    assert federation.predict(PARTS[0][0]).shape == (12,)


def test_dp_sgd_trains_the_adapters() -> None:
    module = model()
    before = state(module)
    private = tacit.dpsgd.make_private(
        module, torch.optim.SGD(module.parameters(), lr=0.1), PARTS[0], noise_multiplier=1.0, seed=1
    )
    private.fit(steps=2)
    assert private.form == "book-keeping"
    assert moved(module, before) == trained(module)


def switched_off() -> nn.Module:
    module = model()
    for adapter in module:
        if isinstance(adapter, Lora):
            adapter.on = False
    return module


def both_zero() -> nn.Module:
    module = model()
    for adapter in (module[0], module[3]):
        nn.init.zeros_(adapter.get_submodule("down").weight)  # type: ignore[arg-type]  # torch has it a module or tensor
    return module


@pytest.mark.parametrize("make", [switched_off, both_zero])
def test_adapters_that_no_gradient_reaches_are_refused_before_anything_is_spent(make: Any) -> None:
    module = make()
    for mode, settings in MODES.items():
        federation = tacit.Federation(model=module, clients=PARTS, mode=mode, seed=1, **settings)
        with pytest.raises(ConfigError, match="No gradient reaches the 32 numbers"):
            federation.fit(rounds=1, quiet=True)
    with pytest.raises(ConfigError, match="No gradient reaches"):
        tacit.dpsgd.make_private(
            module, torch.optim.SGD(module.parameters(), lr=0.1), PARTS[0], noise_multiplier=1.0, seed=1
        )


def test_a_client_that_changes_what_is_frozen_ends_the_run() -> None:
    federation = tacit.Federation(model=model(), clients=PARTS, seed=1)

    def drift(context: Any) -> None:
        context.model[0].base.weight.data[0, 0] += 1e-6

    federation.register("on_batch_end", drift)
    with pytest.raises(ConfigError, match=r"'0\.base\.weight' is frozen, and training changed it"):
        federation.fit(rounds=1, quiet=True)


def test_statistics_of_a_frozen_norm_are_no_way_around_the_clip() -> None:
    module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5)).requires_grad_(False)
    federation = tacit.Federation(model=nn.Sequential(module, nn.Linear(5, 2)), clients=PARTS, seed=1)
    with pytest.raises(ConfigError, match=r"'0\.1\.running_mean' is frozen"):
        federation.fit(rounds=1, quiet=True)


def test_peft() -> None:
    peft = pytest.importorskip("peft")
    base = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    module = peft.get_peft_model(base, peft.LoraConfig(target_modules=["0", "2"], r=2))
    before = state(module)
    tacit.Federation(model=module, clients=PARTS, seed=1, mode="dp", **MODES["dp"]).fit(rounds=1, quiet=True)
    assert moved(module, before) == trained(module)
    assert all("lora_" in name for name in trained(module))
    with module.disable_adapter(), pytest.raises(ConfigError, match="parameters to train"):
        tacit.Federation(model=module, clients=PARTS, seed=1).fit(rounds=1, quiet=True)
