"""One client's images through native convolutions and group norms, in the order (batch, height, width, channels).

A convolution of 3 x 3 by Winograd's method takes a quarter of the products; its result differs from a plain sum's by
rounding, about a millionth. A group norm, what is added to its result and the rectifier behind it are one kernel.
Everything else is PyTorch's. Models whose channels keep a core busy one client at a time have nothing to gain from many
clients at once, and this from every layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tacit.training import native
from tacit.training.grouped import ByBatch, run_step
from tacit.training.native import LANES, addresses
from tacit.training.program import Combine, Convolution, GroupNorm, Program, ProgramStep, is_relu

_MOST_PAD = 2
_FILLED = 8  # of a tile's 16 outputs, on average: the rest is computed for nothing
_LARGE, _TILES = 16_384, 8  # pairs of channels whose kernels are worth transforming for so many tiles only
_CHANNELS_LAST = torch.channels_last


def share(program: Program, parameters: Sequence[torch.Size]) -> float:
    """Return which share of a program's arithmetic in convolutions the native kernels would do, 0 to 1.

    Args:
        program: the model.
        parameters: the shapes of the trained tensors.
    """
    own = total = 0.0
    for step in program.steps:
        if isinstance(step.operation, Convolution):
            flops = float(parameters[step.operation.weight].numel() * step.shape[1] * step.shape[2])
            total += flops
            own += flops if _suits(step, parameters[step.operation.weight]) else 0.0
    return own / total if total else 0.0


def _suits(step: ProgramStep, weight: torch.Size) -> bool:
    c = step.operation
    assert isinstance(c, Convolution)
    outputs, inputs, *kernel = weight
    _, high, wide = step.shape
    return (
        kernel == [3, 3]
        and c.stride == c.dilation == (1, 1)
        and c.groups == 1
        and c.padding[0] == c.padding[1] <= _MOST_PAD
        and inputs % LANES == outputs % LANES == 0
        and high * wide >= _FILLED * -(-high // 4) * -(-wide // 4)
    )


@dataclass(frozen=True, kw_only=True)
class _Fused:
    """A group norm with what is added to its result, if anything, and the rectifier behind, if any."""

    norm: GroupNorm
    relu: bool


@dataclass(frozen=True, kw_only=True)
class _Instruction:
    step: ProgramStep
    fused: _Fused | None
    inputs: tuple[int, ...]
    output: int


class ImageNetwork:
    """Runs a program for one client on the native kernels, as far as they go."""

    name = "images"
    client_axis = 0

    def __init__(self, program: Program) -> None:
        self._instructions = _fuse(program)
        self._images = len(program.input_shape) == 3

    def arranged(self, parameter: Tensor) -> Tensor:
        """Return a stacked parameter in the order of memory in which the network computes with it."""
        return parameter

    def outputs(self, parameters: Sequence[Tensor], features: Tensor, keys: Tensor | None) -> Tensor:
        """Return the model's outputs, ``(1, batch, ...)``, of parameters and features with a client axis of one."""
        value = features[0].contiguous(memory_format=_CHANNELS_LAST) if self._images else features
        values = {0: value}
        for instruction in self._instructions:
            inputs = [values[i] for i in instruction.inputs]
            values[instruction.output] = _run(instruction, inputs, parameters, keys)
        return value if not self._instructions else values[self._instructions[-1].output]


def _run(
    instruction: _Instruction, inputs: Sequence[Tensor], parameters: Sequence[Tensor], keys: Tensor | None
) -> Tensor:
    step, operation = instruction.step, instruction.step.operation
    if instruction.fused is not None:
        norm = instruction.fused.norm
        scale, shift = (None if slot is None else parameters[slot].flatten() for slot in (norm.weight, norm.bias))
        added = inputs[1] if len(inputs) > 1 else None
        return group_norm(inputs[0], norm.groups, scale, shift, norm.epsilon, added=added, relu=instruction.fused.relu)
    if isinstance(operation, Convolution):
        weight = parameters[operation.weight].flatten(0, 1)
        few = weight.shape[0] * weight.shape[1] > _LARGE and _tiles(len(inputs[0]), step) < _TILES
        if _suits(step, weight.shape) and not few:
            bias = None if operation.bias is None else parameters[operation.bias].flatten()
            return conv3x3(inputs[0], weight, bias, padding=operation.padding[0])
    return run_step(step, inputs, parameters, keys, ByBatch(1))


