"""K clients as one network: convolutions with K groups, linear layers as batched matrix products.

Images of the cohort are laid out as ``(batch, K * channels, height, width)`` on CPUs, as ``(K * batch, channels,
height, width)`` on GPUs, where convolutions are products too (:mod:`tacit.training.products`), channels last on both;
rows as ``(K, batch, features)``. Every client has its own weights (leading axis K) and never sees another's: the groups
of a convolution and the matrices of a batched product don't mix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tacit.training import group_norm, products
from tacit.training.dropout import scaled_mask
from tacit.training.program import (
    Combine,
    Convolution,
    Dropout,
    Embedding,
    Flatten,
    GroupNorm,
    LayerNorm,
    Linear,
    Pointwise,
    Pool,
    Program,
    ProgramStep,
    Shrink,
    is_relu,
)


class GroupedNetwork:
    """Runs a program for K clients at once with PyTorch's own kernels, on any device."""

    name = "grouped"
    client_axis = 0

    def __init__(self, program: Program, *, by_client: bool) -> None:
        """Say what runs.

        Args:
            program: the model.
            by_client: whether images of several clients are laid out one client after another, as is best on a GPU.
        """
        self._program = program
        self._by_client = by_client
        self._rectified, self._inside = _rectified(program)

    def outputs(self, parameters: Sequence[Tensor], features: Tensor, keys: Tensor | None) -> Tensor:
        """Return the model's outputs, ``(K, batch, ...)``.

        Args:
            parameters: the trained tensors, each with a leading client axis.
            features: ``(K, batch, ...)``.
            keys: one dropout key per client, or None to evaluate.
        """
        layout = (_ByClient if self._by_client and len(features) > 1 else ByBatch)(len(features))
        values = [layout.images(features) if len(self._program.input_shape) == 3 else features]
        nothing = features.new_empty(0)
        for place, step in enumerate(self._program.steps):
            if place in self._inside:
                values.append(nothing)
            elif place in self._rectified:
                values.append(_normalise(self._rectified[place], values, parameters, layout))
            else:
                values.append(run_step(step, [values[i] for i in step.inputs], parameters, keys, layout))
        return values[-1]

    def arranged(self, parameter: Tensor) -> Tensor:
        """Return a stacked parameter in the order of memory in which the network computes with it."""
        return products.arranged(parameter) if self._by_client and parameter.dim() == 5 else parameter


