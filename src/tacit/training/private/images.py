"""Convolutions and group norms of a private pass by native kernels, layer by layer, with all cores.

Book-keeping listens to every layer, so that layers can't be joined as plain training joins them
(:mod:`tacit.training.native.stretch`). It asks for the gradients of values only: a convolution computes none of its
weight, and a group norm hands out those of each example, which its backward pass meets anyway. Images have their
channels innermost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from tacit.training import native
from tacit.training.native import LANES, addresses
from tacit.training.native.images import filled, worth
from tacit.training.native.stretch import MOST_PAD
from tacit.training.parameters import computes_again
from tacit.training.program import Pair

_LAST = torch.channels_last
_PLAIN: Pair = (1, 1)
_MOST_PIXELS = 1 << 10  # of which all products with each other are 8 MB


def suits(model: nn.Module) -> bool:
    """Return whether a model gains: it has convolutions for tiles, and no group norm that would be PyTorch's.

    With channels innermost PyTorch's group norm takes four times as long.
    """
    parts = list(model.modules())
    norms = [part for part in parts if isinstance(part, nn.GroupNorm)]
    return (
        native.available()
        and all(p.is_cpu and p.dtype == torch.float32 for p in model.parameters())
        and all(norm.num_channels % LANES == 0 for norm in norms)
        and any(isinstance(part, nn.Conv2d) and _padding(part.weight, *_moves(part)) is not None for part in parts)
    )


def _moves(layer: nn.Conv2d) -> tuple[Any, Any, Any, int]:
    return layer.stride, layer.padding, layer.dilation, layer.groups


class OutOfOrderError(Exception):
    """A group norm has to be PyTorch's, which should get images in the order of their axes."""


class Natively(TorchFunctionMode):
    """While it is on, convolutions of 3 x 3 and group norms are native where they can be.

    Where somebody else handles saved tensors (a checkpoint, which computes them again on the way back), layers are
    torch's: who computes them again does so with torch's layers, and what those save would be taken for what native
    ones saved. With channels innermost torch's group norm takes four times as long, and its backward pass ends the
    process where nothing before it asks for a gradient: :class:`OutOfOrderError` is raised where one is computed again.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        found = None
        if func in {torch.conv2d, F.group_norm} and "input" in given:  # by torch's name, which is Python's too
            args = (given.pop("input"), *args)
        if func is torch.conv2d and not computes_again():
            found = _convolved(*args, **given)
        elif func is F.group_norm:
            if computes_again():
                raise OutOfOrderError
            found = _normalised(*args, **given)
            args = args if found is not None else (args[0].contiguous(), *args[1:])
        return func(*args, **given) if found is None else found


def is_norm(node: object) -> bool:
    """Return whether a node of autograd's is a native group norm's."""
    return isinstance(node, _Norm._backward_cls)


def formed(node: Any) -> tuple[Tensor, ...]:
    """Return each example's gradients of scale and shift, given a native norm's node; none where no gradient came."""
    found: tuple[Tensor, ...] = getattr(node, "formed", ())
    return found


def forget(node: Any) -> None:
    """Let go what a native norm's node formed in a backward pass that the model itself took."""
    node.formed = ()


def products(layer: nn.Conv1d | nn.Conv2d, x: Tensor, grad: Tensor) -> Tensor | None:
    """Return each example's gradient of a weight by tiles, in the order of the weight; None where there are none."""
    if x.dim() != 4 or layer.padding_mode != "zeros" or not native.available() or not _plain(x, grad):
        return None
    pad = _padding(layer.weight, layer.stride, layer.padding, layer.dilation, layer.groups)
    if pad is None or not filled(*grad.shape[2:]):
        return None
    x, grad = x.contiguous(memory_format=_LAST), grad.contiguous(memory_format=_LAST)
    made = x.new_empty((len(x), *layer.weight.shape))
    sizes = (len(x), *x.shape[2:], x.shape[1], grad.shape[1], pad, torch.get_num_threads())
    native.kernels.kernel_each(*addresses(x, grad, made), *sizes)
    return made


def _padding(weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int) -> int | None:
    """Return by how much images are padded on each side of a convolution for tiles; None of another."""
    pad = _pair(padding)
    plain = _pair(stride) == _pair(dilation) == _PLAIN and groups == 1 and weight.shape[2:] == (3, 3)
    fits = plain and weight.shape[0] % LANES == weight.shape[1] % LANES == 0
    return int(pad[0]) if fits and pad is not None and pad[0] == pad[1] <= MOST_PAD else None


def _pair(value: Any) -> tuple[int, int] | None:
    """Return a number for each axis; None of what is said in words."""
    if isinstance(value, int):
        return value, value
    return None if isinstance(value, str) else (value[0], value[-1])


def _plain(*values: Tensor | None) -> bool:
    """Return whether the kernels can read tensors."""
    return not torch.is_autocast_enabled("cpu") and all(
        value is None
        or (
            type(value) in (Tensor, nn.Parameter)
            and value.dtype == torch.float32
            and value.is_cpu
            and not torch._C._functorch.is_functorch_wrapped_tensor(value)
            and value.numel() > 0
        )
        for value in values
    )


