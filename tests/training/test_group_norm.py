"""Group norm's kernels give what PyTorch gives, and each image's gradients are its own."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tacit.training import group_norm
from tacit.training.batches import Holdings
from tacit.training.group_norm import normalised, reads
from tacit.training.grouped import GroupedNetwork
from tacit.training.parameters import Parameters
from tacit.training.private import fused
from tacit.training.private.book_keeping import BookKeeping
from tacit.training.private.clipping import Clipping
from tacit.training.private.gradient import FORMS, PrivateGradient
from tacit.training.program import graph_of, trace
from tacit.training.settings import LocalTraining, cross_entropy
from tacit.training.stacked import StackedTrainer

on_a_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")]
gpu = lambda test: on_a_gpu[0](on_a_gpu[1](test))  # noqa: E731 - both marks

SIZES = [  # images, clients, channels, groups, places
    (6, 2, 64, 8, (32, 32)),
    (256, 1, 16, 8, (8, 8)),
    (3, 3, 21, 3, (7, 5)),
    (4, 1, 40, 8, (1, 1)),
    (5, 1, 6, 6, (9,)),
    (8, 4, 24, 12, ()),
    (2, 1, 600, 1, (3, 3)),
    (2, 2, 128, 2, (64, 65)),
]


def drawn(*shape: int, seed: int = 7) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).cuda()


@gpu
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("added", "rectify"), list(product([False, True], repeat=2)))
@pytest.mark.parametrize("last", [False, True])
def test_outputs_and_gradients(
    size: tuple[int, int, int, int, tuple[int, ...]], added: bool, rectify: bool, last: bool
) -> None:
    count, clients, channels, groups, places = size
    if last and len(places) != 2:
        pytest.skip("of images alone")
    order = torch.channels_last if last else torch.contiguous_format
    images, shortcut, back = (
        (1.5 + drawn(count, channels, *places, seed=seed)).contiguous(memory_format=order) for seed in (1, 2, 3)
    )
    own = [images.requires_grad_(), drawn(clients, channels, seed=4), drawn(clients, channels, seed=5)]
    own = [part.requires_grad_() for part in ([*own, shortcut] if added else own)]
    assert reads(images, groups)
    found = normalised(own[0], groups, own[1], own[2], 1e-3, shortcut=own[3] if added else None, rectify=rectify)
    assert found.stride() == images.stride()
    wide = [part.detach().double().requires_grad_() for part in own]
    parts = zip(wide[0].chunk(clients), wide[1], wide[2], strict=True)
    expected = torch.cat([F.group_norm(part, groups, scale, shift, 1e-3) for part, scale, shift in parts])
    expected = expected + wide[3] if added else expected
    expected = expected.relu() if rectify else expected
    # What is a rounding error above zero for one and below for the other has a gradient for one of them.
    back = torch.where(expected.detach().abs() < 1e-5, 0.0, back)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)
    gradients = torch.autograd.grad(found, own, back)
    for one, other in zip(gradients, torch.autograd.grad(expected, wide, back.double()), strict=True):
        assert float((one - other).norm()) <= 1e-5 * float(other.norm()) + 1e-5
    again = torch.autograd.grad(
        normalised(own[0], groups, own[1], own[2], 1e-3, shortcut=own[3] if added else None, rectify=rectify), own, back
    )
    assert all(torch.equal(one, other) for one, other in zip(gradients, again, strict=True))


@gpu
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_not_finite_stays_in_its_image(wrong: float) -> None:
    images, scale, shift = drawn(4, 16, 6, 6), drawn(4, 16, seed=1), drawn(4, 16, seed=2)

    def computed() -> tuple[Tensor, ...]:
        own = [part.clone().requires_grad_() for part in (images, scale, shift)]
        found = normalised(own[0], 4, own[1], own[2], 1e-5, rectify=True)
        return found.detach(), *torch.autograd.grad(found.sum(), own)

    before = computed()
    images[1, 3, 2, 2] = wrong
    for found, expected in zip(computed(), before, strict=True):
        assert torch.equal(found[[0, 2, 3]], expected[[0, 2, 3]])
    assert computed()[0][1, :4].isnan().all()
    assert not bool(computed()[1][1, :4].isfinite().all())


@gpu
def test_a_mean_far_from_zero_is_taken_away() -> None:
    images = 1000.0 + drawn(3, 8, 5, 5)
    expected = F.group_norm(images.double(), 2)
    torch.testing.assert_close(normalised(images, 2, None, None, 1e-5).double(), expected, rtol=0.0, atol=2e-3)


@gpu
@pytest.mark.parametrize("added", [False, True])
def test_what_is_kept_elsewhere_meanwhile_may_come_back_in_another_order(added: bool) -> None:
    images, back = (drawn(2, 8, 3, 5, seed=seed).contiguous(memory_format=torch.channels_last) for seed in (1, 2))
    own = [images.requires_grad_(), drawn(1, 8, seed=3).requires_grad_(), drawn(1, 8, seed=4).requires_grad_()]

    def gradients() -> tuple[Tensor, ...]:
        shortcut = back if added else None
        return torch.autograd.grad(
            normalised(own[0], 2, own[1], own[2], 1e-5, shortcut=shortcut, rectify=True), own, back
        )

    expected = gradients()
    # As torch.autograd.graph.save_on_cpu(pin_memory=True) keeps them.
    with torch.autograd.graph.saved_tensors_hooks(
        lambda kept: torch.empty_like(kept, memory_format=torch.contiguous_format).copy_(kept), lambda kept: kept
    ):
        found = normalised(own[0], 2, own[1], own[2], 1e-5, shortcut=back if added else None, rectify=True)
    for one, other in zip(torch.autograd.grad(found, own, back), expected, strict=True):
        assert torch.equal(one, other)


class _Refused:
    """A kernel that can't be compiled."""

    def __getitem__(self, grid: tuple[int, ...]) -> None:
        raise RuntimeError(f"no kernel for {grid}")


