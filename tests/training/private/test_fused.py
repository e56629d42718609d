"""Kernels for NVIDIA GPUs beside torch's operations."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from tacit.training.captured import capture_stream
from tacit.training.private import double, fused
from tacit.training.private.clipping import Clipping
from tacit.training.private.fused import Images
from tacit.training.private.ghost_norms import Gram, Sequences
from tacit.training.private.gradient import PrivateGradient
from tacit.training.private.probe import in_full_precision
from tacit.training.private.windows import Passing, _Windows, convolution
from tacit.training.settings import cross_entropy

on_a_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")]
gpu = lambda test: on_a_gpu[0](on_a_gpu[1](test))  # noqa: E731 - both marks

_WIDTHS = [1, 3, 64, 65, 256, 257, 1025, 4096, 5_000_000]
_COUNTS = [0, 1, 31, 255]
_SHAPES = [(count, width) for width in _WIDTHS for count in _COUNTS if count * width < 1 << 28]


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Lets a test turn the kernels off."""
    with monkeypatch.context() as patched:
        yield patched


def _drawn(*shape: int, seed: int = 7) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).cuda()


@gpu
def test_kernels_are_there_where_a_gpu_is() -> None:
    assert fused._works(torch.device("cuda", 0))


@gpu
@pytest.mark.parametrize("shape", _SHAPES)
def test_squares_and_sums_are_those_of_doubles(shape: tuple[int, int], plain: pytest.MonkeyPatch) -> None:
    rows = _drawn(*shape)
    if shape[0] > 1:
        rows[0] *= 1e30
        rows[1] *= 1e-30
    factors = _drawn(shape[0]).double()
    factors[::3] = 0.0
    squares, total = double.squares(rows), double.combined(factors, rows)
    assert torch.equal(double.squares(rows), squares)
    assert torch.equal(double.combined(factors, rows), total)
    plain.setattr(fused, "reads_rows", lambda _: False)
    torch.testing.assert_close(squares, double.squares(rows), rtol=1e-13, atol=0.0)
    reach = factors.abs() @ rows.double().abs()  # what rounding errors are a share of
    assert bool(((total - double.combined(factors, rows)).abs() <= 1e-13 * reach).all())


@gpu
@pytest.mark.parametrize("width", [1, 64, 1500])
def test_what_is_not_finite_stays_in_its_row(width: int) -> None:
    rows = torch.ones(40, width).cuda()
    rows[1], rows[2, -1], rows[39, 0] = math.nan, math.inf, -math.inf
    assert (~double.squares(rows).isfinite()).nonzero()[:, 0].tolist() == [1, 2, 39]
    factors = torch.full((40,), 0.5, dtype=torch.float64).cuda()
    factors[[1, 2, 39]] = 0.0
    assert torch.equal(double.combined(factors, rows), torch.full((width,), 18.5, dtype=torch.float64).cuda())
    assert not bool(double.combined(factors + 1.0, rows).isfinite().any())
    factors[5] = math.nan
    assert bool(double.combined(factors, rows).isnan().all())


@gpu
def test_nothing_overflows_underflows_or_is_forgotten() -> None:
    rows = torch.tensor([[3e38, 3e38], [1e-45, 0.0], [1.0, 0.0]]).cuda()
    assert double.squares(rows).tolist() == [2 * float(rows[0, 0]) ** 2, float(rows[1, 0]) ** 2, 1.0]
    rows = torch.tensor([[2.0**24], [1.0], [-(2.0**24)]]).cuda()  # in single precision the one would be lost
    assert double.combined(torch.ones(3, dtype=torch.float64).cuda(), rows).tolist() == [1.0]


@gpu
def test_rows_may_lie_anyhow() -> None:
    whole = _drawn(6, 5, 64)
    factors = torch.linspace(0.1, 1.0, 6, dtype=torch.float64).cuda()
    for rows in (whole, whole.movedim(2, 1), whole[:, ::2], whole[:, 2, 1:], whole.half(), whole.bfloat16()):
        flat = rows.double().flatten(1)
        torch.testing.assert_close(double.squares(rows), flat.square().sum(1), rtol=1e-14, atol=0.0)
        for own in (factors, factors[:1].expand(6), factors.flip(0)):
            torch.testing.assert_close(double.combined(own, rows), own @ flat, rtol=1e-13, atol=1e-14)


@gpu
def test_graphs_repeat_kernels() -> None:
    rows, factors = _drawn(64, 3000), _drawn(64).double()
    stream = capture_stream(rows.device)
    with torch.cuda.stream(stream):
        double.squares(rows), double.combined(factors, rows)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        squares, total = double.squares(rows), double.combined(factors, rows)
    rows.copy_(_drawn(64, 3000, seed=8))
    graph.replay()
    assert torch.equal(squares, double.squares(rows))
    assert torch.equal(total, double.combined(factors, rows))


