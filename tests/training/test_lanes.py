"""Native kernels against PyTorch in float64, client by client."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tacit.training.lanes import network
from tacit.training.lanes.network import available, conv2d, linear, max_pool2d

pytestmark = pytest.mark.skipif(not available(), reason="the native kernels were not built (no C compiler)")

LEVELS: list[str] = network._kernels.levels() if available() else []


@pytest.fixture(params=range(len(LEVELS)), ids=LEVELS, autouse=True)
def level(request: pytest.FixtureRequest) -> Iterator[None]:
    network._kernels.use_level(request.param)
    yield
    network._kernels.use_level(len(LEVELS) - 1)


def close(actual: Tensor, expected: Tensor) -> None:
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-5 * max(1.0, expected.abs().max().item()))


def values(generator: torch.Generator, *shape: int, exact: bool = False) -> Tensor:
    """Normal, or multiples of 1/4 whose sums are exact: then no rounding moves a maximum or crosses zero."""
    x = torch.randn(shape, generator=generator)
    return (x.mul(4).round().div(4) if exact else x).requires_grad_()


def reference_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None, clients_in_lanes: bool, pool: int, relu: bool
) -> Tensor:
    """One F.conv2d a client, in float64, on PyTorch's own layout."""
    clients = []
    for k in range(x.shape[-1] if clients_in_lanes else x.shape[0]):
        image = x[..., k].permute(0, 3, 1, 2) if clients_in_lanes else x[k].permute(3, 2, 0, 1)
        axis = -1 if clients_in_lanes else 0
        out = F.conv2d(
            image.double(),
            weight.double().select(axis, k),
            None if bias is None else bias.double().select(axis, k),
        )
        out = F.max_pool2d(out, pool)
        out = out.relu() if relu else out
        clients.append(out.permute(0, 2, 3, 1) if clients_in_lanes else out.permute(2, 3, 1, 0))
    return torch.stack(clients, -1 if clients_in_lanes else 0)


def check_gradients(actual: Tensor, expected: Tensor, inputs: list[Tensor], generator: torch.Generator) -> None:
    close(actual, expected)
    grad = torch.randn(actual.shape, generator=generator)
    for got, want in zip(
        torch.autograd.grad(actual, inputs, grad),
        torch.autograd.grad(expected, inputs, grad.double()),
        strict=True,
    ):
        close(got, want.double())