def _tiles(batch: int, step: ProgramStep) -> int:
    return batch * -(-step.shape[1] // 4) * -(-step.shape[2] // 4)


def _fuse(program: Program) -> list[_Instruction]:
    """Join each group norm with the sum and the rectifier behind it, where nobody else needs what is in between."""
    uses = Counter(i for step in program.steps for i in step.inputs)
    users = {i: place for place, step in enumerate(program.steps) for i in step.inputs}
    fused: dict[int, _Instruction] = {}  # by the place of the last step that is joined
    gone: set[int] = set()
    for place, step in enumerate(program.steps):
        if not isinstance(step.operation, GroupNorm) or step.shape[0] % LANES:
            continue
        last, inputs, relu, joined = place, step.inputs, False, [place]
        following = _next(uses, users, last)
        if following is not None and following not in gone:
            behind = program.steps[following]
            if isinstance(behind.operation, Combine) and behind.operation.function is torch.add:
                inputs = (*inputs, *(i for i in behind.inputs if i != last + 1))
                last = following
                joined.append(last)
                following = _next(uses, users, last)
        if following is not None and is_relu(program.steps[following]):
            last, relu = following, True
            joined.append(last)
        gone.update(joined)
        own = _Fused(norm=step.operation, relu=relu)
        fused[last] = _Instruction(step=step, fused=own, inputs=inputs, output=last + 1)
    return [
        fused.get(place) or _Instruction(step=step, fused=None, inputs=step.inputs, output=place + 1)
        for place, step in enumerate(program.steps)
        if place in fused or place not in gone
    ]


def _next(uses: Counter[int], users: dict[int, int], place: int) -> int | None:
    """Return the place of the only step that uses the result of another, once; None where there is no such step."""
    return users[place + 1] if uses[place + 1] == 1 else None


def conv3x3(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, padding: int) -> Tensor:
    """Return ``F.conv2d(x, weight, bias, padding=padding)`` for a kernel of 3 x 3, channels last.

    Args:
        x: ``(N, C, H, W)``, float32; C is a multiple of 16.
        weight: ``(O, C, 3, 3)``; O is a multiple of 16.
        bias: ``(O,)``.
        padding: 0 to 2 zeros on each side.
    """
    outputs, inputs = weight.shape[:2]
    if x.dim() != 4 or x.shape[1] != inputs or weight.shape[2:] != (3, 3) or inputs % LANES or outputs % LANES:
        raise ValueError(
            f"conv3x3: x {tuple(x.shape)} and weight {tuple(weight.shape)} don't fit: expected (N, C, H, W) and "
            f"(O, C, 3, 3) with C and O multiples of {LANES}"
        )
    if not 0 <= padding <= _MOST_PAD or min(x.shape[2:]) + 2 * padding < 3 or not len(x):
        raise ValueError(f"conv3x3: padding {padding} (0 to {_MOST_PAD}) leaves no output of x {tuple(x.shape)}")
    if bias is not None and bias.shape != (outputs,):
        raise ValueError(f"conv3x3: bias is {tuple(bias.shape)}, expected {(outputs,)}")
    _check("conv3x3", x, weight, bias)
    out: Tensor = _Convolution.apply(x, weight, bias, padding)  # type: ignore[no-untyped-call]  # torch gives it no types
    return out


def group_norm(
    x: Tensor,
    groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    epsilon: float,
    *,
    added: Tensor | None = None,
    relu: bool = False,
) -> Tensor:
    """Return ``F.group_norm(x, groups, weight, bias, epsilon)``, plus ``added``, rectified if asked, channels last."""
    if x.dim() != 4 or x.shape[1] % LANES or x.shape[1] % groups or not x.numel():
        raise ValueError(
            f"group_norm: x is {tuple(x.shape)}, expected (N, C, H, W) with C a multiple of {LANES} and of {groups}"
        )
    if any(own is not None and own.shape != x.shape[1:2] for own in (weight, bias)):
        raise ValueError(f"group_norm: weight and bias must be {(x.shape[1],)}")
    if added is not None and added.shape != x.shape:
        raise ValueError(f"group_norm: {tuple(added.shape)} can't be added to {tuple(x.shape)}")
    _check("group_norm", x, weight, bias, added)
    out: Tensor = _GroupNorm.apply(x, added, weight, bias, groups, epsilon, relu)  # type: ignore[no-untyped-call]  # as above
    return out


def _check(name: str, *values: Tensor | None) -> None:
    if not native.available():
        raise RuntimeError(f"{name}: the native kernels are not there; check available() first")
    for value in values:
        if value is not None and (value.dtype != torch.float32 or not value.is_cpu):
            raise ValueError(f"{name}: expected float32 on the CPU, got {value.dtype} on {value.device}")


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, padding: int) -> Tensor:
        x, weight = x.contiguous(memory_format=_CHANNELS_LAST), weight.contiguous()
        bias = None if bias is None else bias.contiguous()
        n, inputs, high, wide = x.shape
        outputs, shape = len(weight), (high + 2 * padding - 2, wide + 2 * padding - 2)
        out = torch.empty((n, outputs, *shape), memory_format=_CHANNELS_LAST, dtype=x.dtype, device=x.device)
        sizes = (n, high, wide, inputs, outputs, padding)
        native.kernels.convolve(*addresses(x, weight, bias, out), *sizes, 9, 9 * inputs, 0)
        ctx.save_for_backward(x, weight)
        ctx.sizes = sizes
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        n, high, wide, inputs, outputs, padding = ctx.sizes
        grad = grad.contiguous(memory_format=_CHANNELS_LAST)
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = torch.empty_like(x)
            sizes = (n, *grad.shape[2:], outputs, inputs, _MOST_PAD - padding)
            native.kernels.convolve(*addresses(grad, weight, None, grad_x), *sizes, 9 * inputs, 9, 1)
        if ctx.needs_input_grad[1]:
            grad_weight = torch.empty_like(weight)
            native.kernels.kernel(*addresses(x, grad, grad_weight), n, high, wide, inputs, outputs, padding)
        if ctx.needs_input_grad[2]:
            grad_bias = grad.sum((0, 2, 3))
        return grad_x, grad_weight, grad_bias, None