@gpu
@pytest.mark.parametrize("name", ["_forward", "_backward"])
def test_what_can_not_be_compiled_is_left_to_pytorch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = drawn(1).device
    assert group_norm._works.__wrapped__(device)
    monkeypatch.setattr(group_norm, name, _Refused())
    assert not group_norm._works.__wrapped__(device)


@gpu
@pytest.mark.parametrize("default", [torch.float16, torch.float64])
@pytest.mark.parametrize("works", [group_norm._works, fused._works])
def test_kernels_are_tried_whatever_torchs_default_type_is(works: Any, default: torch.dtype) -> None:
    device = drawn(1).device
    torch.set_default_dtype(default)
    try:
        assert works.__wrapped__(device)
    finally:
        torch.set_default_dtype(torch.float32)


def test_others_are_left_to_pytorch() -> None:
    assert not reads(torch.ones(1, 4, 3, 3), 2)


class Block(nn.Module):
    """A residual block whose shortcut has a norm too, one that adds its input, and norms that stay alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.short = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1), nn.Conv2d(3, 8, 1, 2)
        self.norms = nn.ModuleList(nn.GroupNorm(groups, 8) for groups in (2, 4, 8, 1, 2))
        self.out = nn.Linear(8, 10)
        for norm in self.norms:
            nn.init.normal_(norm.weight)  # type: ignore[arg-type]  # torch gives it no types
            nn.init.normal_(norm.bias)  # type: ignore[arg-type]  # as above

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        y = F.relu(self.norms[1](self.second(y)) + self.norms[2](self.short(x)))
        z = self.norms[3](self.second(y))
        y = F.relu(y + z) * torch.sigmoid(z)  # the norm is used twice, and no part of the rectifier
        y = F.relu(self.norms[4](y))
        scores: Tensor = self.out(y.mean((2, 3)))
        return scores


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_a_gpu)])
@pytest.mark.parametrize("clients", [1, 3])
def test_a_network_with_shortcuts(device: str, clients: int) -> None:
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    module = Block().to(device)
    layout = Parameters.of(module)
    features, labels = torch.randn(clients, 5, 3, 9, 8).to(device), torch.arange(5).to(device)
    network = GroupedNetwork(trace(graph_of(module), layout, features[0, 0]), by_client=device == "cuda")
    assert len(network._rectified) == 3
    trainer = StackedTrainer(
        network=network, layout=layout, settings=LocalTraining(epochs=1, batch_size=5, lr=0.1), loss=cross_entropy
    )
    state = trainer.start(layout.read(module), clients)
    rows = torch.arange(5 * clients, device=device).view(clients, 5)
    holdings = Holdings(features=features.flatten(0, 1), labels=labels.repeat(clients), rows=[np.arange(5 * clients)])
    losses = trainer.step(state, holdings, rows, None, rows[:, 0], 0.1)
    for client in range(clients):
        loss = cross_entropy(module(features[client]), labels).mean()
        assert float(losses[client]) == pytest.approx(loss.item(), rel=1e-5)
        gradients = torch.autograd.grad(loss, list(module.parameters()))
        for own, parameter, gradient in zip(state.parameters, module.parameters(), gradients, strict=True):
            torch.testing.assert_close(own[client], parameter - 0.1 * gradient, rtol=1e-4, atol=1e-5)
    torch.backends.cudnn.allow_tf32 = before


class Again(nn.Sequential):
    """Computes its forward pass once more in the backward pass."""

    def forward(self, x: Tensor) -> Tensor:
        again: Tensor = checkpoint(super().forward, x, use_reentrant=False)
        return again


@gpu
@pytest.mark.parametrize("frozen", ["", "weight", "bias"])
@pytest.mark.parametrize("kind", [nn.Sequential, Again])
def test_each_examples_gradients_are_those_of_the_example_alone(frozen: str, kind: type[nn.Sequential]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 16), nn.Unflatten(1, (4, 2, 2)), nn.GroupNorm(2, 4), nn.Flatten())
    model = kind(*model, nn.Linear(16, 10)).cuda()
    for name, parameter in model[3].named_parameters():
        parameter.requires_grad_(name != frozen)
    features, labels = drawn(7, 6), torch.arange(7).cuda()
    parameters = [p for p in model.parameters() if p.requires_grad]
    sums, losses, _ = BookKeeping(model, cross_entropy, Clipping(bound=0.5)).sums(features, labels)
    assert "forward" not in vars(model[3])
    expected = [torch.zeros_like(p, dtype=torch.float64) for p in parameters]
    for i in range(7):
        loss = cross_entropy(model(features[i : i + 1]), labels[i : i + 1]).sum()
        torch.testing.assert_close(losses[i], loss)
        gradients = [own.double() for own in torch.autograd.grad(loss, parameters)]
        norm = torch.stack([own.square().sum() for own in gradients]).sum().sqrt()
        for total, own in zip(expected, gradients, strict=True):
            total.add_(own * (0.5 / norm).clamp(max=1.0))
    for found, total in zip(sums, expected, strict=True):
        torch.testing.assert_close(found, total, rtol=1e-4, atol=1e-6)


class Own(Tensor):
    """A kind of somebody's own, whose numbers may lie anywhere."""