class ByBatch:
    """Images as ``(batch, K * channels, height, width)``."""

    def __init__(self, clients: int) -> None:
        self.clients = clients

    def images(self, values: Tensor) -> Tensor:
        """Lay ``(K, batch, channels, height, width)`` out."""
        clients, batch, channels, *size = values.shape
        images = values.transpose(0, 1).reshape(batch, clients * channels, *size)
        # On CPUs channels-last lets the pooling vectorise. On GPUs cuDNN's kernels in TF32 are for that order alone;
        # those in full precision and for groups prefer the other, and so do PyTorch's group norms.
        last = not images.is_cuda or (clients == 1 and products.in_tf32(images) and group_norm.reads(images, 1))
        return images.contiguous(memory_format=torch.channels_last) if last else images

    def rows(self, images: Tensor) -> Tensor:
        """Return images as ``(K, batch, channels * height * width)``."""
        return images.reshape(len(images), self.clients, -1).transpose(0, 1)

    def convolve(self, c: Convolution, images: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        """Convolve each client's images with its own kernel."""
        shift = None if bias is None else bias.reshape(-1)
        return F.conv2d(images, kernel.flatten(0, 1), shift, c.stride, c.padding, c.dilation, self.clients * c.groups)

    def group_norm(self, images: Tensor, norm: GroupNorm, scale: Tensor | None, shift: Tensor | None) -> Tensor:
        """Normalise each image over groups of channels, with its client's scale and shift, where no kernel does."""
        scale, shift = (None if own is None else own.reshape(-1) for own in (scale, shift))
        if not images.requires_grad:  # of such, channels last, PyTorch's backward pass writes a gradient to nowhere
            images = images.contiguous()
        return F.group_norm(images, self.clients * norm.groups, scale, shift, norm.epsilon)


class _ByClient:
    """Images as ``(K * batch, channels, height, width)``."""

    def __init__(self, clients: int) -> None:
        self.clients = clients

    def images(self, values: Tensor) -> Tensor:
        """Lay ``(K, batch, channels, height, width)`` out."""
        return values.flatten(0, 1).contiguous(memory_format=torch.channels_last)

    def rows(self, images: Tensor) -> Tensor:
        """Return images as ``(K, batch, channels * height * width)``."""
        return images.reshape(self.clients, len(images) // self.clients, -1)

    def convolve(self, c: Convolution, images: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        """Convolve each client's images with its own kernel."""
        if c.groups == 1 and c.dilation == (1, 1):
            return products.convolve(c, images, kernel, bias)
        others = ByBatch(self.clients)
        wide = others.convolve(c, others.images(images.view(self.clients, -1, *images.shape[1:])), kernel, bias)
        return self.images(wide.view(len(wide), self.clients, -1, *wide.shape[2:]).transpose(0, 1))

    def group_norm(self, images: Tensor, norm: GroupNorm, scale: Tensor | None, shift: Tensor | None) -> Tensor:
        """Normalise each image over groups of channels, with its client's scale and shift, where no kernel does."""
        return products.group_norm(images, norm.groups, scale, shift, norm.epsilon)


def run_step(  # noqa: PLR0911 - a table of rules
    step: ProgramStep,
    inputs: Sequence[Tensor],
    parameters: Sequence[Tensor],
    keys: Tensor | None,
    layout: ByBatch | _ByClient,
) -> Tensor:
    """Return the result of one step for K clients, of the results of earlier steps."""
    value = inputs[0]
    image = len(step.before) == 3
    match step.operation:
        case Convolution(weight=weight, bias=bias) as convolution:
            return layout.convolve(convolution, value, parameters[weight], None if bias is None else parameters[bias])
        case Linear(weight=weight, bias=bias):
            rows, matrix = value.flatten(1, -2), parameters[weight].transpose(1, 2)
            product = (
                torch.bmm(rows, matrix) if bias is None else torch.baddbmm(parameters[bias][:, None], rows, matrix)
            )
            return product.view(*value.shape[:-1], -1)
        case Pool(function=function, kernel=size, stride=stride, padding=padding):
            return function(value, size, stride, padding)
        case Shrink(size=side, flat=flat):
            smaller = value.mean((2, 3), keepdim=True) if side == (1, 1) else F.adaptive_avg_pool2d(value, side)
            return layout.rows(smaller) if flat else smaller
        case Pointwise(function=pointwise):
            return pointwise(value)
        case Combine(function=combine):
            return combine(value, inputs[1])
        case Dropout() as dropout:
            return value if keys is None else value * _mask(dropout, step.before, value, keys, layout, image=image)
        case Flatten():
            return layout.rows(value) if image else value.flatten(2)
        case GroupNorm() as norm:
            return _normalise(_Rectified(norm=norm, value=0, shortcut=None, rectify=False), inputs, parameters, layout)
        case LayerNorm(axes=axes, weight=weight, bias=bias, epsilon=epsilon):
            normal = F.layer_norm(value, value.shape[-axes:], eps=epsilon)
            own = (layout.clients, *(1,) * (value.dim() - axes - 1), *value.shape[-axes:])
            normal = normal if weight is None else normal * parameters[weight].view(own)
            return normal if bias is None else normal + parameters[bias].view(own)
        case Embedding(weight=weight):
            table = parameters[weight]
            offsets = torch.arange(layout.clients, device=value.device).view(-1, *(1,) * (value.dim() - 1))
            return F.embedding(value.long() + offsets * table.shape[1], table.flatten(0, 1))


@dataclass(frozen=True, kw_only=True)
class _Rectified:
    """A group norm, a value that is added to its result, and the rectifier: one kernel where there are any."""

    norm: GroupNorm
    value: int  # what it normalises
    shortcut: int | None
    rectify: bool = True


def _rectified(program: Program) -> tuple[dict[int, _Rectified], frozenset[int]]:
    """Return the rectifiers, by their places, that can be part of a norm, and the places of what is part of them."""
    steps = program.steps
    users = [value for step in steps for value in step.inputs]
    found: dict[int, _Rectified] = {}
    inside: set[int] = set()

    def alone(value: int, kind: type[GroupNorm | Combine]) -> bool:
        return value > 0 and users.count(value) == 1 and isinstance(steps[value - 1].operation, kind)

    for place, step in enumerate(steps):
        if not is_relu(step) or len(step.shape) != 3:
            continue
        value, shortcut, within = step.inputs[0], None, set[int]()
        if alone(value, Combine) and steps[value - 1].operation == Combine(function=torch.add):
            one, other = steps[value - 1].inputs
            within, (value, shortcut) = {value - 1}, (one, other) if alone(one, GroupNorm) else (other, one)
        if not alone(value, GroupNorm):
            continue
        norm = steps[value - 1].operation
        assert isinstance(norm, GroupNorm)
        found[place] = _Rectified(norm=norm, value=steps[value - 1].inputs[0], shortcut=shortcut)
        inside |= within | {value - 1}
    return found, frozenset(inside)


def _normalise(
    own: _Rectified, values: Sequence[Tensor], parameters: Sequence[Tensor], layout: ByBatch | _ByClient
) -> Tensor:
    images, norm = values[own.value], own.norm
    shortcut = None if own.shortcut is None else values[own.shortcut]
    scale, shift = (None if slot is None else parameters[slot] for slot in (norm.weight, norm.bias))
    clients_first = layout.clients == 1 or isinstance(layout, _ByClient)
    if clients_first and group_norm.reads(images, norm.groups) and (shortcut is None or shortcut.dtype == images.dtype):
        return group_norm.normalised(
            images, norm.groups, scale, shift, norm.epsilon, shortcut=shortcut, rectify=own.rectify
        )
    result = layout.group_norm(images, norm, scale, shift)
    result = result if shortcut is None else result + shortcut
    return F.relu(result) if own.rectify else result


def _mask(
    dropout: Dropout,
    shape: tuple[int, ...],
    value: Tensor,
    keys: Tensor,
    layout: ByBatch | _ByClient,
    *,
    image: bool,
) -> Tensor:
    """Return the cohort's masks; element i of a client's batch has the same index as in a loop over clients."""
    batch = value.numel() // (layout.clients * math.prod(shape))
    masked = (shape[0], *(1,) * (len(shape) - 1)) if dropout.per_channel else shape
    index = torch.arange(batch * math.prod(masked), device=value.device).view(1, batch, *masked)
    mask = scaled_mask(keys.view(-1, *(1,) * (index.dim() - 1)), index, dropout.site, dropout.probability)
    return layout.images(mask) if image else mask