class _GroupNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        added: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
        groups: int,
        epsilon: float,
        relu: bool,
    ) -> Tensor:
        x = x.contiguous(memory_format=_CHANNELS_LAST)
        added = None if added is None else added.contiguous(memory_format=_CHANNELS_LAST)
        weight, bias = (None if own is None else own.contiguous() for own in (weight, bias))
        out, moments = torch.empty_like(x), x.new_empty(len(x), groups, 2)
        n, channels, high, wide = x.shape
        ctx.sizes = (n, high * wide, channels, groups, int(relu))
        native.kernels.norm(*addresses(x, added, weight, bias, out, moments), *ctx.sizes, epsilon)
        ctx.save_for_backward(x, out if relu else None, weight, moments)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, out, weight, moments = ctx.saved_tensors
        grad = grad.contiguous(memory_format=_CHANNELS_LAST)
        needs = ctx.needs_input_grad
        grad_x, grad_added = torch.empty_like(x), torch.empty_like(x) if needs[1] and out is not None else None
        sums = x.new_empty(2, x.shape[1])
        given = (grad, x, out, weight, moments, grad_x, grad_added, sums[0], sums[1])
        native.kernels.norm_back(*addresses(*given), *ctx.sizes)
        if needs[1] and out is None:  # what is added to has the gradient of the sum
            grad_added = grad
        return grad_x, grad_added, sums[0] if needs[2] else None, sums[1] if needs[3] else None, None, None, None
