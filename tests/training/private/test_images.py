"""Convolutions and group norms of private passes by native kernels: against PyTorch, and against autograd alone."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.grad import conv2d_weight
from torch.utils.checkpoint import checkpoint

from tacit.training import native
from tacit.training.cpu import innermost
from tacit.training.native import available
from tacit.training.private import images
from tacit.training.private.clipping import Clipping
from tacit.training.private.gradient import Form, PrivateGradient
from tacit.training.program import Pair
from tacit.training.settings import cross_entropy

pytestmark = pytest.mark.skipif(not available(), reason="the native kernels were not built, or the CPU has no AVX2")

LEVELS: list[str] = native.kernels.levels() if available() else []
LAST = torch.channels_last


@pytest.fixture(params=range(len(LEVELS)), ids=LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[None]:
    native.kernels.use_level(request.param)
    yield
    native.kernels.use_level(len(LEVELS) - 1)


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Residual(nn.Module):
    """Stages of all kinds: tiles, strides, a stem of three channels, a shortcut, positions few and many."""

    def __init__(self, width: int = 16, *, inplace: bool = False, bias: bool = True) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=bias)
        self.norm1 = nn.GroupNorm(4, width)
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=bias)
        self.norm2 = nn.GroupNorm(8, width)
        self.down = nn.Conv2d(width, 8 * width, 3, 2, 1, bias=bias)
        self.short = nn.Conv2d(width, 8 * width, 1, 2, bias=False)
        self.norm3 = nn.GroupNorm(2, 8 * width)
        self.wide = nn.Conv2d(8 * width, 8 * width, 3, 2, padding=1, bias=bias)
        self.last = nn.Conv2d(8 * width, 8 * width, 3, padding=1, bias=bias)
        self.relu = nn.ReLU(inplace=inplace)
        self.out = nn.Linear(8 * width, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm1(self.stem(x)))
        x = self.relu(self.norm2(self.first(x)) + x)
        x = self.relu(self.norm3(self.down(x)) + self.short(x))
        x = self.last(self.relu(self.wide(x)))
        return self.out(x.mean((2, 3)))  # type: ignore[no-any-return]  # torch gives it no types


def data(examples: int, side: int = 14) -> tuple[Tensor, Tensor]:
    labels = torch.randint(0, 5, (examples,), generator=torch.Generator().manual_seed(1))
    return normal(examples, 3, side, side), labels


def private(model: nn.Module, *, bound: float = 0.1) -> PrivateGradient:
    own = PrivateGradient(model=model, loss=cross_entropy, clipping=Clipping(bound=bound), example=data(6))
    assert own.form == "book-keeping"
    own._repeated = None  # tiny models too
    own._lay_out, own._form.natively = innermost, True  # type: ignore[union-attr]  # book-keeping's
    return own


def expected(model: nn.Module, features: Tensor, labels: Tensor, bound: float) -> tuple[list[Tensor], Tensor]:
    """Return clipped sums and norms by autograd in double precision, one example after the other."""
    own = copy.deepcopy(model).double()
    sums, norms = [torch.zeros_like(p) for p in own.parameters()], []
    for x, y in zip(features, labels, strict=True):
        loss = F.cross_entropy(own(x[None].double()), y[None])
        gradients = torch.autograd.grad(loss, list(own.parameters()))
        norms.append(torch.stack([g.square().sum() for g in gradients]).sum().sqrt())
        torch._foreach_add_(sums, [gradient * (bound / norms[-1]).clamp(max=1.0) for gradient in gradients])
    return sums, torch.stack(norms)


@pytest.mark.usefixtures("level", "threads")
@pytest.mark.parametrize("examples", [1, 5])
@pytest.mark.parametrize("build", [Residual, lambda: Residual(32, inplace=True, bias=False)])
def test_clipped_sums_are_those_of_autograd(build: Callable[[], nn.Module], examples: int) -> None:
    torch.manual_seed(0)
    model = build()
    own = private(model)
    features, labels = data(examples)
    sums, losses = own.sums(features, labels)
    wanted, norms = expected(model, features, labels, 0.1 * (1.0 - 2.0**-16))
    for found, right in zip(sums, wanted, strict=True):
        assert found.dtype == torch.float64
        assert found.shape == right.shape
        torch.testing.assert_close(found, right, rtol=1e-3, atol=2e-5 * float(right.abs().max()))
    torch.testing.assert_close(own.norms(features, labels).double(), norms, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(losses, F.cross_entropy(model(features), labels, reduction="none"), rtol=1e-4, atol=1e-5)


class Forgetful(nn.Module):
    """Keeps nothing of parts of the forward pass and computes them again on the way back."""

    def __init__(self, *parts: nn.Module, check: str = "default") -> None:
        super().__init__()
        self.parts, self.check = nn.ModuleList(parts), check

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = checkpoint(part, x, use_reentrant=False, determinism_check=self.check)
        return x


def stages(width: int) -> list[nn.Module]:
    """Return a stem, a stage whose images may have the shape of its weight, and a head."""
    tiles = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(2, width), nn.Tanh())
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 5))
    return [nn.Conv2d(3, width, 3, padding=1), tiles, head]


@pytest.mark.parametrize("check", ["default", "none"])
@pytest.mark.parametrize(
    ("build", "side", "examples"), [(lambda: [Residual()], 14, 4), (lambda: stages(16), 3, 16)], ids=["any", "alike"]
)
def test_what_is_computed_again_on_the_way_back_is_of_the_same_kernels(
    build: Callable[[], list[nn.Module]], side: int, examples: int, check: str
) -> None:
    """Where a torch's layer's saved tensors are taken for a native one's, no bound holds."""
    torch.manual_seed(0)
    model = Forgetful(*build(), check=check)
    own = private(model)
    features, labels = data(examples, side)
    wanted, _ = expected(model, features, labels, 0.1 * (1.0 - 2.0**-16))
    for _ in range(2):
        found, _ = own.sums(features, labels)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=2e-5 * float(other.abs().max()))