@gpu
def test_tensors_of_other_kinds_and_more_groups_than_are_counted_are_pytorchs() -> None:
    images = drawn(1, 1 << 16, 1)
    assert reads(images, 1 << 15)
    assert not reads(images, 1 << 16)
    assert not reads(images.as_subclass(Own), 1 << 15)
    torch.testing.assert_close(normalised(images[:, :64], 32, None, None, 1e-5), F.group_norm(images[:, :64], 32))


class Mapped(nn.Module):
    """Maps over the examples itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.out = nn.Linear(6, 16), nn.GroupNorm(2, 4), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        images = self.first(x).view(-1, 4, 2, 2)
        scores: Tensor = self.out(torch.vmap(lambda one: self.norm(one[None])[0])(images).flatten(1))
        return scores


@gpu
def test_a_norm_that_a_model_maps_is_pytorchs() -> None:
    torch.manual_seed(0)
    model, features, labels = Mapped().cuda(), drawn(6, 6), torch.arange(6).cuda()
    found, expected = (
        PrivateGradient(
            model=model, loss=cross_entropy, clipping=Clipping(bound=0.5), example=(features, labels), form=form
        ).sums(features, labels)[0]
        for form in FORMS[::2]
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@gpu
def test_a_norm_of_numbers_that_lie_apart_or_of_other_channels_is_pytorchs() -> None:
    norm = nn.GroupNorm(2, 4)
    model = nn.Sequential(nn.Flatten(), nn.Unflatten(1, (4, 2, 2)), norm, nn.Flatten(), nn.Linear(16, 10))
    model, features, labels = model.cuda(), drawn(6, 16), torch.arange(6).cuda()
    norm.weight.data = torch.linspace(0.5, 2.0, 8, device=features.device)[::2]
    assert norm.weight.stride() == (2,)
    found = BookKeeping(model, cross_entropy, Clipping(bound=0.5)).sums(features, labels)[0]
    norm.weight.data = norm.weight.data.clone()
    expected = BookKeeping(model, cross_entropy, Clipping(bound=0.5)).sums(features, labels)[0]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    model[1] = nn.Unflatten(1, (8, 2, 1))
    with pytest.raises(RuntimeError, match="weight"):
        BookKeeping(model, cross_entropy, Clipping(bound=0.5)).sums(features, labels)
