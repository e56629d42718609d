"""What decides between many clients at once and one after the other."""

from __future__ import annotations

import torch
from torch import nn

from tacit.training.cost import Cost, cost_of
from tacit.training.forms import cohort_trainer
from tacit.training.settings import cross_entropy
from tests.training.common import Run, make_holdings, settings


def test_products_convolutions_and_recurrent_layers_are_counted() -> None:
    assert cost_of(nn.Linear(6, 5), torch.zeros(4, 6)).flops == 2 * 4 * 6 * 5
    narrow = cost_of(nn.Conv2d(3, 20, 3), torch.zeros(2, 3, 5, 5))
    assert narrow.flops == narrow.narrow == 2 * 2 * 9 * 20 * 27
    wide = cost_of(nn.Conv2d(16, 16, 3), torch.zeros(2, 16, 5, 5))
    assert wide.flops > wide.narrow == 0
    recurrent = cost_of(nn.LSTM(3, 4, batch_first=True), torch.zeros(2, 5, 3))
    assert recurrent.flops == 2 * 2 * 5 * 16 * (3 + 4)


def test_many_small_operations_pay_and_few_large_ones_do_not() -> None:
    assert Cost(flops=1e5, narrow=0.0, operations=20).mapping_pays(20, 8)
    assert not Cost(flops=1e9, narrow=0.0, operations=20).mapping_pays(20, 8)
    assert Cost(flops=1e9, narrow=9e8, operations=20).mapping_pays(20, 8)  # PyTorch is slow at narrow convolutions
    assert not Cost(flops=1e5, narrow=0.0, operations=2).mapping_pays(300, 16)  # one call was torn to pieces
    assert not Cost(flops=1e5, narrow=0.0, operations=20).mapping_pays(50, 1)  # nobody to share a call with


def test_a_large_model_trains_in_a_loop_on_each_core_and_says_why() -> None:
    module = nn.Sequential(nn.Linear(600, 900), nn.PReLU(), nn.Linear(900, 3))
    holdings = make_holdings((600,), [32] * 6, scale=0.1)
    run = Run(module, holdings, settings(batch_size=32), workers=2)
    assert run.form == "loop"
    assert "keep a core busy" in run.reason
    run.equals(Run(module, holdings, settings(batch_size=32), form="loop"), exactly=True)


def test_a_model_worth_all_cores_has_them_all() -> None:
    module = nn.Sequential(nn.Linear(2_000, 4_000), nn.PReLU(), nn.Linear(4_000, 3))
    trainer = cohort_trainer(
        module=module,
        holdings=make_holdings((2_000,), [64] * 2, scale=0.1),
        settings=settings(batch_size=64),
        loss=cross_entropy,
        workers=2,
    )
    trainer.close()
    assert (trainer.form, trainer.workers) == ("loop", 1)
    assert not Cost(flops=3e9, narrow=0.0, operations=20).fills_cores(16)


def test_wide_layers_fill_a_gpu_and_narrow_ones_do_not() -> None:
    def cost(width: int, batch: int) -> Cost:
        layers = [nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(8, width), nn.ReLU()]
        return cost_of(nn.Sequential(*layers).to("meta"), torch.empty(batch, width, 16, 16, device="meta"))

    assert not cost(64, 10).fills_a_gpu()
    assert cost(256, 10).fills_a_gpu()
    assert cost(64, 64).fills_a_gpu()
