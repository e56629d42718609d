"""Native convolutions and group norms of one client's images against PyTorch in float64, and as a form of training."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.training import native
from tacit.training.dropout import use_keys
from tacit.training.native import available
from tacit.training.native.descent import Descent
from tacit.training.native.images import instructions, joined
from tacit.training.native.stretch import Average, Convolve, Layer, Line, Normalise, Relu, Stretch, Way
from tacit.training.parameters import Parameters
from tacit.training.program import graph_of, trace
from tacit.training.settings import Loss
from tests.training.common import CLASSES, Custom, Run, make_holdings, settings

pytestmark = pytest.mark.skipif(not available(), reason="the native kernels were not built, or the CPU has no AVX2")

LEVELS: list[str] = native.kernels.levels() if available() else []


@pytest.fixture(params=range(len(LEVELS)), ids=LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[None]:
    native.kernels.use_level(request.param)
    yield
    native.kernels.use_level(len(LEVELS) - 1)


def normal(*shape: int, last: bool = False, seed: int = 0) -> Tensor:
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return (drawn.contiguous(memory_format=torch.channels_last) if last else drawn).requires_grad_()


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    way: Way = "tiles",
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int],
) -> Tensor:
    own = None if bias is None else 1
    layer = Convolve(source=0, target=1, weight=0, bias=own, stride=stride, padding=padding, way=way)
    parameters = [weight] if bias is None else [weight, bias]
    return Stretch([layer], used=frozenset([1]))({0: x}, parameters)[1]


def group_norm(
    x: Tensor,
    groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    epsilon: float,
    *,
    added: Tensor | None = None,
    relu: Relu = 0,
) -> Tensor:
    parameters = [own for own in (weight, bias) if own is not None]
    layer = Normalise(
        source=0,
        added=None if added is None else 1,
        target=2,
        groups=groups,
        weight=None if weight is None else 0,
        bias=None if bias is None else 1,
        epsilon=epsilon,
        relu=relu,
    )
    values = {0: x} if added is None else {0: x, 1: added}
    return Stretch([layer], used=frozenset([2]))(values, parameters)[2]


def close(actual: Tensor, expected: Tensor, *inputs: Tensor) -> None:
    """Compare outputs, and the gradients of a sum with random weights; ``inputs`` are leaves of both."""
    weights = normal(
        *actual.shape, last=actual.dim() == 4, seed=9
    ).detach()  # which nobody may change, nor needs to copy
    own = torch.autograd.grad(actual, inputs, weights)
    right = torch.autograd.grad(expected, inputs, weights.double())
    for a, b in zip((actual.detach(), *own), (expected.detach(), *right), strict=True):
        assert a.dtype == torch.float32
        assert (a.double() - b.double()).norm() <= 5e-6 * b.double().norm()


SHAPES = {  # batch, inputs, outputs, height, width, padding
    "whole tiles": (2, 16, 32, 8, 8, 1),
    "a block of tiles and some more": (9, 32, 16, 32, 32, 1),
    "odd sides": (3, 16, 48, 13, 7, 0),
    "padded twice": (2, 48, 16, 5, 9, 2),
    "kernels in blocks": (3, 144, 160, 6, 6, 1),
    "one output": (1, 16, 16, 3, 3, 0),
}


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("biased", [True, False])
def test_a_convolution(shape: tuple[int, ...], biased: bool) -> None:
    n, inputs, outputs, high, wide, padding = shape
    x, weight = normal(n, inputs, high, wide, last=biased), normal(outputs, inputs, 3, 3, seed=1)
    bias = normal(outputs, seed=2) if biased else None
    expected = F.conv2d(x.double(), weight.double(), None if bias is None else bias.double(), padding=padding)
    own = convolve(x, weight, bias, padding=(padding, padding))
    close(own, expected, x, weight, *([] if bias is None else [bias]))


WINDOWS: dict[str, tuple[tuple[int, ...], tuple[int, int], tuple[int, int], tuple[int, int]]] = {
    # batch, inputs, outputs, height, width; kernel, stride, padding
    "stem": ((3, 3, 16, 9, 8), (3, 3), (1, 1), (1, 1)),
    "shortcut": ((2, 32, 48, 8, 9), (1, 1), (2, 2), (0, 0)),
    "shortcut that leaves pixels out": ((1, 16, 16, 7, 7), (1, 1), (3, 3), (0, 0)),
    "halves": ((2, 16, 32, 13, 12), (3, 3), (2, 2), (1, 1)),
    "thirds": ((2, 16, 16, 11, 10), (5, 5), (3, 3), (2, 2)),
    "large kernel": ((1, 48, 16, 9, 11), (7, 7), (2, 2), (3, 3)),
    "sides that differ": ((2, 16, 16, 6, 10), (2, 5), (1, 3), (0, 2)),
    "more padding than kernel": ((1, 16, 32, 3, 4), (1, 2), (1, 2), (2, 3)),
    "stride beyond the kernel": ((1, 16, 16, 9, 9), (2, 2), (4, 3), (1, 0)),
    "one pixel": ((1, 5, 16, 1, 1), (1, 1), (1, 1), (0, 0)),
}


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("shape", WINDOWS.values(), ids=WINDOWS.keys())
def test_a_convolution_by_windows(
    shape: tuple[tuple[int, ...], tuple[int, int], tuple[int, int], tuple[int, int]],
) -> None:
    (n, inputs, outputs, high, wide), kernel, stride, padding = shape
    x, weight = normal(n, inputs, high, wide), normal(outputs, inputs, *kernel, seed=1)
    bias, asked = normal(outputs, seed=2), inputs % native.LANES == 0
    x = x if asked else x.detach()
    expected = F.conv2d(x.double(), weight.double(), bias.double(), stride, padding)
    own = convolve(x, weight, bias, way="windows", stride=stride, padding=padding)
    close(own, expected, weight, bias, *([x] if asked else []))


APART: dict[str, tuple[tuple[int, ...], tuple[int, int], tuple[int, int], tuple[int, int]]] = {
    # batch, channels, height, width; kernel, stride, padding
    "usual": ((3, 48, 9, 8), (3, 3), (1, 1), (1, 1)),
    "halves": ((2, 16, 9, 10), (3, 3), (2, 2), (1, 1)),
    "large kernel": ((1, 32, 12, 14), (5, 11), (1, 2), (2, 5)),
    "pixels that nothing meets": ((2, 16, 8, 8), (1, 2), (3, 3), (0, 0)),
    "one pixel": ((1, 16, 1, 1), (1, 1), (1, 1), (2, 0)),
}


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("shape", APART.values(), ids=APART.keys())
@pytest.mark.parametrize("biased", [True, False])
def test_a_convolution_of_each_channel_for_itself(
    shape: tuple[tuple[int, ...], tuple[int, int], tuple[int, int], tuple[int, int]], biased: bool
) -> None:
    (n, channels, high, wide), kernel, stride, padding = shape
    x, weight = normal(n, channels, high, wide), normal(channels, 1, *kernel, seed=1)
    bias = normal(channels, seed=2) if biased else None
    right = None if bias is None else bias.double()
    expected = F.conv2d(x.double(), weight.double(), right, stride, padding, groups=channels)
    inputs = (x, weight) if bias is None else (x, weight, bias)
    close(convolve(x, weight, bias, way="apart", stride=stride, padding=padding), expected, *inputs)
    layers: list[Layer] = [
        Convolve(source=0, target=1, weight=0, bias=None, stride=stride, padding=padding, way="apart"),
        Convolve(source=0, target=2, weight=0, bias=None, stride=stride, padding=padding, way="apart"),
    ]
    made = Stretch(layers, used=frozenset([1, 2]))({0: x}, [weight])
    again = F.conv2d(x.double(), weight.double(), None, stride, padding, groups=channels)
    close(made[1] * made[2], again * again, x, weight)  # of what two use gradients add up


@pytest.mark.usefixtures("level")
def test_layers_in_a_row() -> None:
    x, stem, kernel = normal(3, 3, 7, 6).detach(), normal(16, 3, 3, 3, seed=1), normal(16, 16, 3, 3, seed=2)
    scale, shift, scales = normal(16, seed=3), normal(16, seed=4), normal(16, seed=5)
    layers: list[Layer] = [
        Convolve(source=0, target=1, weight=0, bias=None, padding=(1, 1), way="windows"),
        Normalise(source=1, added=None, target=2, groups=4, weight=2, bias=3, epsilon=1e-3, relu=1),
        Convolve(source=2, target=3, weight=1, bias=None, padding=(1, 1), way="tiles"),
        Normalise(source=3, added=None, target=4, groups=8, weight=4, bias=None, epsilon=1e-3, relu=0),
        Normalise(source=4, added=2, target=5, groups=1, weight=None, bias=None, epsilon=1e-3, relu=0),
    ]
    parameters = [stem, kernel, scale, shift, scales]
    made = Stretch(layers, used=frozenset([5]))({0: x}, parameters)[5]
    first = F.conv2d(x.double(), stem.double(), padding=1)
    first = F.group_norm(first, 4, scale.double(), shift.double(), 1e-3).relu()
    value = F.group_norm(F.conv2d(first, kernel.double(), padding=1), 8, scales.double(), eps=1e-3)
    close(made, F.group_norm(value, 1, eps=1e-3) + first, *parameters)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("ways", [("tiles", "windows"), ("windows", "tiles")])
def test_gradients_of_a_value_with_many_users_add_up(ways: tuple[Way, Way]) -> None:
    x, weights = normal(2, 16, 6, 7), [normal(16, 16, 3, 3, seed=seed) for seed in (1, 2)]
    layers: list[Layer] = [
        Normalise(source=0, added=0, target=1, groups=4, weight=None, bias=None, epsilon=1e-3, relu=1),
        Convolve(source=1, target=2, weight=0, bias=None, padding=(1, 1), way=ways[0]),
        Convolve(source=1, target=3, weight=1, bias=None, padding=(1, 1), way=ways[1]),
        Convolve(source=1, target=4, weight=0, bias=None, padding=(1, 1), way="windows"),  # with a kernel once more
        Normalise(source=2, added=3, target=5, groups=2, weight=None, bias=None, epsilon=1e-3, relu=0),
        Normalise(source=4, added=5, target=6, groups=2, weight=None, bias=None, epsilon=1e-3, relu=1),
    ]
    stretch = Stretch(layers, used=frozenset((1, 5, 6)))
    first = (F.group_norm(x.double(), 4, eps=1e-3) + x.double()).relu()
    a, b = (F.conv2d(first, weight.double(), padding=1) for weight in weights)
    fifth = F.group_norm(a, 2, eps=1e-3) + b
    sixth = (F.group_norm(a, 2, eps=1e-3) + fifth).relu()
    made = stretch({0: x}, weights)
    close(made[1] + made[5] * made[6], first + fifth * sixth, x, *weights)
    first = (F.group_norm(x.double(), 4, eps=1e-3) + x.double()).relu()
    fifth = F.group_norm(F.conv2d(first, weights[0].double(), padding=1), 2, eps=1e-3)
    fifth = fifth + F.conv2d(first, weights[1].double(), padding=1)
    close(stretch({0: x}, weights)[5], fifth, x, *weights)  # of the others nobody asks for a gradient


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("relu", [0, 1, 2])
@pytest.mark.parametrize("added", [True, False])
@pytest.mark.parametrize(("groups", "shape"), [(8, (3, 16, 5, 7)), (1, (2, 48, 1, 1)), (32, (2, 32, 4, 4))])
def test_a_group_norm(groups: int, shape: tuple[int, ...], added: bool, relu: Relu) -> None:
    x, more = normal(*shape, last=added), normal(*shape, last=relu > 0, seed=1) if added else None
    weight, bias = (5 * normal(shape[1], seed=2).detach()).requires_grad_(), normal(shape[1], seed=3)
    expected = F.group_norm(x.double(), groups, weight.double(), bias.double(), 1e-3)
    expected = expected if more is None else expected + more.double()
    expected = (expected, expected.relu(), F.relu6(expected))[relu]
    inputs = (x, weight, bias) if more is None else (x, weight, bias, more)
    close(group_norm(x, groups, weight, bias, 1e-3, added=more, relu=relu), expected, *inputs)


@pytest.mark.usefixtures("level")
def test_a_group_norm_of_values_far_from_zero() -> None:
    x = (1e3 + normal(2, 16, 8, 8).detach()).requires_grad_()
    own, right = group_norm(x, 4, None, None, 1e-5), F.group_norm(x.double(), 4, None, None, 1e-5)
    assert (own.double() - right).norm() <= 1e-3 * right.norm()


@pytest.mark.usefixtures("level")
def test_a_group_norm_whose_squares_overflow_is_not_finite() -> None:
    assert group_norm(1e20 * normal(1, 16, 4, 4), 4, None, None, 1e-5).isnan().all()


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("way", ["tiles", "windows"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_in_its_example_and_stays(bad: float, way: Way) -> None:
    images, weight = normal(3, 16, 8, 8).detach(), normal(16, 16, 3, 3).detach()
    images[1, 3, 4, 4] = bad
    out = group_norm(convolve(images, weight, way=way, padding=(1, 1)), 4, None, None, 1e-5, relu=1)
    finite = out.isfinite().flatten(1).all(1)
    assert finite.tolist() == [True, False, True]
    assert out[1].isnan().any()


def test_what_does_not_fit_is_refused() -> None:
    x, weight = normal(1, 16, 8, 8), normal(16, 16, 3, 3)
    refused: tuple[tuple[Callable[[], Tensor], str], ...] = (
        (lambda: convolve(x, normal(16, 32, 3, 3), padding=(1, 1)), "don't fit"),
        (lambda: convolve(x, normal(8, 16, 3, 3), padding=(1, 1)), "multiples of 16"),
        (lambda: convolve(x, normal(8, 16, 3, 3), way="windows", padding=(1, 1)), "multiples of 16"),
        (lambda: convolve(x, weight, way="apart", padding=(1, 1)), "apart"),
        (lambda: convolve(x, normal(32, 1, 3, 3), way="apart", padding=(1, 1)), "apart"),
        (lambda: convolve(x, weight, padding=(3, 3)), "padding"),
        (lambda: convolve(x, weight, padding=(1, 0)), "padding"),
        (lambda: convolve(x, weight, stride=(2, 2), padding=(1, 1)), "stride"),
        (lambda: convolve(x[:, :, :1], weight, padding=(0, 0)), "no output"),
        (lambda: convolve(x, weight, normal(3), padding=(1, 1)), "bias"),
        (lambda: convolve(x.double(), weight, padding=(1, 1)), "float64"),
        (lambda: convolve(normal(1, 3, 8, 8), normal(16, 3, 3, 3), way="windows", padding=(1, 1)), "gradients"),
        (lambda: group_norm(x, 3, None, None, 1e-5), "multiple of 16 and of 3"),
        (lambda: group_norm(x, 4, normal(3), None, 1e-5), "weight and bias"),
        (lambda: group_norm(x, 4, None, None, 1e-5, added=x[:, :, :1]), "added"),
    )
    for call, word in refused:
        with pytest.raises(ValueError, match=word):
            call()


class _Network(nn.Module):
    """A small residual network: strides, shortcuts with and without a norm, dropout, a norm that two layers use."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(4, 16)
        self.first, self.norm1 = nn.Conv2d(16, 16, 3, padding=1), nn.GroupNorm(2, 16)
        self.second, self.norm2 = nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.GroupNorm(8, 32, affine=False)
        self.short, self.norm3 = nn.Conv2d(16, 32, 1), nn.GroupNorm(8, 32)
        self.down, self.norm4 = nn.Conv2d(32, 16, 3, stride=2, padding=1), nn.GroupNorm(4, 16)
        self.same, self.drop, self.out = nn.Identity(), nn.Dropout2d(0.3), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = torch.relu(self.same(x) + self.norm1(self.first(x)))
        x = torch.relu(self.norm2(self.second(x)) + self.norm3(self.short(x)))
        x = self.norm4(self.drop(self.down(x)))
        x = x + torch.tanh(x)
        return self.same(self.out(x.mean((2, 3))))  # type: ignore[no-any-return]  # torch gives it no types


