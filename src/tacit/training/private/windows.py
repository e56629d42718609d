"""The rule of convolutions: what :mod:`ghost_norms` does with positions, on the windows of a layer's input.

On a CPU native kernels (:mod:`tacit.training.private.images`) form gradients of 3 x 3 kernels by Winograd's method, and
compute Gram matrices and clipped sums straight from the images. What is formed is what is measured and summed; Gram
matrices and sums are in double precision, with the error that :mod:`ghost_norms` allows for: a product of two windows
is the sum of the products of their pixels, of as many numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.training.private import double, fused, images
from tacit.training.private.ghost_norms import (
    Call,
    Formed,
    Gram,
    Grams,
    LayerGradients,
    Twice,
    doubles,
    gram_pays,
    shapes,
    side_by_side,
    trains,
)
from tacit.training.products import as_convolutions, broad, in_tf32, whole

_FITS_A_CACHE = 1 << 20  # numbers of windows; with four times fewer or sixteen times more a step takes longer
_AT_ONCE = 1 << 24  # numbers of windows on a GPU


def convolution(layer: nn.Conv1d | nn.Conv2d, calls: Sequence[Call]) -> LayerGradients:
    """Return the gradients of a convolution: an affine map of the windows of its input."""
    weight, bias = trains(layer)
    shift = torch.stack([b.flatten(2).sum(2) for _, b in calls]).sum(0) if bias else None
    shifts = () if shift is None else (shift,)
    if not weight:
        return Formed(gradients=shifts, shapes=shapes(layer))
    windows = _Windows(layer=layer, calls=calls)
    own = windows.read() if in_tf32(calls[0][0]) else None
    if own is not None and not gram_pays(*windows.sizes[1:], held=False):
        if layer.weight.numel() <= sum(part[0].numel() for part in calls[0]):  # what they are made of is let go
            return Formed(gradients=(own.held(), *shifts), shapes=shapes(layer))
        return Passing(own=own, shapes=shapes(layer), bias=shift)
    if layer.groups == 1 and gram_pays(*windows.sizes[1:]):
        return Gram(at=_Read(layer=layer, calls=calls) if windows.readable else windows, bias=shift)
    if layer.groups == 1 and windows.scarce:
        return Twice(at=windows, bias=shift)
    tiles = images.products(layer, *calls[0]) if len(calls) == 1 else None
    formed, last = (windows.products(), windows.last) if tiles is None else (tiles, False)
    return Formed(gradients=(formed, *shifts), shapes=shapes(layer), channels_last=last)


class Passing:
    """Gradients that a kernel forms for their norms and once more for their sum, and holds nowhere in between.

    Where there is room beside what a step holds anyhow, :meth:`keep` has them formed once.
    """

    doubtful = None

    def __init__(self, *, own: fused.Images, shapes: tuple[torch.Size, ...], bias: Tensor | None) -> None:
        """Form nothing yet.

        Args:
            own: what they are made of.
            shapes: of the weight, and of the bias where one trains.
            bias: each example's gradient of the bias, where one trains.
        """
        self._own: fused.Images | None = own
        self._shapes, self._bias = shapes, bias
        self._kept: Formed | None = None
        self.numbers = len(own.gradients) * shapes[0].numel()  # how many the weight's gradients are
        self.positions = own.gradients.shape[2:].numel()  # what forming one of those costs

    def keep(self) -> None:
        """Form the gradients now and hold them; what they are made of is let go."""
        assert self._own is not None
        shifts = () if self._bias is None else (self._bias,)
        self._kept, self._own = Formed(gradients=(self._own.held(), *shifts), shapes=self._shapes), None

    @property
    def squares(self) -> Tensor:
        """Their squared norms."""
        if self._own is None:
            assert self._kept is not None
            return self._kept.squares
        found = self._own.squares()
        return found if self._bias is None else found + double.squares(self._bias)

    def weighted(self, factors: Tensor) -> list[Tensor]:
        """Return the weighted sums."""
        if self._own is None:
            assert self._kept is not None
            return self._kept.weighted(factors)
        sums = [self._own.combined(factors).view(self._shapes[0])]
        return sums if self._bias is None else [*sums, double.combined(factors, self._bias)]


class _Windows:
    """Positions of a convolution: windows are copied out of the inputs whenever they are asked for.

    Attributes:
        last: whether the numbers of a window have the channels last: they are then copied a row at a time. On a GPU
            inputs are brought into that order first, on a CPU they come in it where PyTorch's convolutions like it.
    """

    def __init__(self, *, layer: nn.Conv1d | nn.Conv2d, calls: Sequence[Call]) -> None:
        self._layer = layer
        self._calls = calls
        first = self._padded(calls[0][0][:1])
        self.last = layer.groups == 1 and first.shape[1] > 1 and (self.scarce or first.stride(1) == 1)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """B, T, d and p."""
        places = sum(b.shape[2:].numel() for _, b in self._calls)
        weight = self._layer.weight
        return len(self._calls[0][0]), places, weight[0].numel(), len(weight)

    @property
    def scarce(self) -> bool:
        """Whether memory is scarcer than time where they lie."""
        return double.scarce(self._calls[0][0])

    @property
    def readable(self) -> bool:
        """Whether native kernels can read them, of a layer that is called once."""
        return len(self._calls) == 1 and images.reads(*self._calls[0])

    def of(self, rows: slice | Tensor, factors: Tensor | None = None) -> Call:
        """Return windows and output gradients of some examples in double precision; zeros where a factor is zero."""
        found = [self._of_call(doubles(a[rows], factors), doubles(b[rows], factors)) for a, b in self._calls]
        return side_by_side([a for a, _ in found]), side_by_side([b for _, b in found])

    def formed(self, rows: slice | Tensor) -> Tensor:
        """Return the gradients of some examples, in the precision of convolutions."""
        found = [self._of_call(a[rows], b[rows]) for a, b in self._calls]
        a, b = side_by_side([a for a, _ in found]), side_by_side([b for _, b in found])
        with as_convolutions(a):
            return torch.bmm(b.mT, a)

    def shaped(self, total: Tensor) -> Tensor:
        """Return a ``(p, d)`` matrix in the shape of the weight."""
        shape = self._layer.weight.shape
        if not self.last:
            return total.view(shape)
        return total.view(shape[0], *shape[2:], shape[1]).movedim(-1, 1).contiguous()

    def products(self) -> Tensor:
        """Return each example's weight gradient: its numbers, or ``(outputs, *kernel, channels)`` with those last."""
        formed = [self._products_of(*call) for call in self._calls]
        total = formed[0] if len(formed) == 1 else torch.stack(formed).sum(0)
        shape = self._layer.weight.shape
        return total.view(-1, shape[0], *shape[2:], shape[1]) if self.last else total.view(len(self._calls[0][0]), -1)

    def _products_of(self, a: Tensor, b: Tensor) -> Tensor:
        """Return each example's weight gradient of a call, of as many at a time as fit a cache."""
        groups, weight = self._layer.groups, self._layer.weight
        each = b.shape[2:].numel() * weight[0].numel() * groups
        at_once = max(1, (_AT_ONCE if self.scarce else _FITS_A_CACHE) // each)
        formed = a.new_empty(len(a) * groups, len(weight) // groups, weight[0].numel())
        for part in range(0, len(a), at_once):
            windows, gradients = self._of_call(a[part : part + at_once], b[part : part + at_once])
            with as_convolutions(a):
                torch.bmm(gradients.mT, windows, out=formed[groups * part : groups * (part + at_once)])
        return formed

    def read(self) -> fused.Images | None:
        """Return how kernels read them, of a layer that is called once; None where there are none."""
        layer, (a, b) = self._layer, self._calls[0]
        if len(self._calls) > 1 or layer.groups > 1 or not fused.reads_positions(a, b):
            return None
        flat = a.dim() == 3
        return fused.Images(
            inputs=lambda: self._padded(a)[:, :, None] if flat else self._padded(a),
            gradients=b[:, :, None] if flat else b,
            width=layer.weight[0].numel(),
            kernel=_pair(layer.kernel_size),
            stride=_pair(layer.stride),
            dilation=_pair(layer.dilation),
        )

    def grams(self) -> Grams | None:
        """Return what computes norms by Gram matrices, or None where nothing does."""
        return self.read() if self.sizes[1] <= fused.MOST_POSITIONS else None

    def combined(self, factors: Tensor) -> Tensor | None:
        """Return None: of windows in double precision torch's product is faster than a kernel that reads them."""
        return None

    def _padded(self, a: Tensor) -> Tensor:
        padding, mode = self._layer._reversed_padding_repeated_twice, self._layer.padding_mode
        return F.pad(a, padding, mode="constant" if mode == "zeros" else mode) if any(padding) else a

    def _of_call(self, a: Tensor, b: Tensor) -> Call:
        """Return windows, ``(examples * groups, positions, numbers)``, and output gradients with the positions so."""
        layer, a = self._layer, self._padded(a)
        kernel, stride, dilation = layer.kernel_size, layer.stride, layer.dilation
        if a.dim() == 3:  # one axis is two, the first of length one
            a, b, kernel, stride, dilation = a[:, :, None], b[:, :, None], (1, *kernel), (1, *stride), (1, *dilation)
        examples, groups, places = len(a), layer.groups, b.shape[2:].numel()
        if self.last:
            pixels = a.permute(0, 2, 3, 1)
            pixels = broad(pixels.contiguous()) if self.scarce else pixels
            n, h, w, c = pixels.stride()
            shape = (examples, *b.shape[2:], *kernel, pixels.shape[3])
            strides = (n, h * stride[0], w * stride[1], h * dilation[0], w * dilation[1], c)
            windows = pixels.as_strided(shape, strides, pixels.storage_offset()).reshape(examples, places, -1)
            return whole(windows, a.dtype), b.permute(0, 2, 3, 1).reshape(examples, places, -1)
        n, c, h, w = a.stride()
        shape = (examples, a.shape[1], *kernel, *b.shape[2:])
        strides = (n, c, h * dilation[0], w * dilation[1], h * stride[0], w * stride[1])
        windows = a.as_strided(shape, strides, a.storage_offset()).reshape(examples * groups, -1, places)
        return windows.mT, b.reshape(examples * groups, -1, places).mT


class _Read(_Windows):
    """Positions of a convolution on a CPU whose norms and sums native kernels compute; no window is copied."""

    def __init__(self, *, layer: nn.Conv1d | nn.Conv2d, calls: Sequence[Call]) -> None:
        super().__init__(layer=layer, calls=calls)
        self.last = False  # sums come in the order of the weight
        a, b = self._padded(calls[0][0]), calls[0][1]
        self._own = images.Read(
            a[:, :, None] if a.dim() == 3 else a,
            b[:, :, None] if b.dim() == 3 else b,
            kernel=_pair(layer.kernel_size),
            stride=_pair(layer.stride),
            dilation=_pair(layer.dilation),
        )

    def grams(self) -> Grams:
        """Return what computes norms by Gram matrices."""
        return self._own

    def combined(self, factors: Tensor) -> Tensor:
        """Return the sum of gradients times factors by a kernel."""
        return self._own.combined(factors)


def _pair(numbers: Sequence[int]) -> tuple[int, int]:
    """Return one number for each of two axes; one axis is two, the first of length one."""
    return (1, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])
