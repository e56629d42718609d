"""Convolutions and group norms of many clients as products are what each client's own layers compute."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.training import products
from tacit.training.dropout import use_keys
from tacit.training.grouped import GroupedNetwork
from tacit.training.parameters import Parameters
from tacit.training.program import Convolution, graph_of, trace

CLIENTS, BATCH = 3, 4
KINDS = {  # size, stride, padding, bias
    "same": ((3, 3), (1, 1), (1, 1), False),
    "halved": ((3, 3), (2, 2), (1, 1), True),
    "shortcut": ((1, 1), (2, 2), (0, 0), False),
    "pixel": ((1, 1), (1, 1), (0, 0), True),
    "oblong": ((5, 3), (2, 1), (2, 0), True),
    "even": ((3, 2), (1, 1), (0, 1), True),
    "apart": ((2, 2), (3, 2), (1, 1), False),
    "far": ((3, 3), (1, 1), (3, 3), True),
}


def close(found: Tensor, expected: Tensor) -> bool:
    scale = float(expected.detach().abs().max())
    return torch.allclose(found, expected, rtol=0.0, atol=(1e-12 if found.dtype is torch.float64 else 1e-5) * scale)


@pytest.mark.parametrize("channels", [(5, torch.float64), (1, torch.float32), (6, torch.float32), (8, torch.float32)])
@pytest.mark.parametrize("kind", KINDS)
def test_convolutions(kind: str, channels: tuple[int, torch.dtype]) -> None:
    size, stride, padding, biased = KINDS[kind]
    count, dtype = channels
    torch.manual_seed(0)
    value = torch.randn(CLIENTS * BATCH, count, 9, 8, dtype=dtype).contiguous(memory_format=torch.channels_last)
    kernel = products.arranged(torch.randn(CLIENTS, 6, count, *size, dtype=dtype))
    given = [value, kernel, *([torch.randn(CLIENTS, 6, dtype=dtype)] if biased else [])]
    for own in given:
        own.requires_grad_()
    bias = given[2] if biased else None
    layer = Convolution(weight=0, bias=None, stride=stride, padding=padding, dilation=(1, 1), groups=1)
    found = products.convolve(layer, value, kernel, bias)
    own_bias = [None if bias is None else bias[client] for client in range(CLIENTS)]
    expected = torch.cat(
        [F.conv2d(part, kernel[c], own_bias[c], stride, padding) for c, part in enumerate(torch.split(value, BATCH))]
    )
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert close(found, expected)
    direction = torch.randn_like(expected)
    pairs = zip(
        torch.autograd.grad(found, given, direction), torch.autograd.grad(expected, given, direction), strict=True
    )
    for one, other in pairs:
        assert close(one, other)
    assert (
        torch.autograd.grad(products.convolve(layer, value, kernel, bias).sum(), [kernel])[0].stride()
        == kernel.stride()
    )


def test_long_sums_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_SHORTEST", 4)
    torch.manual_seed(0)
    flat, rows = torch.randn(2, 48, 5, dtype=torch.float64), torch.randn(2, 48, 7, dtype=torch.float64)
    assert close(products._in_parts(flat, rows), flat.transpose(1, 2) @ rows)


@pytest.mark.parametrize("affine", [True, False])
def test_group_norms(affine: bool) -> None:
    torch.manual_seed(0)
    value = (3.0 * torch.randn(CLIENTS * BATCH, 6, 5, 4, dtype=torch.float64) + 7.0).requires_grad_()
    own = [torch.randn(CLIENTS, 6, dtype=torch.float64, requires_grad=True) for _ in range(2)] if affine else []
    scale, shift = own or (None, None)
    found = products.group_norm(value, 3, scale, shift, 1e-5)
    parts = [
        F.group_norm(part, 3, None if scale is None else scale[c], None if shift is None else shift[c], 1e-5)
        for c, part in enumerate(torch.split(value, BATCH))
    ]
    expected = torch.cat(parts)
    assert close(found, expected)
    direction = torch.randn_like(expected)
    pairs = zip(
        torch.autograd.grad(found, [value, *own], direction),
        torch.autograd.grad(expected, [value, *own], direction),
        strict=True,
    )
    for one, other in pairs:
        assert close(one, other)


def test_both_layouts_compute_the_same() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 4, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(0.3), nn.Conv2d(4, 8, 3, stride=2, groups=2),
        nn.GroupNorm(2, 8), nn.Tanh(), nn.Dropout(0.2), nn.Conv2d(8, 6, 3, dilation=2), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(6, 10),
    )  # fmt: skip
    use_keys(module)
    program = trace(graph_of(module), Parameters.of(module), torch.randn(1, 28, 28))
    shapes = [(CLIENTS, *own.shape) for own in module.parameters()]
    parameters = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    features, keys = torch.randn(CLIENTS, BATCH, 1, 28, 28, dtype=torch.float64), torch.arange(CLIENTS) + 5
    found = [GroupedNetwork(program, by_client=each).outputs(parameters, features, keys) for each in (False, True)]
    assert close(found[1], found[0])
    gradients = [torch.autograd.grad(own.square().sum(), parameters) for own in found]
    assert all(close(one, other) for one, other in zip(*gradients, strict=True))
    alone = GroupedNetwork(program, by_client=True).outputs([own[:1] for own in parameters], features[:1], keys[:1])
    assert close(alone, found[0][:1])


@pytest.mark.parametrize("channels", [2, 3, 4])
@pytest.mark.parametrize("examples", [1, 2])
def test_narrow_windows_of_few_channels(channels: int, examples: int) -> None:
    c = Convolution(weight=0, bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1)
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(2, examples, channels, 8, 5, generator=draw)
    kernels = torch.randn(2, 4, channels, 3, 1, generator=draw)
    own, plain = (tuple(part.clone().requires_grad_() for part in (images, kernels)) for _ in range(2))
    found = products.convolve(c, own[0].flatten(0, 1), own[1], None).view(2, examples, 4, 6, 5)
    expected = torch.stack([torch.conv2d(x, w) for x, w in zip(*plain, strict=True)])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    for one, other in zip(
        torch.autograd.grad(found.square().sum(), own), torch.autograd.grad(expected.square().sum(), plain), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