CHANGES: tuple[dict[str, Any], ...] = (
    {"momentum": 0.9, "weight_decay": 0.1, "mu": 0.5, "grad_clip": 0.2},
    {"name": "adam", "lr": 1e-3, "eps": 1e-2, "epochs": 2},  # which tells no noise in a gradient of nearly 0
)


@pytest.fixture(scope="module")
def module() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return _Network()


@pytest.mark.parametrize("changes", CHANGES, ids=["sgd", "adam"])
def test_clients_train_as_in_a_loop(module: nn.Module, changes: dict[str, Any]) -> None:
    holdings, chosen = make_holdings((1, 8, 8), [10, 3, 1]), settings(**changes)
    own = Run(module, holdings, chosen, form="images")
    own.equals(Run(module, holdings, chosen, form="loop"))
    for client in range(3):  # nothing of one client is left for the next
        alone = Run(module, holdings, chosen, form="images", clients=[client])
        assert (alone.updates[client] == own.updates[client]).all()


class _Native(nn.Module):
    """A network of which every layer is native, and so is the mean that a norm's result goes into besides."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16)
        self.first, self.norm1 = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.GroupNorm(2, 16)
        self.down, self.norm2 = nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.GroupNorm(8, 32)
        self.pool, self.out = nn.AdaptiveAvgPool2d(1), nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = torch.relu(x + self.norm1(self.first(x)))
        x = self.pool(torch.relu(self.norm2(self.down(x))))
        return self.out(torch.flatten(x, 1))  # type: ignore[no-any-return]  # torch gives it no types


@pytest.fixture(scope="module")
def native_module() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        return _Native()


@pytest.fixture(scope="module")
def mobile() -> nn.Module:
    """Convolutions of each channel for itself and across channels, and rectifiers that end at six."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.GroupNorm(4, 16), nn.ReLU6(inplace=True),
            nn.Conv2d(16, 16, 3, 2, 1, groups=16), nn.GroupNorm(4, 16), nn.ReLU6(),
            nn.Conv2d(16, 48, 1, bias=False), nn.GroupNorm(8, 48), nn.Hardtanh(0.0, 6.0),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, CLASSES),
        )  # fmt: skip


