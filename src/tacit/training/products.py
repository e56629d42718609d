"""Convolutions and group norms of K clients on a GPU: ``(K * batch, channels, height, width)``, channels last.

A convolution of K clients, each with its own kernel, is one batched matrix product of all windows of their images:
several times as fast on GPUs as a convolution with K groups, for which cuDNN has no good kernels. With the channels
innermost a window is copied in rows, and what a product gives is an image again. Group norm is written out for the same
order: PyTorch's own kernel copies such images first, and its result is in the other order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from tacit.training.program import Convolution

Pair = tuple[int, int]

_TILE = 64  # outputs that a block of threads computes in a product, on each side
_AT_ONCE = 512  # blocks that a GPU has at once; an H200 has 132 processors
_SHORTEST = 256  # terms of a sum


def convolve(c: Convolution, value: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
    """Convolve each client's images with its own kernel.

    Args:
        c: the layer; one group, no dilation.
        value: images of all clients, one client after another.
        kernel: ``(K, outputs, channels, high, wide)``.
        bias: ``(K, outputs)``.
    """
    result: Tensor = _Convolution.apply(value, kernel, bias, c.stride, c.padding)  # type: ignore[no-untyped-call]  # torch gives it no types
    return result


def group_norm(value: Tensor, groups: int, scale: Tensor | None, shift: Tensor | None, epsilon: float) -> Tensor:
    """Normalise each image over groups of channels; ``scale`` and ``shift`` are ``(K, channels)``."""
    result: Tensor = _GroupNorm.apply(value, groups, scale, shift, epsilon)  # type: ignore[no-untyped-call]  # as above
    return result


def arranged(kernel: Tensor) -> Tensor:
    """Return kernels ``(K, outputs, channels, high, wide)`` with the channels innermost in memory, as products want."""
    return kernel.permute(0, 1, 3, 4, 2).clone(memory_format=torch.contiguous_format).permute(0, 1, 4, 2, 3)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, kernel: Tensor, bias: Tensor | None, stride: Pair, padding: Pair) -> Tensor:
        clients, outputs, _, high, wide = kernel.shape
        pixels = _pixels(value, clients)
        rows, (height, width) = _windows(pixels, (high, wide), stride, padding)
        matrix = _matrix(kernel).flatten(2).transpose(1, 2)
        with as_convolutions(value):
            product = torch.bmm(rows, matrix) if bias is None else torch.baddbmm(bias[:, None], rows, matrix)
        ctx.save_for_backward(rows, kernel)
        ctx.pixels, ctx.stride, ctx.padding = pixels.shape, stride, padding
        return product.view(len(value), height, width, outputs).permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, kernel = ctx.saved_tensors
        clients, outputs, channels, high, wide = kernel.shape
        own = _pixels(gradient, clients)
        flat = own.flatten(1, 3)
        wanted, _, biased, *_ = ctx.needs_input_grad
        with as_convolutions(gradient):
            product = _in_parts(flat, rows).view(clients, outputs, high, wide, channels)
            below = _below(own, kernel, ctx.pixels, ctx.stride, ctx.padding) if wanted else None
        return below, product.permute(0, 1, 4, 2, 3), flat.sum(1) if biased else None, None, None


def _below(own: Tensor, kernel: Tensor, shape: torch.Size, stride: Pair, padding: Pair) -> Tensor:
    """Return the gradient of the images: where windows move by one pixel it is a convolution of what comes back."""
    channels, high, wide = kernel.shape[2:]
    clients, batch, height, width, _ = shape
    matrix = _matrix(kernel)
    if stride == (1, 1) and padding[0] < high and padding[1] < wide:
        rows, _ = _windows(own, (high, wide), stride, (high - 1 - padding[0], wide - 1 - padding[1]))
        turned = whole(torch.cat(broad(matrix).flatten(2, 3).unbind(2)[::-1], 1), kernel.dtype)
        return torch.bmm(rows, turned).view(clients * batch, height, width, channels).permute(0, 3, 1, 2)
    parts = torch.bmm(own.flatten(1, 3), matrix.flatten(2)).view(*own.shape[:4], high, wide, channels)
    padded = own.new_zeros(clients, batch, height + 2 * padding[0], width + 2 * padding[1], channels)
    down, right = stride[0] * own.shape[2], stride[1] * own.shape[3]
    for y in range(high):
        for x in range(wide):
            padded[:, :, y : y + down : stride[0], x : x + right : stride[1]] += parts[..., y, x, :]
    inner = padded[:, :, padding[0] : padding[0] + height, padding[1] : padding[1] + width]
    return inner.reshape(clients * batch, height, width, channels).permute(0, 3, 1, 2)


def _in_parts(flat: Tensor, rows: Tensor) -> Tensor:
    """Return the transpose of ``flat`` times ``rows`` for each client.

    The sum over all pixels is long and what comes of it small: a GPU that has a few tiles to compute is idle elsewhere,
    so sums over parts of the pixels are taken side by side.
    """
    clients, places, outputs = flat.shape
    tiles, parts = clients * -(-outputs // _TILE) * -(-rows.shape[2] // _TILE), 1
    while parts * tiles < _AT_ONCE and places % (2 * parts) == 0 and places // (2 * parts) >= _SHORTEST:
        parts *= 2
    if parts == 1:
        return torch.bmm(flat.transpose(1, 2), rows)
    each = (own.view(clients * parts, places // parts, -1) for own in (flat, rows))
    left, right = each
    return torch.bmm(left.transpose(1, 2), right).view(clients, parts, outputs, -1).sum(1)


def _pixels(value: Tensor, clients: int) -> Tensor:
    """Return images as ``(K, batch, height, width, channels)``."""
    return value.view(clients, -1, *value.shape[1:]).permute(0, 1, 3, 4, 2).contiguous()


def _matrix(kernel: Tensor) -> Tensor:
    """Return kernels as ``(K, outputs, high, wide, channels)``."""
    return kernel.permute(0, 1, 3, 4, 2).contiguous()


def _windows(pixels: Tensor, size: Pair, stride: Pair, padding: Pair) -> tuple[Tensor, Pair]:
    """Return each window as a row, ``(K, batch * height * width, size * channels)``, and how many there are."""
    wide = broad(pixels)
    if any(padding):
        wide = F.pad(wide, (0, 0, padding[1], padding[1], padding[0], padding[0]))
    views = wide.unfold(2, size[0], stride[0]).unfold(3, size[1], stride[1])
    rows = views.permute(0, 1, 2, 3, 5, 6, 4).reshape(len(wide), views.shape[1:4].numel(), -1)
    return whole(rows, pixels.dtype), (views.shape[2], views.shape[3])


def broad(values: Tensor) -> Tensor:
    """Return values as wider ones, four or two numbers each: they are copied about one by one, which costs the same."""
    wider = {torch.float32: ((4, torch.complex128), (2, torch.complex64)), torch.float64: ((2, torch.complex128),)}
    for numbers, kind in wider.get(values.dtype, ()):
        if values.shape[-1] % numbers == 0:
            return values.reshape(-1).view(kind).view(*values.shape[:-1], -1)
    return values


def whole(values: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Undo :func:`broad` of values of a type."""
    if not values.is_complex():
        return values
    return (values if values.stride(-1) == 1 else values.contiguous()).view(dtype)  # one complex number has any stride


