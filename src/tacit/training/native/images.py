"""One client's images through native convolutions and group norms, in the order (batch, height, width, channels).

A convolution of 3 x 3 by Winograd's method takes a quarter of the products; its result differs from a plain sum's by
rounding, about a millionth. Other convolutions are products of windows that nobody copies. A group norm, what is added
to its result and the rectifier behind it are one kernel, and layers in a row are one step of autograd
(:mod:`tacit.training.native.stretch`). Everything else is PyTorch's. Models whose channels keep a core busy one client
at a time have nothing to gain from many clients at once, and this from every layer.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from tacit.training.grouped import ByBatch, run_step
from tacit.training.native import LANES
from tacit.training.native.descent import Descent
from tacit.training.native.stretch import MOST_PAD, Average, Convolve, Layer, Line, Normalise, Relu, Stretch, Way
from tacit.training.program import (
    Combine,
    Convolution,
    Flatten,
    GroupNorm,
    Linear,
    Pointwise,
    Program,
    ProgramStep,
    Shrink,
    is_relu,
    is_relu6,
)

_FILLED = 8  # of a tile's 16 outputs, on average: the rest is computed for nothing
_LARGE, _TILES = 16_384, 8  # pairs of channels whose kernels are worth transforming for so many tiles only
_HEAD = 16_384  # weights of a linear layer that is not worth a call of PyTorch's
_CHANNELS_LAST = torch.channels_last


def share(program: Program, parameters: Sequence[torch.Size], *, tiles: bool = False) -> float:
    """Return which share of a program's arithmetic in convolutions the native kernels would do, 0 to 1.

    Args:
        program: the model.
        parameters: the shapes of the trained tensors.
        tiles: whether only those count that take less arithmetic than PyTorch's.
    """
    rule = _suits if tiles else _gains
    own = total = 0.0
    for step in program.steps:
        if isinstance(step.operation, Convolution):
            flops = float(parameters[step.operation.weight].numel() * step.shape[1] * step.shape[2])
            total += flops
            own += flops if rule(step, parameters[step.operation.weight]) else 0.0
    return own / total if total else 0.0


def _gains(step: ProgramStep, weight: torch.Size) -> bool:
    """Return whether a convolution is faster than PyTorch's: tiles, each channel for itself, and plain products."""
    c = step.operation
    assert isinstance(c, Convolution)
    whole = all(channels % LANES == 0 for channels in (step.before[0], weight[0])) and c.dilation == (1, 1)
    single = list(weight[2:]) == [1, 1] and c.groups == 1
    return _suits(step, weight) or (whole and (single or c.groups == weight[0] == step.before[0]))


def _suits(step: ProgramStep, weight: torch.Size) -> bool:
    c = step.operation
    assert isinstance(c, Convolution)
    outputs, inputs, *kernel = weight
    _, high, wide = step.shape
    return (
        kernel == [3, 3]
        and c.stride == c.dilation == (1, 1)
        and c.groups == 1
        and c.padding[0] == c.padding[1] <= MOST_PAD
        and inputs % LANES == outputs % LANES == 0
        and filled(high, wide)
    )


