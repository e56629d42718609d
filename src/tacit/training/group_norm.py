"""Group norm by kernels for NVIDIA GPUs that read an image twice, forwards and backwards, in either order of memory.

The rectifier that follows, and a shortcut that is added before it, are part of them: PyTorch's own operations read and
write an image a dozen times. Each image has a scale and a shift of its own or shares one with others, and what comes
back for those is added up image by image first: of one example it is the gradient that DP-SGD clips. Sums are in double
precision, in an order that shapes alone decide. Where there are no kernels (:mod:`tacit.training.private.fused` says
why) whoever asks computes with operations of torch's.
"""

# ruff: noqa: N803 - names in capitals are what a kernel is compiled for, as Triton's users write them

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tacit.training.private.fused import jit, tl, triton

_LINE = 32  # channels that a block of threads takes where they are innermost: a line of memory
_WIDEST = 1024  # channels of a group
_MOST = (1 << 16) - 1  # groups, which are counted along the second axis of blocks
_LARGEST = 1 << 30  # numbers of an image, which are counted in 32 bits
_TILE, _LARGE = 2048, 8192  # numbers that a block of threads has at a time, and where there are few blocks
_FEW = 1024  # blocks, that leave an H200's 132 processors waiting for memory


@jit()
def _shared(each: tl.tensor, GROUPS: tl.constexpr, BLOCK: tl.constexpr) -> tl.tensor:
    """Return the sum over a group's channels for each of them."""
    sums = tl.sum(tl.reshape(each, [GROUPS, BLOCK // GROUPS]), 1)
    return tl.reshape(tl.broadcast_to(sums[:, None], [GROUPS, BLOCK // GROUPS]), [BLOCK])


@jit("each", "positions", "own_step", "add", "rectify")
def _forward(
    images: tl.tensor,
    shortcut: tl.tensor,
    scale: tl.tensor,
    shift: tl.tensor,
    found: tl.tensor,
    means: tl.tensor,
    spreads: tl.tensor,
    epsilon: tl.tensor,
    each: tl.tensor,
    positions: tl.tensor,
    channels: tl.tensor,
    own_step: tl.tensor,
    add: tl.tensor,
    rectify: tl.tensor,
    channel_step: tl.tensor,
    position_step: tl.tensor,
    OWN: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK: tl.constexpr,
    AT: tl.constexpr,
    SCALE: tl.constexpr,
    SHIFT: tl.constexpr,
) -> None:
    image = tl.program_id(0).to(tl.int64)
    own = tl.arange(0, BLOCK)
    channel = tl.program_id(1) * OWN * GROUPS + own
    known = (own < OWN * GROUPS) & (channel < channels)
    begin = image * positions * channels
    first = tl.zeros([AT, BLOCK], tl.float64)
    second = tl.zeros([AT, BLOCK], tl.float64)
    for start in range(0, positions, AT):
        at = start + tl.arange(0, AT)
        place = begin + at[:, None] * position_step + channel[None, :] * channel_step
        value = tl.load(images + place, mask=(at < positions)[:, None] & known[None, :], other=0.0).to(tl.float64)
        first += value
        second += value * value
    count = positions * OWN
    mean = _shared(tl.sum(first, 0), GROUPS, BLOCK) / count
    variance = _shared(tl.sum(second, 0), GROUPS, BLOCK) / count - mean * mean
    variance = tl.where(variance < 0.0, 0.0, variance)  # what is not a number stays so, which a maximum would hide
    spread = 1.0 / tl.sqrt(variance + epsilon)
    tl.store(means + image * channels + channel, mean, mask=known)
    tl.store(spreads + image * channels + channel, spread, mask=known)
    factor = spread
    of_client = image // each * own_step + channel
    if SCALE:
        factor = spread * tl.load(scale + of_client, mask=known, other=0.0)
    level = -mean * factor
    if SHIFT:
        level += tl.load(shift + of_client, mask=known, other=0.0)
    slope = factor.to(tl.float32)
    offset = level.to(tl.float32)
    for start in range(0, positions, AT):
        at = start + tl.arange(0, AT)
        place = begin + at[:, None] * position_step + channel[None, :] * channel_step
        inside = (at < positions)[:, None] & known[None, :]
        value = tl.load(images + place, mask=inside, other=0.0) * slope[None, :] + offset[None, :]
        if add != 0:
            value += tl.load(shortcut + place, mask=inside, other=0.0)
        if rectify != 0:
            value = tl.where(value <= 0.0, 0.0, value)  # as above
        tl.store(found + place, value, mask=inside)


@jit()
def _passed(
    value: tl.tensor,
    gradient: tl.tensor,
    results: tl.tensor,
    inside: tl.tensor,
    slope: tl.tensor,
    offset: tl.tensor,
    add: tl.tensor,
    rectify: tl.tensor,
) -> tl.tensor:
    """Return the gradient that comes through the rectifier: its results are kept where something was added."""
    if rectify != 0:
        result = value * slope[None, :] + offset[None, :]
        if add != 0:
            result = tl.load(results, mask=inside, other=0.0)
        gradient = tl.where(result <= 0.0, 0.0, gradient)
    return gradient


@jit("each", "positions", "own_step", "add", "rectify")
def _backward(
    images: tl.tensor,
    results: tl.tensor,
    gradients: tl.tensor,
    scale: tl.tensor,
    shift: tl.tensor,
    means: tl.tensor,
    spreads: tl.tensor,
    below: tl.tensor,
    beside: tl.tensor,
    scales: tl.tensor,
    shifts: tl.tensor,
    each: tl.tensor,
    positions: tl.tensor,
    channels: tl.tensor,
    own_step: tl.tensor,
    add: tl.tensor,
    rectify: tl.tensor,
    channel_step: tl.tensor,
    position_step: tl.tensor,
    OWN: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK: tl.constexpr,
    AT: tl.constexpr,
    SCALE: tl.constexpr,
    SHIFT: tl.constexpr,
) -> None:
    image = tl.program_id(0).to(tl.int64)
    own = tl.arange(0, BLOCK)
    channel = tl.program_id(1) * OWN * GROUPS + own
    known = (own < OWN * GROUPS) & (channel < channels)
    begin = image * positions * channels
    of_client = image // each * own_step + channel
    mean = tl.load(means + image * channels + channel, mask=known, other=0.0)
    spread = tl.load(spreads + image * channels + channel, mask=known, other=0.0)
    factor = tl.where(known, 1.0, 0.0).to(tl.float64)
    if SCALE:
        factor = tl.load(scale + of_client, mask=known, other=0.0).to(tl.float64)
    level = -mean * spread * factor
    if SHIFT:
        level += tl.load(shift + of_client, mask=known, other=0.0)
    slope = (spread * factor).to(tl.float32)
    offset = level.to(tl.float32)
    first = tl.zeros([AT, BLOCK], tl.float64)
    second = tl.zeros([AT, BLOCK], tl.float64)
    for start in range(0, positions, AT):
        at = start + tl.arange(0, AT)
        place = begin + at[:, None] * position_step + channel[None, :] * channel_step
        inside = (at < positions)[:, None] & known[None, :]
        value = tl.load(images + place, mask=inside, other=0.0)
        gradient = tl.load(gradients + place, mask=inside, other=0.0)
        gradient = _passed(value, gradient, results + place, inside, slope, offset, add, rectify)
        if add * rectify != 0:
            tl.store(beside + place, gradient, mask=inside)
        first += gradient.to(tl.float64)
        second += gradient.to(tl.float64) * value.to(tl.float64)
    total = tl.sum(first, 0)
    product = (tl.sum(second, 0) - mean * total) * spread
    tl.store(scales + image * channels + channel, product, mask=known)
    tl.store(shifts + image * channels + channel, total, mask=known)
    # With x' = (x - mean) * spread: dx = spread * (s g - mean(s g) - x' mean(s g x')), s being the scale.
    count = positions * OWN
    bend = -spread * spread * _shared(factor * product, GROUPS, BLOCK) / count
    floor = (-spread * _shared(factor * total, GROUPS, BLOCK) / count - bend * mean).to(tl.float32)
    curve = bend.to(tl.float32)
    for start in range(0, positions, AT):
        at = start + tl.arange(0, AT)
        place = begin + at[:, None] * position_step + channel[None, :] * channel_step
        inside = (at < positions)[:, None] & known[None, :]
        value = tl.load(images + place, mask=inside, other=0.0)
        gradient = tl.load(gradients + place, mask=inside, other=0.0)
        gradient = _passed(value, gradient, results + place, inside, slope, offset, add, rectify)
        tl.store(below + place, gradient * slope[None, :] + value * curve[None, :] + floor[None, :], mask=inside)


def normalised(
    images: Tensor,
    groups: int,
    scale: Tensor | None,
    shift: Tensor | None,
    epsilon: float,
    *,
    shortcut: Tensor | None = None,
    rectify: bool = False,
) -> Tensor:
    """Normalise each image over groups of channels, as :func:`reads` allows it.

    Args:
        images: ``(K * batch, channels, ...)``.
        groups: of channels.
        scale: ``(K, channels)``; the first batch of images has the first line, and so on.
        shift: the same.
        epsilon: what is added to the variance.
        shortcut: is added to the result.
        rectify: whether what is negative then becomes zero.
    """
    result: Tensor = _GroupNorm.apply(images, shortcut, groups, scale, shift, epsilon, rectify)  # type: ignore[no-untyped-call]  # torch gives it no types
    return result


def reads(images: Tensor, groups: int) -> bool:
    """Return whether kernels normalise such images, which they can't where a model maps or differentiates in itself."""
    fits = images.is_cuda and images.dtype == torch.float32 and 0 < images.numel() < len(images) * _LARGEST
    fits = fits and type(images) is Tensor and not torch._C._are_functorch_transforms_active()
    return fits and groups <= _MOST and images.shape[1] // groups <= _WIDEST and _works(images.device)


class _GroupNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        images: Tensor,
        shortcut: Tensor | None,
        groups: int,
        scale: Tensor | None,
        shift: Tensor | None,
        epsilon: float,
        rectify: bool,
    ) -> Tensor:
        last = images.dim() == 4 and not images.is_contiguous()
        ctx.order = torch.channels_last if last else torch.contiguous_format
        images = images.contiguous(memory_format=ctx.order)
        shortcut = None if shortcut is None else shortcut.contiguous(memory_format=ctx.order)
        found, added = torch.empty_like(images), shortcut is not None
        means, spreads = images.new_empty((2, *images.shape[:2]), dtype=torch.float64)
        tasks = [int(added), int(rectify)]  # kernels are told while they run: there are half as many to compile
        grid, numbers, options = _laid_out(images, groups, scale, shift, tasks, last=last)
        with torch.cuda.device(images.device):
            _forward[grid](
                images, shortcut if added else images, scale, shift, found, means, spreads, epsilon, *numbers, **options
            )
        kept = found if added and rectify else None
        ctx.save_for_backward(images, scale, shift, means, spreads, kept)
        ctx.launch = grid, numbers, options
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        images, scale, shift, means, spreads, results = ctx.saved_tensors
        grid, numbers, options = ctx.launch
        # What somebody has kept elsewhere meanwhile, in the host's memory say, may come back in the other order.
        images, gradient = (own.contiguous(memory_format=ctx.order) for own in (images, gradient))
        results = None if results is None else results.contiguous(memory_format=ctx.order)
        below, beside = torch.empty_like(images), gradient if results is None else torch.empty_like(images)
        sums = images.new_empty(2, *images.shape[:2])
        with torch.cuda.device(images.device):
            _backward[grid](
                images,
                images if results is None else results,
                gradient,
                scale,
                shift,
                means,
                spreads,
                below,
                beside,
                *sums,
                *numbers,
                **options,
            )
        each, wanted = numbers[0], ctx.needs_input_grad[3:5]
        if each > 1 and any(wanted):
            sums = sums.view(2, len(images) // each, each, -1).sum(2)
        scales, shifts = (own if asked else None for own, asked in zip(sums, wanted, strict=True))
        return below, beside if numbers[4] else None, None, scales, shifts, None, None


def _laid_out(
    images: Tensor, groups: int, scale: Tensor | None, shift: Tensor | None, tasks: Sequence[int], *, last: bool
) -> tuple[tuple[int, int], list[int], dict[str, Any]]:
    """Return how many blocks of threads there are, the numbers that say where what lies, and what one takes."""
    count, channels = images.shape[:2]
    positions, own = images.shape[2:].numel(), channels // groups
    lines = [part for part in (scale, shift) if part is not None]
    steps = {part.stride(0) for part in lines}
    if len(steps) > 1 or any(part.stride(1) != 1 for part in lines):
        raise ValueError(f"expected scale and shift in lines, got strides {[part.stride() for part in lines]}")
    # Groups of a power of two of channels that lie side by side share a line of memory, and a block of threads.
    together = min(_LINE // own, 1 << groups.bit_length() - 1) if last and own in (1, 2, 4, 8, 16) else 1
    block = triton.next_power_of_2(own * together)
    grid = count, -(-groups // together)
    large = count * grid[1] < _FEW and positions * block >= _LARGE
    at = min((_LARGE if large else _TILE) // block, triton.next_power_of_2(positions))
    options = {
        "OWN": own,
        "GROUPS": together,
        "BLOCK": block,
        "AT": max(at, 1),
        "SCALE": scale is not None,
        "SHIFT": shift is not None,
        "num_warps": 16 if large else 4,
    }
    inside = (1, channels) if last else (positions, 1)
    numbers = [count // len(lines[0]) if lines else count, positions, channels, *(steps or {0}), *tasks, *inside]
    return grid, numbers, options


@cache
def _works(device: torch.device) -> bool:
    """Return whether kernels can be built here, and give what they should on both ways."""
    if triton is None:
        return False
    try:
        with torch.no_grad():  # by no pass of autograd's: whoever listens to what it keeps would hear of this one
            return _right(device)
    except Exception:  # whatever is missing, in whatever words Triton says so
        return False


def _right(device: torch.device) -> bool:
    """Return whether kernels give what PyTorch gives for a few numbers."""
    images, shortcut, gradient = torch.arange(144.0, dtype=torch.float32, device=device).sin().view(3, 2, 6, 2, 2)
    scale, shift = shortcut.flatten()[:6], gradient.flatten()[:6]
    context: Any = SimpleNamespace(needs_input_grad=[True] * 7)
    context.save_for_backward = lambda *kept: vars(context).update(saved_tensors=kept)
    found = _GroupNorm.forward(context, images, shortcut, 3, scale[None], shift[None], 1e-5, True)
    own: Any = _GroupNorm.backward(context, gradient)
    below, beside, _, scales, shifts, *_ = own
    sizes = 2, 6, 4, 3
    normal, means, spreads = torch.native_group_norm(images, scale, shift, *sizes, 1e-5)
    result = normal + shortcut
    passed = torch.where(result > 0.0, gradient, 0.0)
    back = torch.ops.aten.native_group_norm_backward(passed, images, means, spreads, scale, *sizes, [True] * 3)
    pairs = (found, result.relu()), (beside, passed), (below, back[0]), (scales[0], back[1]), (shifts[0], back[2])
    return all(torch.allclose(one, other, rtol=1e-4, atol=1e-4) for one, other in pairs)