def in_tf32(value: Tensor) -> bool:
    """Return whether torch's switches give convolutions TF32 where a value lies."""
    if not value.is_cuda:
        return False
    with as_convolutions(value):
        try:
            return bool(torch.backends.cuda.matmul.allow_tf32)
        except RuntimeError:  # as there
            return False


@contextmanager
def as_convolutions(value: Tensor) -> Iterator[None]:
    """Let products have the precision that torch's switch gives convolutions: TF32 by default, where a GPU has it."""
    if not value.is_cuda:
        yield
        return
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    try:
        before, matmul.allow_tf32 = matmul.allow_tf32, cudnn.enabled and cudnn.allow_tf32
    except RuntimeError:  # somebody set precisions by torch's newer switches, which the old ones then don't tell
        yield
        return
    try:
        yield
    finally:
        matmul.allow_tf32 = before


class _GroupNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, value: Tensor, groups: int, scale: Tensor | None, shift: Tensor | None, epsilon: float
    ) -> Tensor:
        pixels = _grouped(value, groups)
        variance, mean = torch.var_mean(pixels, (1, 3), correction=0, keepdim=True)
        spread = (variance + epsilon).rsqrt_()
        factor = spread if scale is None else spread * _each(scale, len(value), groups)
        offset = -mean * factor
        if shift is not None:
            offset = offset + _each(shift, len(value), groups)
        ctx.save_for_backward(pixels, mean, spread, scale)
        ctx.shape, ctx.clients = value.shape, next((len(own) for own in (scale, shift) if own is not None), 1)
        return _images(torch.addcmul(offset, pixels, factor), value.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        pixels, mean, spread, scale = ctx.saved_tensors
        images, channels = ctx.shape[:2]
        own = _grouped(gradient, mean.shape[2])
        sums = own.sum(1, keepdim=True)
        products = (own * pixels).sum(1, keepdim=True)
        shifts = sums.view(ctx.clients, -1, channels).sum(1) if ctx.needs_input_grad[3] else None
        scales = None
        if ctx.needs_input_grad[2]:
            scales = ((products - mean * sums) * spread).view(ctx.clients, -1, channels).sum(1)
        # With x' = (x - mean) * spread: dx = spread * (s g - mean(s g) - x' mean(s g x')), s being the scale.
        count = pixels.shape[1] * pixels.shape[3]
        if scale is None:
            factor, first, second = spread, sums, products
        else:
            each = _each(scale, images, mean.shape[2])
            factor, first, second = spread * each, sums * each, products * each
        first, second = first.sum(3, keepdim=True), second.sum(3, keepdim=True)
        slope = (mean * first - second) * spread.pow(3) / count
        level = -first * spread / count - slope * mean
        below = torch.addcmul(level, pixels, slope).addcmul_(own, factor)
        return _images(below, ctx.shape), None, scales, shifts, None


def _grouped(value: Tensor, groups: int) -> Tensor:
    """Return images as ``(images, pixels, groups, channels of a group)``."""
    return value.permute(0, 2, 3, 1).reshape(len(value), value.shape[2] * value.shape[3], groups, -1)


def _images(pixels: Tensor, shape: torch.Size) -> Tensor:
    return pixels.view(shape[0], shape[2], shape[3], shape[1]).permute(0, 3, 1, 2)


def _each(own: Tensor, images: int, groups: int) -> Tensor:
    """Return one number per client and channel for each image, ``(images, 1, groups, channels of a group)``."""
    clients, channels = own.shape
    spread = own[:, None].expand(clients, images // clients, channels)
    return spread.reshape(images, 1, groups, -1)