def filled(high: int, wide: int) -> bool:
    """Return whether tiles have enough to do with outputs of this size."""
    return high * wide >= _FILLED * -(-high // 4) * -(-wide // 4)


def worth(weight: torch.Size, batch: int, high: int, wide: int) -> bool:
    """Return whether a batch has tiles enough for the kernels that have to be transformed for them."""
    return weight[:2].numel() <= _LARGE or batch * -(-high // 4) * -(-wide // 4) >= _TILES


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """A step of the program, or several that a native layer joins."""

    step: ProgramStep
    layer: Layer | None  # where it is native
    inputs: tuple[int, ...]
    output: int


class ImageNetwork:
    """Runs a program for one client on the native kernels, as far as they go."""

    name = "images"
    client_axis = 0

    def __init__(self, program: Program) -> None:
        self._program = program
        self._images = len(program.input_shape) == 3
        self._plans: dict[int, list[Instruction | Stretch]] = {}  # by the examples of a batch

    def arranged(self, parameter: Tensor) -> Tensor:
        """Return a stacked parameter in the order of memory in which the network computes with it."""
        return parameter

    def outputs(self, parameters: Sequence[Tensor], features: Tensor, keys: Tensor | None) -> Tensor:
        """Return the model's outputs, ``(1, batch, ...)``, of parameters and features with a client axis of one."""
        value = features[0].contiguous(memory_format=_CHANNELS_LAST) if self._images else features
        values, last = {0: value}, len(self._program.steps)
        for part in self._plan(features.shape[1], parameters):
            if isinstance(part, Stretch):
                values.update(part(values, parameters))
            else:
                inputs = [values[i] for i in part.inputs]
                values[part.output] = run_step(part.step, inputs, parameters, keys, ByBatch(1))
        return values[last]

    def _plan(self, batch: int, parameters: Sequence[Tensor]) -> list[Instruction | Stretch]:
        """Return what runs for a batch of so many examples: whether tiles pay depends on how many there are."""
        if batch not in self._plans:
            shapes = [parameter.shape[1:] for parameter in parameters]
            self._plans[batch] = joined(instructions(self._program, shapes, batch), len(self._program.steps))
        return self._plans[batch]


def descent(program: Program) -> Descent:
    """Return what takes many steps of a program in one call, where every layer of it is native."""
    return Descent(functools.partial(layers, program), len(program.steps))


def layers(program: Program, parameters: Sequence[torch.Size], batch: int) -> list[Layer] | None:
    """Return a program's layers for so many examples; None where some are not native, or it makes no rows."""
    found = [part.layer for part in instructions(program, parameters, batch)]
    known = [layer for layer in found if layer is not None]
    return known if len(known) == len(found) and isinstance(known[-1], Line) else None


def joined(parts: Sequence[Instruction], last: int) -> list[Instruction | Stretch]:
    """Join layers in a row; ``last`` is the value that the program returns."""
    plan: list[Instruction | Stretch] = []
    row: list[Layer] = []
    for place, part in enumerate(parts):
        if part.layer is None:
            plan.append(part)
            continue
        row.append(part.layer)
        rest = parts[place + 1 :]
        if not rest or rest[0].layer is None:
            plan.append(Stretch(row, used=frozenset((last, *(i for later in rest for i in later.inputs)))))
            row = []
    return plan


def instructions(program: Program, parameters: Sequence[torch.Size], batch: int) -> list[Instruction]:
    """Return what runs for a batch of so many examples.

    A group norm takes along the sum and the rectifier behind it, where nobody else needs what is in between, and a mean
    the change to rows. Shortcuts that change nothing are left out.
    """
    steps, gone = _without_identities(program)
    uses = Counter(i for place, step in enumerate(steps) if place not in gone for i in step.inputs)
    users = {i: place for place, step in enumerate(steps) if place not in gone for i in step.inputs}
    found: dict[int, Instruction] = {}  # by the place of the last step that is joined
    for place, step in enumerate(steps):
        if isinstance(step.operation, Convolution) and batch:
            layer = _convolve(step, place + 1, parameters[step.operation.weight], batch)
            if layer is not None:
                found[place] = Instruction(step=step, layer=layer, inputs=step.inputs, output=place + 1)
        elif isinstance(step.operation, GroupNorm) and step.shape[0] % LANES == 0 and batch:
            last, inputs, own = place, step.inputs, [place]
            relu: Relu = 0
            following = _next(uses, users, last)
            if following is not None and following not in gone:
                behind = steps[following]
                if isinstance(behind.operation, Combine) and behind.operation.function is torch.add:
                    inputs = (*inputs, *(i for i in behind.inputs if i != last + 1))
                    last = following
                    own.append(last)
                    following = _next(uses, users, last)
            if following is not None and (is_relu(steps[following]) or is_relu6(steps[following])):
                last, relu = following, 1 if is_relu(steps[following]) else 2
                own.append(last)
            gone.update(own)
            norm = _normalise(step.operation, inputs, last + 1, relu=relu)
            found[last] = Instruction(step=step, layer=norm, inputs=inputs, output=last + 1)
        elif isinstance(step.operation, Shrink | Linear) and batch:
            following = _next(uses, users, place) if isinstance(step.operation, Shrink) else None
            flat = following is not None and isinstance(steps[following].operation, Flatten)
            last = following if flat and following is not None else place
            head = _head(step, last + 1, parameters, flat=flat)
            if head is not None:
                gone.add(place)
                found[last] = Instruction(step=step, layer=head, inputs=step.inputs, output=last + 1)
    return [
        found.get(place) or Instruction(step=step, layer=None, inputs=step.inputs, output=place + 1)
        for place, step in enumerate(steps)
        if place in found or place not in gone
    ]


def _without_identities(program: Program) -> tuple[list[ProgramStep], set[int]]:
    """Return the steps, whose inputs skip those that change nothing, and the places of these; the last one stays."""
    names: dict[int, int] = {}
    steps, gone = [], set()
    for place, step in enumerate(program.steps):
        inputs = tuple(names.get(i, i) for i in step.inputs)
        own, last = step.operation, place + 1 == len(program.steps)
        same = isinstance(own, Pointwise) and isinstance(own.function, nn.Identity)
        if same and not last:
            names[place + 1] = inputs[0]
            gone.add(place)
        steps.append(replace(step, inputs=inputs))
    return steps, gone


def _convolve(step: ProgramStep, target: int, weight: torch.Size, batch: int) -> Convolve | None:
    own, source = step.operation, step.inputs[0]
    assert isinstance(own, Convolution)
    outputs, inputs = weight[:2]
    way: Way
    if _suits(step, weight) and worth(weight, batch, *step.shape[1:]):
        way = "tiles"
    elif own.groups == 1 and own.dilation == (1, 1) and outputs % LANES == 0 and (inputs % LANES == 0 or not source):
        way = "windows"  # nobody asks for the gradient of the features
    elif own.groups == outputs == step.before[0] and own.dilation == (1, 1) and outputs % LANES == 0:
        way = "apart"
    else:
        return None
    return Convolve(
        source=source,
        target=target,
        weight=own.weight,
        bias=own.bias,
        stride=own.stride,
        padding=own.padding,
        way=way,
    )


def _head(step: ProgramStep, target: int, parameters: Sequence[torch.Size], *, flat: bool) -> Layer | None:
    """Return a mean over images, to rows if they are flattened, or a small linear layer, where a step is one."""
    own, source = step.operation, step.inputs[0]
    if isinstance(own, Shrink) and own.size == (1, 1) and step.before[0] % LANES == 0 and source:
        return Average(source=source, target=target, flat=own.flat or flat)
    if isinstance(own, Linear) and len(step.before) == 1 and step.before[0] % LANES == 0 and source:
        few = math.prod(parameters[own.weight]) <= _HEAD
        return Line(source=source, target=target, weight=own.weight, bias=own.bias) if few else None
    return None


def _normalise(norm: GroupNorm, inputs: Sequence[int], target: int, *, relu: Relu) -> Normalise:
    return Normalise(
        source=inputs[0],
        added=inputs[1] if len(inputs) > 1 else None,
        target=target,
        groups=norm.groups,
        weight=norm.weight,
        bias=norm.bias,
        epsilon=norm.epsilon,
        relu=relu,
    )


def _next(uses: Counter[int], users: dict[int, int], place: int) -> int | None:
    """Return the place of the only step that uses the result of another, once; None where there is no such step."""
    return users[place + 1] if uses[place + 1] == 1 else None