def check_conv(
    n: int,
    size: tuple[int, int],
    channels: tuple[int, int],
    kernel: tuple[int, int],
    lanes: int,
    *,
    clients_in_lanes: bool,
    pool: int = 1,
    relu: bool = False,
    with_bias: bool = True,
    seed: int = 0,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    ci, co = channels
    exact = pool > 1 or relu
    x = values(generator, n, *size, ci, lanes, exact=exact)
    shape = (co, ci, *kernel, lanes) if clients_in_lanes else (n, co, ci, *kernel)
    weight = values(generator, *shape, exact=exact)
    width = (co, lanes) if clients_in_lanes else (n, co)
    bias = values(generator, *width, exact=exact) if with_bias else None
    actual = conv2d(x, weight, bias, clients_in_lanes=clients_in_lanes, pool=pool, relu=relu)
    expected = reference_conv(x, weight, bias, clients_in_lanes, pool, relu)
    check_gradients(actual, expected, [p for p in (x, weight, bias) if p is not None], generator)


@pytest.mark.parametrize("clients_in_lanes", [True, False])
@pytest.mark.parametrize(
    ("n", "size", "channels", "kernel", "lanes", "pool", "relu"),
    [
        (2, (28, 28), (1, 10), (5, 5), 16, 2, True),
        (2, (12, 12), (10, 20), (5, 5), 16, 2, True),
        (3, (12, 12), (10, 20), (5, 5), 32, 1, False),
        (2, (9, 7), (33, 2), (3, 2), 16, 3, False),
        (1, (5, 6), (2, 33), (4, 1), 64, 1, True),
        (2, (4, 13), (7, 6), (1, 4), 16, 2, False),
        (3, (5, 4), (3, 11), (1, 1), 16, 1, True),
        (2, (6, 5), (4, 5), (1, 1), 32, 2, True),
        (2, (3, 3), (5, 5), (3, 3), 16, 1, False),
        (4, (1, 9), (1, 1), (1, 5), 32, 1, True),
        (5, (1, 1), (6, 3), (1, 1), 16, 1, False),
    ],
)
def test_conv2d_equals_torch(
    n: int,
    size: tuple[int, int],
    channels: tuple[int, int],
    kernel: tuple[int, int],
    lanes: int,
    pool: int,
    relu: bool,
    clients_in_lanes: bool,
) -> None:
    check_conv(n, size, channels, kernel, lanes, clients_in_lanes=clients_in_lanes, pool=pool, relu=relu)


@pytest.mark.parametrize("clients_in_lanes", [True, False])
@pytest.mark.parametrize("width", range(1, 13))
def test_conv2d_of_every_width(width: int, clients_in_lanes: bool) -> None:
    for kw in range(1, min(width, 5) + 1):
        check_conv(2, (3, width), (2, width), (2, kw), 16, clients_in_lanes=clients_in_lanes, with_bias=kw % 2 == 0)


def test_conv2d_of_any_shape() -> None:
    @settings(max_examples=40, deadline=None)
    @given(
        n=st.integers(1, 4),
        size=st.tuples(st.integers(1, 11), st.integers(1, 11)),
        channels=st.tuples(st.integers(1, 33), st.integers(1, 33)),
        kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
        lanes=st.sampled_from([16, 32, 64]),
        clients_in_lanes=st.booleans(),
        pool=st.integers(1, 3),
        relu=st.booleans(),
        seed=st.integers(0, 2**31),
    )
    def check(
        n: int,
        size: tuple[int, int],
        channels: tuple[int, int],
        kernel: tuple[int, int],
        lanes: int,
        clients_in_lanes: bool,
        pool: int,
        relu: bool,
        seed: int,
    ) -> None:
        assume(all(side - k + 1 >= pool for side, k in zip(size, kernel, strict=True)))
        check_conv(
            n,
            size,
            channels,
            kernel,
            lanes,
            clients_in_lanes=clients_in_lanes,
            pool=pool,
            relu=relu,
            with_bias=seed % 4 > 0,
            seed=seed,
        )

    check()


@pytest.mark.parametrize("clients_in_lanes", [True, False])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize(
    ("n", "features", "outputs", "lanes"), [(10, 320, 50, 16), (5, 50, 10, 64), (1, 1, 1, 16), (3, 17, 33, 32)]
)
def test_linear_equals_torch(
    n: int, features: int, outputs: int, lanes: int, relu: bool, clients_in_lanes: bool
) -> None:
    generator = torch.Generator().manual_seed(1)
    x = values(generator, n, features, lanes, exact=relu)
    shape = (outputs, features, lanes) if clients_in_lanes else (n, outputs, features)
    weight = values(generator, *shape, exact=relu)
    bias = values(generator, *((outputs, lanes) if clients_in_lanes else (n, outputs)), exact=relu)
    actual = linear(x, weight, bias, clients_in_lanes=clients_in_lanes, relu=relu)
    if clients_in_lanes:
        expected = torch.einsum("nfl,gfl->ngl", x.double(), weight.double()) + bias.double()
    else:
        expected = torch.einsum("nfl,ngf->ngl", x.double(), weight.double()) + bias.double().unsqueeze(-1)
    check_gradients(actual, expected.relu() if relu else expected, [x, weight, bias], generator)


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize(("size", "kernel"), [((24, 24), 2), ((7, 5), 2), ((8, 10), 3), ((3, 2), 1), ((15, 16), 15)])
def test_max_pool2d_equals_torch(size: tuple[int, int], kernel: int, relu: bool) -> None:
    generator = torch.Generator().manual_seed(2)
    x = values(generator, 2, *size, 3, 32)
    expected = F.max_pool2d(x.double().permute(0, 3, 4, 1, 2).flatten(1, 2), kernel)
    expected = expected.reshape(2, 3, 32, *expected.shape[2:]).permute(0, 3, 4, 1, 2)
    actual = max_pool2d(x, kernel, relu)
    check_gradients(actual, expected.relu() if relu else expected, [x], generator)


@pytest.mark.parametrize("kernel", [2, 3])
def test_ties_send_the_gradient_to_the_first_maximum(kernel: int) -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(0, 3, (2, 9, 9, 2, 16), generator=generator).float().requires_grad_()
    expected = F.max_pool2d(x.permute(0, 3, 4, 1, 2).flatten(1, 2), kernel)
    (want,) = torch.autograd.grad(expected.sum(), x)
    (got,) = torch.autograd.grad(max_pool2d(x, kernel).sum(), x)
    assert torch.equal(got, want)


def test_pooling_keeps_nan_and_relu_stops_at_zero() -> None:
    x = torch.zeros(1, 2, 2, 1, 16)
    x[0, 0, 0, 0, 1] = torch.nan
    x[0, 0, 1, 0, 1] = 5.0
    x[0, 1, 1, 0, 2] = 3.0
    x.requires_grad_()
    out = max_pool2d(x, 2, relu=True)
    assert out[0, 0, 0, 0, 1].isnan()
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert grad[0, :, :, 0, 0].eq(0).all()
    assert grad[0, 0, 0, 0, 1] == 1
    assert grad[0, 1, 1, 0, 2] == 1


def test_fused_layer_equals_its_parts() -> None:
    generator = torch.Generator().manual_seed(4)
    x, weight = values(generator, 2, 10, 11, 3, 16), values(generator, 6, 3, 3, 3, 16)
    fused = conv2d(x, weight, clients_in_lanes=True, pool=2, relu=True)
    parts = max_pool2d(conv2d(x, weight, clients_in_lanes=True), 2, relu=True)
    assert torch.equal(fused, parts)
    grad = torch.randn(fused.shape, generator=generator)
    for got, want in zip(
        torch.autograd.grad(fused, [x, weight], grad), torch.autograd.grad(parts, [x, weight], grad), strict=True
    ):
        torch.testing.assert_close(got, want)


def test_input_gradient_is_optional() -> None:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(2, 6, 6, 1, 16, generator=generator)
    weight = values(generator, 4, 1, 3, 3, 16)
    out = conv2d(x, weight, clients_in_lanes=True)
    (got,) = torch.autograd.grad(out.sum(), weight)
    (want,) = torch.autograd.grad(conv2d(x.requires_grad_(), weight, clients_in_lanes=True).sum(), weight)
    assert torch.equal(got, want)


def test_slices_of_one_flat_vector_per_client() -> None:
    generator = torch.Generator().manual_seed(6)
    flat = torch.randn(3, 100, generator=generator)
    x = torch.randn(3, 5, 5, 2, 16, generator=generator)
    weight, bias = flat[:, 7:79].view(3, 4, 2, 3, 3), flat[:, 79:83]
    expected = conv2d(x, weight.contiguous(), bias.contiguous(), clients_in_lanes=False)
    assert torch.equal(conv2d(x, weight, bias, clients_in_lanes=False), expected)


def test_threads_do_not_disturb_each_other() -> None:
    generator = torch.Generator().manual_seed(7)
    inputs = [torch.randn(4, 12, 12, 3, 16, generator=generator) for _ in range(4)]
    weight = torch.randn(8, 3, 5, 5, 16, generator=generator)
    expected = [conv2d(x, weight, clients_in_lanes=True, pool=2, relu=True) for x in inputs]
    results: dict[int, bool] = {}

    def work(i: int) -> None:
        results[i] = all(
            torch.equal(conv2d(inputs[i], weight, clients_in_lanes=True, pool=2, relu=True), expected[i])
            for _ in range(20)
        )

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == dict.fromkeys(range(4), True)


X = torch.zeros(2, 6, 6, 3, 16)
W = torch.zeros(4, 3, 3, 3, 16)
B = torch.zeros(4, 16)


@pytest.mark.parametrize(
    ("x", "weight", "bias", "pool", "match"),
    [
        (X[0], W, B, 1, "5 dimensions"),
        (X, W[..., 0], B, 1, "5 dimensions"),
        (X, torch.zeros(4, 2, 3, 3, 16), B, 1, "does not fit"),
        (X, torch.zeros(4, 3, 3, 3, 32), B, 1, "does not fit"),
        (X, torch.zeros(4, 3, 7, 3, 16), B, 1, "too small"),
        (X, W, B, 5, "too small"),
        (X, W, B, 0, "pool is 0"),
        (X, W, B, 16, "pool is 16"),
        (X, W, torch.zeros(3, 16), 1, "bias is"),
        (X.double(), W, B, 1, "contiguous float32"),
        (X.transpose(1, 2), W, B, 1, "contiguous float32"),
        (X, W.double(), B, 1, "must be float32"),
        (X, W.transpose(2, 3), B, 1, "must be contiguous"),
        (X, W, torch.zeros(16, 4).T, 1, "must be contiguous"),
        (X[..., :8].contiguous(), W[..., :8].contiguous(), B[..., :8].contiguous(), 1, "multiple of 16"),
        (X[:0], W, B, 1, "no size may be zero"),
        (X, W[:0], B[:0], 1, "not empty"),
    ],
)
def test_conv2d_refuses(x: Tensor, weight: Tensor, bias: Tensor, pool: int, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        conv2d(x, weight, bias, clients_in_lanes=True, pool=pool)


def test_linear_and_pool_refuse() -> None:
    x = torch.zeros(2, 8, 16)
    with pytest.raises(ValueError, match="3 dimensions"):
        linear(X, torch.zeros(4, 8, 16), clients_in_lanes=True)
    with pytest.raises(ValueError, match="does not fit"):
        linear(x, torch.zeros(4, 7, 16), clients_in_lanes=True)
    with pytest.raises(ValueError, match="does not fit"):
        linear(x, torch.zeros(3, 4, 8), clients_in_lanes=False)
    with pytest.raises(ValueError, match="must be contiguous"):
        linear(x, torch.zeros(2, 8, 4).transpose(1, 2), clients_in_lanes=False)
    with pytest.raises(ValueError, match="5 dimensions"):
        max_pool2d(x, 2)
    with pytest.raises(ValueError, match="kernel is 7"):
        max_pool2d(X, 7)
    with pytest.raises(ValueError, match="contiguous float32"):
        max_pool2d(X.double(), 2)


def test_second_derivatives_are_refused() -> None:
    weight = torch.ones(1, 1, 1, 1, 16, requires_grad=True)
    (grad,) = torch.autograd.grad(
        conv2d(torch.ones(1, 1, 1, 1, 16), weight, clients_in_lanes=True).sum(), weight, create_graph=True
    )
    with pytest.raises(RuntimeError):
        torch.autograd.grad(grad.sum(), weight)


def test_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="this processor has"):
        network._kernels.use_level(len(LEVELS))


def test_installation_without_kernels_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_kernels", None)
    assert not available()
    with pytest.raises(RuntimeError, match="were not built"):
        max_pool2d(X, 2)
    monkeypatch.undo()