def test_a_norm_before_all_that_trains_may_be_computed_again() -> None:
    """With channels innermost its backward pass would end the process."""
    torch.manual_seed(0)
    first, (stem, tiles, head) = nn.GroupNorm(4, 16), stages(16)
    stem.requires_grad_(False)
    own = private(Forgetful(stem, first, tiles, head))
    for _ in range(3):
        sums, _ = own.sums(*data(9))
    assert not own._form.natively  # type: ignore[union-attr]  # book-keeping's
    assert sums[0].any()


def test_no_kernel_is_native_where_somebody_handles_what_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    x, layer = normal(3, 16, 9, 10), nn.Conv2d(16, 16, 3)

    def native_now() -> bool:
        with images.Natively():
            return isinstance(layer(x).grad_fn, images._Convolution._backward_cls)

    assert native_now()
    with torch.autograd.graph.save_on_cpu():
        assert not native_now()
    monkeypatch.delattr(torch._C._autograd, "_top_saved_tensors_default_hooks")
    assert not native_now()


def test_another_default_type_changes_nothing() -> None:
    torch.manual_seed(0)
    own = private(Residual())
    sums, _ = own.sums(*data(3))
    given = data(3)
    torch.set_default_dtype(torch.float64)
    try:
        found, _ = own.sums(*given)
    finally:
        torch.set_default_dtype(torch.float32)
    for one, other in zip(found, sums, strict=True):
        torch.testing.assert_close(one, other)


def test_native_passes_are_taken_where_layers_suit() -> None:
    assert images.suits(Residual())
    assert not images.suits(nn.Sequential(nn.Conv2d(3, 16, 3), nn.GroupNorm(2, 16)))  # no tiles of three channels
    assert not images.suits(
        nn.Sequential(nn.Conv2d(16, 16, 3), nn.GroupNorm(2, 16), nn.Conv2d(16, 8, 3), nn.GroupNorm(2, 8))
    )
    assert not images.suits(nn.Conv2d(16, 16, 3, padding="same"))
    assert not images.suits(nn.Conv2d(16, 16, 3).double())
    assert not images.suits(nn.Conv2d(32, 32, 3, groups=2))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e30])
def test_an_example_that_is_not_finite_takes_no_part(bad: float) -> None:
    torch.manual_seed(0)
    own = private(Residual())
    features, labels = data(5)
    features[2, 1, 3, 3] = bad
    sums, _ = own.sums(features, labels)
    rest = [i for i in range(5) if i != 2]
    without, _ = own.sums(features[rest], labels[rest])
    for found, right in zip(sums, without, strict=True):
        assert found.isfinite().all()
        if bad == 1e30:  # group norm makes a picture of it that is as good as any other
            continue
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-6 * float(right.abs().max()))