@gpu
@pytest.mark.parametrize(
    ("examples", "positions", "width", "height"),
    [(37, 1, 42, 64), (5, 1, 1, 1), (256, 1, 300, 10), (100, 40, 65, 33), (3, 700, 7, 130), (0, 1, 3, 2)],
)
def test_outer_products_are_those_of_doubles(examples: int, positions: int, width: int, height: int) -> None:
    inputs, gradients = _drawn(examples, positions, width), _drawn(examples, positions, height, seed=8)
    factors = _drawn(examples).double()
    factors[::3] = 0.0
    found = fused.outer(factors, inputs, gradients)
    truth = torch.einsum("n,ntd,ntp->pd", factors, inputs.double(), gradients.double())
    reach = torch.einsum("n,ntd,ntp->pd", factors.abs(), inputs.double().abs(), gradients.double().abs())
    assert bool(((found - truth).abs() <= 1e-13 * reach).all())
    inputs[::3], gradients[::3] = math.nan, math.inf
    assert torch.equal(fused.outer(factors, inputs, gradients), found)
    turned = inputs.movedim(0, 2).contiguous().movedim(2, 0)
    assert torch.equal(fused.outer(factors, turned, gradients), found)


_LAYERS: list[tuple[nn.Conv1d | nn.Conv2d, tuple[int, ...]]] = [
    (nn.Conv2d(3, 8, 3, padding=1), (3, 9, 7)),
    (nn.Conv2d(64, 64, 3, padding=1, bias=False), (64, 32, 32)),
    (nn.Conv2d(40, 96, 3, padding=1, bias=False), (40, 5, 5)),
    (nn.Conv2d(200, 260, 3, padding=1, bias=False), (200, 3, 4)),
    (nn.Conv2d(16, 130, 5, stride=2, padding=(3, 1)), (16, 17, 12)),
    (nn.Conv2d(20, 33, (2, 4), stride=(1, 3), dilation=(3, 2), padding="valid"), (20, 15, 31)),
    (nn.Conv2d(5, 7, 3, padding=1, padding_mode="circular"), (5, 8, 8)),
    (nn.Conv2d(6, 4, 4, padding="same"), (6, 10, 10)),
    (nn.Conv1d(12, 40, 3, stride=2, padding=1), (12, 77)),
    (nn.Conv1d(4, 5, 2, padding=1, padding_mode="reflect"), (4, 9)),
]


@gpu
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("layer", "shape"), _LAYERS)
def test_gradients_are_those_of_convolutions(layer: nn.Conv1d | nn.Conv2d, shape: tuple[int, ...], last: bool) -> None:
    layer, inputs = layer.cuda(), _drawn(37, *shape)
    gradients = torch.randn_like(layer(inputs).detach())
    if last:  # channels lie innermost
        inputs, gradients = (own.movedim(1, -1).contiguous().movedim(-1, 1) for own in (inputs, gradients))
    wide = layer.double()
    expected = []
    for i in range(37):
        own = (wide(inputs[i : i + 1].double()) * gradients[i : i + 1]).sum()
        expected.append(torch.autograd.grad(own, wide.weight)[0].flatten())
    rows = torch.stack(expected)
    layer.float()
    found = _Windows(layer=layer, calls=[(inputs, gradients)]).read()
    assert found is not None
    squares = found.squares()
    torch.testing.assert_close(squares, rows.square().sum(1), rtol=1e-2, atol=0.0)
    assert float((found.held().flatten(1) - rows).norm()) < 3e-3 * float(rows.norm())
    factors = torch.rand(37, dtype=torch.float64).cuda()
    factors[::4] = 0.0
    total, truth = found.combined(factors), factors @ rows
    assert float((total.flatten() - truth).norm()) < 3e-3 * float(truth.norm())
    assert torch.equal(found.combined(factors), total)
    # What is added up is what was measured.
    for i in (0, 20, 36):
        alone = torch.zeros(37, dtype=torch.float64).cuda().index_fill_(0, torch.tensor([i]).cuda(), 1.0)
        torch.testing.assert_close(found.combined(alone).square().sum(), squares[i], rtol=1e-13, atol=0.0)
    if gradients[0, 0].numel() <= fused.MOST_POSITIONS:
        torch.testing.assert_close(found.gram()[0], rows.square().sum(1), rtol=1e-11, atol=0.0)


@gpu
@pytest.mark.parametrize(("positions", "width", "height"), [(2, 3, 1), (16, 65, 40), (33, 8, 8), (64, 100, 31)])
def test_gram_matrices_of_sequences(positions: int, width: int, height: int, plain: pytest.MonkeyPatch) -> None:
    at = Sequences(inputs=_drawn(9, positions, width), gradients=_drawn(9, positions, height, seed=8))
    factors = torch.linspace(0.0, 1.0, 9, dtype=torch.float64).cuda()
    own = Gram(at=at, bias=None)
    own_sum = own.weighted(factors)[0]
    kernel = at.grams()
    assert kernel is not None
    reach = kernel.gram()[1]
    plain.setattr(fused, "reads_positions", lambda *_: False)
    other = Gram(at=at, bias=None)
    torch.testing.assert_close(own.squares, other.squares, rtol=1e-11, atol=0.0)
    torch.testing.assert_close(reach, other._products()[1], rtol=1e-12, atol=0.0)
    torch.testing.assert_close(own_sum, other.weighted(factors)[0], rtol=1e-11, atol=1e-11)