def _convolved(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor | None:
    """Return what ``F.conv2d`` returns, or None where the kernels can't, or take longer."""
    pad = _padding(weight, stride, padding, dilation, groups) if x.dim() == weight.dim() == 4 else None
    leaf = all(own is None or own.is_leaf for own in (weight, bias))  # a weight that is computed needs its gradient
    if pad is None or not leaf or not _plain(x, weight, bias) or x.shape[1] != weight.shape[1]:
        return None
    high, wide = (side + 2 * pad - 2 for side in x.shape[2:])
    if high < 1 or wide < 1 or not filled(high, wide) or not worth(weight.shape, len(x), high, wide):
        return None
    found: Tensor = _Convolution.apply(x, weight, bias, pad)  # type: ignore[no-untyped-call]  # torch gives it no types
    return found


def _normalised(
    x: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor | None:
    """Return what ``F.group_norm`` returns, or None where the kernels can't."""
    channels = x.shape[1] if x.dim() == 4 else 1
    if weight is None or bias is None or channels % LANES or channels % groups or not _plain(x, weight, bias):
        return None
    if weight.numel() != channels or bias.numel() != channels:
        return None
    found: Tensor = _Norm.apply(x, weight, bias, groups, eps)  # type: ignore[no-untyped-call]  # as above
    return found


def _empty(like: Tensor, shape: Sequence[int]) -> Tensor:
    return torch.empty(tuple(shape), dtype=like.dtype, device=like.device, memory_format=_LAST)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, pad: int) -> Tensor:
        x, weight = x.contiguous(memory_format=_LAST), weight.contiguous()
        bias = None if bias is None else bias.contiguous()
        n, inputs, *image = x.shape
        outputs = len(weight)
        out = _empty(x, (n, outputs, *(side + 2 * pad - 2 for side in image)))
        sizes = (n, *image, inputs, outputs, pad, 9, 9 * inputs)
        native.kernels.convolve(*addresses(x, weight, bias, out), *sizes, 0, 0, torch.get_num_threads())
        ctx.save_for_backward(weight)
        ctx.shape, ctx.pad = x.shape, pad
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if not ctx.needs_input_grad[0]:
            return None, None, None, None
        (weight,) = ctx.saved_tensors
        grad = grad.contiguous(memory_format=_LAST)
        (n, outputs, *image), inputs = grad.shape, ctx.shape[1]
        below = _empty(grad, ctx.shape)
        sizes = (n, *image, outputs, inputs, MOST_PAD - ctx.pad, 9 * inputs, 9)
        native.kernels.convolve(*addresses(grad, weight, None, below), *sizes, 1, 0, torch.get_num_threads())
        return below, None, None, None


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> Tensor:
        x, weight, bias = x.contiguous(memory_format=_LAST), weight.contiguous(), bias.contiguous()
        out, moments = torch.empty_like(x), x.new_empty(len(x), groups, 2)
        sizes = _sizes(x, groups)
        given = addresses(x, None, weight, bias, out, moments)
        native.kernels.norm(*given, *sizes, 0, torch.get_num_threads(), eps)
        ctx.save_for_backward(x, weight, bias, moments)
        ctx.groups = groups
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, moments = ctx.saved_tensors
        grad = grad.contiguous(memory_format=_LAST)
        below, rows = torch.empty_like(x), x.new_empty(2, *x.shape[:2])
        given = addresses(grad, x, None, weight, bias, moments, below, None, *rows)
        native.kernels.norm_back(*given, *_sizes(x, ctx.groups), 0, 1, torch.get_num_threads())
        ctx.formed = scales, shifts = rows[0], rows[1]
        return below, scales.sum(0), shifts.sum(0), None, None


def _sizes(x: Tensor, groups: int) -> tuple[int, ...]:
    return len(x), x.shape[2:].numel(), x.shape[1], groups


class Read:
    """Images and gradients of a convolution's outputs, of which native kernels compute norms and sums.

    Args:
        x: images that are padded already, ``(examples, channels, height, width)``.
        grad: the outputs' gradients.
        kernel: how high and wide a window is.
        stride: between windows.
        dilation: between the pixels of one.
    """

    def __init__(
        self, x: Tensor, grad: Tensor, *, kernel: Pair, stride: Pair = _PLAIN, dilation: Pair = _PLAIN
    ) -> None:
        if kernel == _PLAIN:  # pixels that no window has are left out
            x, stride = x[:, :, :: stride[0], :: stride[1]][:, :, : grad.shape[2], : grad.shape[3]], _PLAIN
        self._x, self._grad = (own.permute(0, 2, 3, 1).contiguous() for own in (x, grad))
        n, *image, channels = self._x.shape
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
        places = [(side - span) // step + 1 for side, span, step in zip(image, spans, stride, strict=True)]
        if self._grad.shape[:3] != (n, *places):  # a kernel would read past their end
            raise ValueError(f"expected gradients of {n} x {places} outputs, got {tuple(grad.shape)}")
        self._sizes = (n, *image, channels, grad.shape[1], *kernel, *stride, *dilation)
        self._shape = (grad.shape[1], channels, *kernel)

    def gram(self) -> tuple[Tensor, Tensor]:
        """Return squared norms by Gram matrices, and the squares of what all positions reach."""
        found = self._x.new_empty((len(self._x), 2), dtype=torch.float64)
        native.kernels.gram(*addresses(self._x, self._grad, found), *self._sizes, torch.get_num_threads())
        return found[:, 0], found[:, 1]

    def combined(self, factors: Tensor) -> Tensor:
        """Return the sum of gradients times factors, ``(outputs, numbers of a window)``."""
        sums, factors = self._x.new_empty(self._shape, dtype=torch.float64), factors.contiguous()
        if factors.dtype != torch.float64 or factors.shape != (len(self._x),):  # the kernel would read past their end
            raise ValueError(f"expected {len(self._x)} factors of float64, got {tuple(factors.shape)}")
        given = addresses(self._x, self._grad, factors, sums)
        native.kernels.clipped(*given, *self._sizes, torch.get_num_threads())
        return sums.flatten(1)


def reads(x: Tensor, grad: Tensor) -> bool:
    """Return whether :class:`Read` can, and the Gram matrices of an image's pixels are no burden."""
    return native.available() and _plain(x, grad) and x.shape[2:].numel() <= _MOST_PIXELS