def test_mobile_networks_train_as_in_a_loop(mobile: nn.Module, descents: list[bool]) -> None:
    holdings, chosen = make_holdings((3, 9, 8), [12, 7], scale=9.0), settings(lr=0.01)
    own = Run(mobile, holdings, chosen, form="images")
    assert descents == [True, True]
    own.equals(Run(mobile, holdings, chosen, form="loop"))


def test_a_lone_client_of_a_mobile_network_is_left_to_torchs_threads() -> None:
    wide = nn.Sequential(
        nn.Conv2d(3, 64, 3, 1, 1), nn.GroupNorm(8, 64), nn.ReLU6(), nn.Conv2d(64, 64, 3, 1, 1, groups=64),
        nn.Conv2d(64, 128, 1), nn.GroupNorm(8, 128), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(128, CLASSES),
    )  # fmt: skip
    forms = [Run(wide, make_holdings((3, 16, 16), [8] * n), settings(batch_size=8), workers=2).form for n in (1, 2)]
    assert forms == ["loop", "images"]


@pytest.fixture
def descents(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether steps were taken in one call, of each client that asked."""
    told: list[bool] = []
    plain = Descent.descent

    def watched(self: Descent, *given: Any) -> bool:
        told.append(plain(self, *given))
        return told[-1]

    monkeypatch.setattr(Descent, "descent", watched)
    return told


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("workers", [1, 2])
def test_many_steps_in_one_call_are_those_of_a_loop(
    native_module: nn.Module, descents: list[bool], workers: int
) -> None:
    holdings, chosen = make_holdings((3, 9, 7), [48, 10, 3, 1, 8]), settings(epochs=2)
    own = Run(native_module, holdings, chosen, form="images", workers=workers)
    assert len(descents) == 5
    assert all(descents)
    own.equals(Run(native_module, holdings, chosen, form="loop"))
    alone = Run(native_module, holdings, chosen, form="images", clients=[1])
    assert (alone.updates[1] == own.updates[1]).all()  # nothing of one client is left for the next


@pytest.mark.parametrize("changes", CHANGES, ids=["sgd", "adam"])
def test_steps_that_are_not_plain_ones_are_taken_one_by_one(
    native_module: nn.Module, descents: list[bool], changes: dict[str, Any]
) -> None:
    holdings, chosen = make_holdings((3, 8, 8), [8, 5]), settings(**changes)
    Run(native_module, holdings, chosen, form="images").equals(Run(native_module, holdings, chosen, form="loop"))
    assert not descents


def test_a_loss_of_ones_own_and_labels_to_leave_out_are_torchs(native_module: nn.Module, descents: list[bool]) -> None:
    holdings = make_holdings((3, 8, 8), [8, 8])
    smooth: Loss = functools.partial(F.cross_entropy, reduction="none", label_smoothing=0.1)
    runs = [Run(native_module, holdings, settings(), form=form, loss=smooth) for form in ("images", "loop")]
    runs[0].equals(runs[1])
    assert not descents
    holdings.labels[holdings.rows[1][0]] = -100  # which F.cross_entropy leaves out
    runs = [Run(native_module, holdings, settings(), form=form) for form in ("images", "loop")]
    runs[0].equals(runs[1])
    assert descents == [True, False]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_in_its_client(native_module: nn.Module, bad: float) -> None:
    holdings = make_holdings((3, 8, 8), [8, 8])
    holdings.features[holdings.rows[0][0]] = bad
    own = Run(native_module, holdings, settings(), form="images")
    assert not np.isfinite(own.updates[0]).any()
    assert not np.isfinite(own.losses[0])
    assert np.isfinite(own.updates[1]).all()


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize(("shape", "outputs"), [((3, 16, 5, 7), 1), ((1, 48, 1, 1), 33), ((7, 32, 4, 4), 3)])
@pytest.mark.parametrize("flat", [True, False])
def test_a_mean_and_a_linear_layer(shape: tuple[int, ...], outputs: int, flat: bool) -> None:
    x, weight, bias = normal(*shape), normal(outputs, shape[1], seed=1), normal(outputs, seed=2)
    layers: list[Layer] = [Average(source=0, target=1, flat=flat), Line(source=1, target=2, weight=0, bias=1)]
    both = Stretch(layers, used=frozenset([1, 2]))({0: x}, [weight, bias])
    mean = x.double().mean((2, 3))
    expected = F.linear(mean, weight.double(), bias.double())
    assert both[2].shape == (1, *expected.shape)
    close(both[2][0] * both[1].flatten().sum(), expected * mean.sum(), x, weight, bias)
    twice = [*layers, Line(source=1, target=3, weight=0, bias=None)]
    made = Stretch(twice, used=frozenset([2, 3]))({0: x}, [weight, bias])
    again = F.linear(x.double().mean((2, 3)), weight.double())
    close(made[2][0] * made[3][0], (again + bias.double()) * again, x, weight, bias)


def test_the_form_is_taken_where_a_client_keeps_a_core_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        wide = Custom(
            lambda m, x: m.out(torch.tanh(m.b(torch.tanh(m.a(x)))).mean((2, 3))),  # no step that rounding may take
            a=nn.Conv2d(1, 64, 3, padding=1, stride=2),
            b=nn.Conv2d(64, 64, 3, padding=1),
            out=nn.Linear(64, CLASSES),
        )
    holdings = make_holdings((1, 32, 32), [8, 8])
    run = Run(wide, holdings, settings(batch_size=8))
    assert (run.form, "native" in run.reason) == ("images", True)
    assert Run(wide, make_holdings((1, 8, 8), [8, 8]), settings(batch_size=1)).form != "images"
    assert Run(wide, holdings, settings(batch_size=8), workers=5).form == "loop"  # which has three more cores to use
    monkeypatch.setattr(native, "kernels", None)
    without = Run(wide, holdings, settings(batch_size=8))
    assert without.form == "loop"
    run.equals(without)


def test_a_norm_is_joined_with_what_is_behind_it_once(module: nn.Module) -> None:
    keyed = copy.deepcopy(module)
    use_keys(keyed)
    program = trace(graph_of(keyed), Parameters.of(keyed), torch.zeros(1, 8, 8))
    shapes = [slot.shape for slot in Parameters.of(keyed).trained]
    layers = [own.layer for own in instructions(program, shapes, 4)]
    stretches = [
        own for own in joined(instructions(program, shapes, 4), len(program.steps)) if isinstance(own, Stretch)
    ]
    assert [len(own.layers) for own in stretches] == [9, 1, 2]  # dropout and tanh are between them
    assert not any(own.layer for own in instructions(program, shapes, 0))
    ways = [own.way for own in layers if isinstance(own, Convolve)]
    assert ways == ["windows", "tiles", "tiles", "windows", "windows"]
    assert [(len(own.sources), own.relu) for own in layers if isinstance(own, Normalise)] == [
        (1, 1),  # norm
        (2, 1),  # norm1, and the shortcut
        (1, 0),  # norm3
        (2, 1),  # norm2, and norm3
        (1, 0),  # norm4, which two steps use
    ]


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_torchs_default_type_changes_nothing(module: nn.Module, default: torch.dtype) -> None:
    holdings = make_holdings((1, 8, 8), [3])
    usual = Run(module, holdings, settings(), form="images")
    torch.set_default_dtype(default)
    try:
        Run(module, holdings, settings(), form="images").equals(usual, exactly=True)
    finally:
        torch.set_default_dtype(torch.float32)
