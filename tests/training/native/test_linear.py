"""Native linear layers against PyTorch's in float64, where they are not taken, and under threads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.training import forms, native
from tacit.training.cost import Cost
from tacit.training.native import available
from tacit.training.native import linear as module
from tacit.training.native.attention import Natively
from tacit.training.native.linear import linear
from tacit.training.vmapped import VmappedNetwork
from tests.training.common import Run, make_holdings, settings
from tests.training.test_narrow import LENGTH, WORDS, Classifier

pytestmark = pytest.mark.skipif(not available(), reason="the native kernels were not built, or the CPU has no AVX2")

LEVELS: list[str] = native.kernels.levels() if available() else []
SHAPES = [(1, 16, 16), (32, 64, 80), (33, 16, 96), (7, 48, 32), (519, 32, 16), (601, 80, 48)]  # rows, inputs, outputs
OPS = torch.ops.tacit


@pytest.fixture(params=range(len(LEVELS)), ids=LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[None]:
    native.kernels.use_level(request.param)
    yield
    native.kernels.use_level(len(LEVELS) - 1)


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def given(rows: int, inputs: int, outputs: int) -> list[Tensor]:
    return [normal(rows, inputs), normal(outputs, inputs, seed=2), normal(outputs, seed=3)]


def exact(x: Tensor, weight: Tensor, bias: Tensor | None, grad: Tensor) -> list[Tensor]:
    own = [None if value is None else value.detach().double().requires_grad_() for value in (x, weight, bias)]
    out = F.linear(own[0], own[1], own[2])  # type: ignore[arg-type]  # the first two are there
    learned = [value for value in own if value is not None]
    return [out.detach(), *torch.autograd.grad((out * grad.double()).sum(), learned)]


@pytest.mark.usefixtures("level", "threads")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("biased", [True, False])
def test_linear_layers(shape: tuple[int, int, int], biased: bool) -> None:
    x, weight, bias = given(*shape)
    grad = normal(shape[0], shape[2], seed=4)
    ours = [OPS.linear(x, weight, bias if biased else None), *OPS.linear_back(grad, x, weight, [True, True, biased])]
    right = exact(x, weight, bias if biased else None, grad)
    for one, other in zip(ours, right, strict=False):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5 * math.sqrt(max(shape)))


def test_several_threads_give_the_same_numbers(threads: int) -> None:
    x, weight, bias = given(601, 48, 112)
    grad = normal(601, 112, seed=4)
    ours = [OPS.linear(x, weight, bias), *OPS.linear_back(grad, x, weight, [True] * 3)]
    torch.set_num_threads(1)
    alone = [OPS.linear(x, weight, bias), *OPS.linear_back(grad, x, weight, [True] * 3)]
    torch.set_num_threads(threads)
    assert all(torch.equal(one, other) for one, other in zip(ours, alone, strict=True))


def test_other_orders_of_memory_and_more_axes() -> None:
    weight, bias = normal(64, 96, seed=2)[:, :32], normal(64, seed=3)
    wide = normal(4, 15, 96)
    for x in (wide[:, :, 16:48], wide[:, 3:4, :32], normal(32, 15, 4).permute(2, 1, 0), normal(1, 32).expand(40, 32)):
        grad = normal(*x.shape[:-1], 64, seed=4)
        for slope in (grad, grad.transpose(0, -1).contiguous().transpose(0, -1), torch.ones(()).expand(grad.shape)):
            ours = [OPS.linear(x, weight, bias), *OPS.linear_back(slope, x, weight, [True] * 3)]
            for one, other in zip(ours, exact(x, weight, bias, slope), strict=True):
                torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True)])
def test_gradients_that_nobody_asks_for(wanted: tuple[bool, bool, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WORTH", 1)
    x, weight, bias = (own.requires_grad_(asked) for own, asked in zip(given(40, 32, 48), wanted, strict=True))
    with Natively():
        out = F.linear(x, weight, bias)
    asked = [own for own in (x, weight, bias) if own.requires_grad]
    ours = torch.autograd.grad(out.square().sum(), asked)
    right = torch.autograd.grad(F.linear(x, weight, bias).square().sum(), asked)
    for one, other in zip(ours, right, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_that_is_no_number_spoils_no_other(bad: float) -> None:
    x, weight, bias = given(40, 32, 48)
    x[7, 3] = bad
    out = OPS.linear(x, weight, bias)
    assert out.isfinite().all(1).tolist() == [row != 7 for row in range(40)]
    slopes, weights, _ = OPS.linear_back(normal(40, 48), x, weight, [True] * 3)
    assert bool(slopes.isfinite().all())
    assert weights.isfinite().all(0).tolist() == [column != 3 for column in range(32)]


@pytest.mark.skipif(not LEVELS or LEVELS[-1] != "avx512", reason="not faster there")
def test_who_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WORTH", 64 * 32 * 48)
    x, weight, bias = given(64, 32, 48)
    layer = nn.Linear(32, 48)
    assert linear(x, weight, bias) is not None
    assert linear(x.view(2, 32, 32), layer.weight) is not None
    wide = normal(module._MOST // 16 + 16, 16)
    for case in (
        (x[:63], weight, bias),
        (normal(64, 16), wide, None),
        (x.double(), weight.double(), bias.double()),
        (x.bfloat16(), weight.bfloat16(), None),
        (normal(64, 30), normal(48, 30), bias),
        (x, normal(10, 32), None),
        (x[0], weight, bias),
        (x, normal(32, 48).t(), bias),
        (x, weight, normal(96)[::2]),
        (x[:0], weight, bias),
    ):
        assert linear(*case) is None
    with torch.autocast("cpu"):
        assert linear(x, weight, bias) is None
    with Natively():
        mapped = torch.func.vmap(F.linear, in_dims=(0, None))(x.view(2, 32, 32), weight)
    torch.testing.assert_close(mapped.view(64, 48), F.linear(x, weight))


@pytest.mark.parametrize("most", [2, 1])
def test_many_workers_leave_them_to_torch(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its calls takes Python's lock, for which many workers would wait."""
    made: list[bool] = []

    class Watched(VmappedNetwork):
        def __init__(self, *given: Any, natively: bool = False, layers: bool = True) -> None:
            super().__init__(*given, natively=natively, layers=layers)
            made.append(natively and layers)

    monkeypatch.setattr(forms, "VmappedNetwork", Watched)
    monkeypatch.setattr(forms, "_LOCKED", most)
    monkeypatch.setattr(module, "_WORTH", 1)
    model = Classifier()
    holdings, how = make_holdings((LENGTH,), [8, 8], words=WORDS), settings(batch_size=8)
    monkeypatch.setattr(Cost, "light", False)
    run = Run(model, holdings, how, workers=2)
    assert "native attention" in run.reason
    assert any(made) == (most == 2)
    run.equals(Run(model, holdings, how, form="loop"))


def test_tensors_that_do_not_fit_are_refused_before_they_are_read() -> None:
    x, weight, bias = given(40, 32, 48)
    for wrong in (
        (x[:, :16], weight, bias),
        (x, weight, bias[:32]),
        (x, weight[:20], None),
        (x.double(), weight, bias),
    ):
        with pytest.raises(ValueError, match="don't fit"):
            OPS.linear(*wrong)
    with pytest.raises(ValueError, match="don't fit"):
        OPS.linear_back(normal(39, 48), x, weight, [True] * 3)
    with pytest.raises(ValueError, match="multiples of 16"):
        native.kernels.linear(0, 0, 0, 0, 4, 10, 16, 10, 10, 0, 1)
    with pytest.raises(ValueError, match="multiples of 16"):
        native.kernels.linear_back(0, 0, 0, 0, 0, 0, 4, 16, 16, 16, 16, 16, 0)