@gpu
def test_an_image_that_is_not_finite_takes_no_part() -> None:
    inputs, gradients = _drawn(9, 4, 6, 6), _drawn(9, 5, 4, 4)
    factors = torch.linspace(0.0, 1.0, 9, dtype=torch.float64).cuda()
    own = Images(inputs=lambda: inputs, gradients=gradients, width=36, kernel=(3, 3))
    expected, squares, products = own.combined(factors), own.squares(), own.gram()[0]
    for wrong in (math.nan, math.inf):
        inputs[0, 1, 2, 2] = wrong
        assert torch.equal(own.combined(factors), expected)
        for found, before in ((own.squares(), squares), (own.gram()[0], products)):
            assert found.isfinite().tolist() == [False, *[True] * 8]
            assert torch.equal(found[1:], before[1:])


@gpu
def test_pixels_that_no_window_meets_do_not_count() -> None:
    inputs, gradients = _drawn(3, 2, 5, 8), _drawn(3, 4, 1, 1)
    own = Images(inputs=lambda: inputs, gradients=gradients, width=8, kernel=(2, 2), stride=(4, 4))
    expected = own.squares(), own.gram()[0], own.combined(torch.ones(3, dtype=torch.float64).cuda())
    inputs[:, :, 2:], inputs[:, :, :, 2:] = math.nan, math.nan
    found = own.squares(), own.gram()[0], own.combined(torch.ones(3, dtype=torch.float64).cuda())
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


@gpu
def test_gradients_are_held_where_they_are_smaller_than_what_they_are_made_of() -> None:
    for size, kind in ((20, "Formed"), (4, "Passing"), (2, "Gram")):
        layer = nn.Conv2d(64, 64, 3, padding=1).cuda()
        inputs, gradients = _drawn(5, 64, size, size), _drawn(5, 64, size, size, seed=8)
        with torch.no_grad():
            found = convolution(layer, [(inputs, gradients)])
            assert type(found).__name__ == kind
            factors = torch.linspace(0.0, 1.0, 5, dtype=torch.float64).cuda()
            squares, sums = found.squares, found.weighted(factors)
            if isinstance(found, Passing):
                found.keep()
                torch.testing.assert_close(found.squares, squares, rtol=1e-6, atol=0.0)
                for own, other in zip(found.weighted(factors), sums, strict=True):
                    torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-6)
            with in_full_precision():
                plainly = convolution(layer, [(inputs, gradients)])
        torch.testing.assert_close(squares, plainly.squares, rtol=1e-2, atol=0.0)
        for own, other in zip(sums, plainly.weighted(factors), strict=True):
            assert own.shape == other.shape
            assert float((own - other).norm()) < 3e-3 * float(other.norm())


@gpu
def test_sums_of_a_network_are_those_of_full_precision() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.Tanh(), nn.Conv2d(16, 32, 3, 2, 1, bias=False),
        nn.GroupNorm(8, 32), nn.Tanh(), nn.Conv2d(32, 48, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10),
    ).cuda()  # fmt: skip
    features, labels = _drawn(40, 3, 16, 16), torch.arange(40).cuda() % 10
    found = []
    before = torch.backends.cudnn.allow_tf32
    try:
        for tf32 in (True, False):
            torch.backends.cudnn.allow_tf32 = tf32
            gradient = PrivateGradient(
                model=model, loss=cross_entropy, clipping=Clipping(bound=0.5), example=(features, labels)
            )
            for _ in range(4):  # a graph from the third on
                sums = gradient.sums(features, labels)[0]
                found.append(torch.cat([own.flatten() for own in sums]).clone())
    finally:
        torch.backends.cudnn.allow_tf32 = before
    for own in found:
        assert float((own - found[-1]).norm()) < 5e-3 * float(found[-1].norm())


def test_on_a_cpu_there_are_no_kernels() -> None:
    rows = torch.ones(2, 3)
    assert not fused.reads_rows(rows)
    assert not fused.reads_positions(torch.ones(1, 2, 3, 3), torch.ones(1, 2, 3, 3))
    own = convolution(nn.Conv2d(2, 3, 3), [(torch.ones(1, 2, 5, 5), torch.ones(1, 3, 3, 3))])
    assert type(own).__name__ == "Formed"


@pytest.mark.skipif(fused.triton is not None, reason="Triton is here")
def test_without_triton_torch_computes() -> None:
    assert not fused._works(torch.device("cuda", 0))