@pytest.mark.usefixtures("level")
def test_no_example_adds_more_than_the_bound() -> None:
    torch.manual_seed(0)
    own = private(Residual(), bound=0.01)
    features, labels = data(3)
    for i in range(3):
        sums, _ = own.sums(features[i : i + 1], labels[i : i + 1])
        norm = float(torch.stack([total.square().sum() for total in sums]).sum().sqrt())
        assert 0.0099 < norm <= 0.01


@pytest.mark.usefixtures("level", "threads")
@pytest.mark.parametrize(
    ("sizes", "kernel", "stride", "padding", "dilation"),
    [
        ((3, 5, 7, 6, 5), (3, 3), (1, 1), (1, 1), (1, 1)),
        ((4, 17, 3, 9, 7), (2, 3), (2, 1), (0, 2), (1, 2)),
        ((2, 40, 10, 5, 5), (1, 1), (2, 2), (0, 0), (1, 1)),
        ((1, 8, 16, 7, 7), (5, 5), (1, 1), (2, 2), (1, 1)),
        ((40, 64, 50, 15, 16), (3, 3), (1, 1), (1, 1), (1, 1)),  # more than is put in order at a time
    ],
)
def test_sums_and_norms_straight_from_images(
    sizes: tuple[int, ...], kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> None:
    n, c, o, high, wide = sizes
    x, weight = normal(n, c, high, wide), (o, c, *kernel)
    e = torch.randn_like(F.conv2d(x, torch.zeros(weight), None, stride, padding, dilation))
    factors = torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    factors[n // 2] = 0.0
    gradients = torch.stack(
        [
            conv2d_weight(own[None].double(), weight, grad[None].double(), stride, padding, dilation)  # type: ignore[no-untyped-call]  # torch gives it no types
            for own, grad in zip(x, e, strict=True)
        ]
    )
    padded = F.pad(x, (padding[1], padding[1], padding[0], padding[0]))
    squares, reach = images.Read(padded, e, kernel=kernel, stride=stride, dilation=dilation).gram()
    torch.testing.assert_close(squares, gradients.square().flatten(1).sum(1), rtol=1e-12, atol=0.0)
    positions = F.unfold(x.double(), kernel, dilation, padding, stride).norm(dim=1) * e.double().flatten(2).norm(dim=1)
    torch.testing.assert_close(reach, positions.sum(1).square(), rtol=1e-12, atol=0.0)
    padded[n // 2] = torch.nan  # what has the factor zero is not read
    own = images.Read(padded, e, kernel=kernel, stride=stride, dilation=dilation)
    wanted = (factors.view(-1, 1, 1, 1, 1) * gradients).sum(0)
    torch.testing.assert_close(
        own.combined(factors).view(weight), wanted, rtol=0.0, atol=1e-13 * float(wanted.abs().max() + 1)
    )
    assert not own.combined(torch.zeros_like(factors)).any()
    with pytest.raises(ValueError, match="expected gradients"):
        images.Read(padded, e[:, :, 1:], kernel=(2, 2))
    with pytest.raises(ValueError, match="factors of float64"):
        own.combined(factors.float())


@pytest.mark.parametrize(
    "sizes",
    [(1, 0, 4, 3, 2, 1, 1, 1, 1, 1, 1), (1, 4, 4, 3, 2, 5, 1, 1, 1, 1, 1), (1, 4, 4, 3, 2, 3, 3, 1, 1, 2, 2)],
)
def test_what_is_no_convolution_is_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="no convolution"):
        native.kernels.gram(0, 0, 0, *sizes, 1)
    with pytest.raises(ValueError, match="no convolution"):
        native.kernels.clipped(0, 0, 0, 0, *sizes, 1)


@pytest.mark.usefixtures("level", "threads")
def test_layers_under_the_mode_compute_what_torch_computes() -> None:
    """Of each image by itself: gradients of scale and shift come by example."""
    x = normal(3, 16, 9, 10).contiguous(memory_format=LAST).requires_grad_()
    layer, norm = nn.Conv2d(16, 144, 3, padding=2), nn.GroupNorm(3, 144)
    nn.init.normal_(norm.weight)
    with images.Natively():
        between = layer(x)
        out = norm(between)
    assert images.is_norm(out.grad_fn)
    right = norm(layer(x))
    torch.testing.assert_close(out, right, rtol=1e-4, atol=1e-5)
    grad = normal(*out.shape, seed=3)
    (found,) = torch.autograd.grad(out, [x], grad)
    torch.testing.assert_close(found, *torch.autograd.grad(right, [x], grad), rtol=1e-3, atol=1e-4)
    scales, shifts = images.formed(out.grad_fn)
    for i in range(3):
        alone = norm(between[i : i + 1].detach().contiguous())
        wanted = torch.autograd.grad(alone, [norm.weight, norm.bias], grad[i : i + 1])
        torch.testing.assert_close((scales[i], shifts[i]), wanted, rtol=1e-4, atol=1e-4)


def test_what_the_kernels_can_not_is_torchs() -> None:
    x = normal(2, 16, 8, 8).requires_grad_()
    layer = nn.Conv2d(16, 16, 3)
    with images.Natively():
        computed = F.conv2d(x, 2.0 * layer.weight)  # a weight that is computed needs its gradient
        words = F.conv2d(x, layer.weight, padding="same")
        small = F.group_norm(normal(2, 8, 4, 4), 2, torch.ones(8), torch.zeros(8))
        flat = F.group_norm(normal(2, 16), 2, torch.ones(16), torch.zeros(16))
        few = F.conv2d(normal(1, 16, 3, 3), layer.weight)  # one output of a tile
        unscaled = F.group_norm(x, 4)
    assert not any(images.is_norm(own.grad_fn) for own in (small, flat, unscaled))
    torch.autograd.grad(computed.sum(), [layer.weight])
    torch.testing.assert_close(words, F.conv2d(x, layer.weight, padding="same"))
    torch.testing.assert_close(few, F.conv2d(normal(1, 16, 3, 3), layer.weight))


def test_layers_take_their_images_by_name_and_parameters_that_lie_apart() -> None:
    x, layer = normal(3, 16, 9, 10), nn.Conv2d(16, 16, 3)
    layer.bias = nn.Parameter(normal(32)[::2])
    with images.Natively():
        convolved = F.conv2d(input=x, weight=layer.weight, bias=layer.bias)
        normalised = F.group_norm(input=x, num_groups=4, weight=layer.bias, bias=layer.bias)
        found = layer(x)
    assert isinstance(found.grad_fn, images._Convolution._backward_cls)
    assert images.is_norm(normalised.grad_fn)
    for own in (found, convolved):
        torch.testing.assert_close(own, layer(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(normalised, F.group_norm(x, 4, layer.bias, layer.bias), rtol=1e-4, atol=1e-5)


class Viewed(nn.Module):
    """Takes a view of what its layers compute: there is none of images with their channels innermost."""

    def __init__(self, channels: int, *, norm: bool) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.layer = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.GroupNorm(2, channels) if norm else nn.Identity()
        self.out = nn.Linear(100 * channels, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.norm(self.layer(self.stem(x))))
        return self.out(x.view(len(x), -1))  # type: ignore[no-any-return]  # torch gives it no types


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("channels", [6, 16])
@pytest.mark.parametrize("form", ["auto", "functional"])
def test_a_model_may_take_views_of_its_images(channels: int, norm: bool, form: Form) -> None:
    torch.manual_seed(0)
    model = Viewed(channels, norm=norm)
    features, labels = data(9, 10)
    own = PrivateGradient(
        model=model, loss=cross_entropy, clipping=Clipping(bound=0.1), example=(features, labels), form=form
    )
    assert own.form == ("functional" if form == "functional" else "book-keeping")
    wanted, _ = expected(model, features, labels, 0.1 * (1.0 - 2.0**-16))
    for found, right in zip(own.sums(features, labels)[0], wanted, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-3, atol=2e-5 * float(right.abs().max()))


@pytest.mark.parametrize("frozen", [True, False])
def test_a_group_norm_before_all_that_asks_for_gradients_trains_on_images_in_any_order(frozen: bool) -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(4, 4, 1).requires_grad_(not frozen), nn.GroupNorm(4, 4), nn.Flatten(), nn.Linear(256, 3)]
    model = nn.Sequential(*layers[1 - frozen :])
    features, labels = torch.randn(9, 4, 8, 8).contiguous(memory_format=torch.channels_last), torch.arange(9) % 3
    own = PrivateGradient(model=model, loss=cross_entropy, clipping=Clipping(bound=1e6), example=(features, labels))
    expected = torch.autograd.grad(cross_entropy(model(features.contiguous()), labels).sum(), own.parameters)
    for found, gradient in zip(own.sums(features, labels)[0], expected, strict=True):
        torch.testing.assert_close(found.float(), gradient, rtol=1e-4, atol=1e-5)
