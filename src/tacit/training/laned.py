r"""K clients with the native kernels: every SIMD lane is a client, or an example of one.

Values are laid out with the lanes innermost (:mod:`tacit.training.lanes`). Which of two things a lane holds depends on
the job: with batches of 64 the examples of a batch fill the lanes; with batches of 10 they would leave six of sixteen
empty, and the lanes hold sixteen clients instead.

Convolution, max-pooling and rectifier that follow each other run as one kernel. Per-channel dropout in between is moved
behind them: its factors are not negative, and so :math:`\max(m x, m y) = m \max(x, y)`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.training import lanes
from tacit.training.dropout import scaled_mask
from tacit.training.holdings import Holdings
from tacit.training.parameters import Parameters
from tacit.training.program import (
    Combine,
    Convolution,
    Dropout,
    Flatten,
    Linear,
    NoProgram,
    Operation,
    Pointwise,
    Pool,
    Program,
    Step,
)
from tacit.training.settings import LocalTraining, Loss
from tacit.training.stacked import StackedTrainer, Trained

LANES = 16
_LARGEST_POOL = 15


@dataclass(frozen=True, kw_only=True)
class _Fused:
    """A convolution or linear layer with the pooling and rectifier that follow it."""

    layer: Convolution | Linear
    pool: int
    relu: bool


@dataclass(frozen=True, kw_only=True)
class _Instruction:
    operation: Operation | _Fused
    inputs: tuple[int, ...]
    output: int
    before: tuple[int, ...]


class LaneNetwork:
    """Runs a program on the native kernels."""

    name = "lanes"

    def __init__(self, program: Program, *, clients_in_lanes: bool) -> None:
        self._clients_in_lanes = clients_in_lanes
        self.client_axis = -1 if clients_in_lanes else 0
        self._input_axes = len(program.input_shape)
        self._output = len(program.steps)
        self._instructions = _fuse(program)

    def outputs(self, parameters: Sequence[Tensor], features: Tensor, keys: Tensor | None) -> Tensor:
        """Return the model's outputs, ``(K, batch, ...)``, of features ``(K, batch, ...)``."""
        batch = features.shape[1]
        values: dict[int, Tensor] = {0: self._enter(features)}
        for instruction in self._instructions:
            inputs = [values[i] for i in instruction.inputs]
            values[instruction.output] = self._run(instruction, inputs, parameters, keys)
        result = values[self._output]
        if self._clients_in_lanes:
            return result.movedim(-1, 0)
        return result.movedim(-1, 1)[:, :batch]

    def _enter(self, features: Tensor) -> Tensor:
        """Return features with the lanes innermost, and images with their channels before them."""
        if self._clients_in_lanes:
            laid = features.movedim(0, -1)  # (batch, ..., K)
        else:
            missing = -features.shape[1] % LANES
            padded = F.pad(features, (*(0, 0) * self._input_axes, 0, missing)) if missing else features
            laid = padded.movedim(1, -1)  # (K, ..., batch)
        return (laid.movedim(1, 3) if self._input_axes == 3 else laid).contiguous()

    def _run(  # noqa: PLR0911 - a table of rules
        self, instruction: _Instruction, inputs: Sequence[Tensor], parameters: Sequence[Tensor], keys: Tensor | None
    ) -> Tensor:
        value = inputs[0]
        match instruction.operation:
            case _Fused(layer=layer, pool=pool, relu=relu):
                weight = parameters[layer.weight]
                bias = None if layer.bias is None else parameters[layer.bias]
                if isinstance(layer, Linear):
                    return lanes.linear(value, weight, bias, clients_in_lanes=self._clients_in_lanes, relu=relu)
                if any(layer.padding):
                    high, wide = layer.padding
                    value = F.pad(value, (0, 0, 0, 0, wide, wide, high, high))
                return lanes.conv2d(value, weight, bias, clients_in_lanes=self._clients_in_lanes, pool=pool, relu=relu)
            case Pool(kernel=kernel):
                return lanes.max_pool2d(value, kernel[0])
            case Pointwise(function=pointwise):
                return pointwise(value)
            case Combine(function=combine):
                return combine(value, inputs[1])
            case Dropout() as dropout:
                return value if keys is None else value * self._mask(dropout, instruction.before, value, keys)
            case Flatten():
                if len(instruction.before) == 3:
                    value = value.movedim(3, 1)  # channels before height and width, as PyTorch flattens
                return value.flatten(1, -2).contiguous()
            case other:
                raise AssertionError(f"{other} has no rule here")

    def _mask(self, dropout: Dropout, shape: tuple[int, ...], value: Tensor, keys: Tensor) -> Tensor:
        """Return the masks; element i of a client's batch has the same index as in a loop over clients."""
        image = len(shape) == 3
        masked = (shape[0], *(1,) * (len(shape) - 1)) if dropout.per_channel else shape
        batch = value.shape[0] if self._clients_in_lanes else value.shape[-1]
        index = torch.arange(batch * math.prod(masked)).view(batch, *masked)
        if image:
            index = index.movedim(1, 3)
        if self._clients_in_lanes:
            return scaled_mask(keys, index.unsqueeze(-1), dropout.site, dropout.probability)
        every = keys.view(-1, *(1,) * index.dim())
        return scaled_mask(every, index.movedim(0, -1).unsqueeze(0), dropout.site, dropout.probability)


class LaneTrainer:
    """Trains chunks of clients with whichever of the two layouts leaves fewer lanes empty."""

    def __init__(self, *, program: Program, layout: Parameters, settings: LocalTraining, loss: Loss) -> None:
        self._batch_size = settings.batch_size
        self._by_clients, self._by_examples = (
            StackedTrainer(
                network=LaneNetwork(program, clients_in_lanes=clients_in_lanes),
                layout=layout,
                settings=settings,
                loss=loss,
            )
            for clients_in_lanes in (True, False)
        )

    def train(
        self, model: Tensor, holdings: Holdings, clients: Sequence[int], keys: NDArray[np.int64], rate: float
    ) -> Trained:
        """Train ``clients`` from ``model`` and return their updates."""
        if not prefers_clients(self._batch_size, len(clients)):
            return self._by_examples.train(model, holdings, clients, keys, rate)
        empty = -len(clients) % LANES  # filled with copies of the last client, whose results are left out
        trained = self._by_clients.train(
            model, holdings, [*clients, *[clients[-1]] * empty], np.concatenate([keys, keys[-1:].repeat(empty)]), rate
        )
        return Trained(updates=trained.updates[: len(clients)], losses=trained.losses[: len(clients)])


def prefers_clients(batch_size: int, clients: int) -> bool:
    """Whether clients fill the lanes better than the examples of a batch."""
    return clients / -(-clients // LANES) > batch_size / -(-batch_size // LANES)


def check(program: Program) -> None:
    """Raise :class:`NoProgram` if the native kernels are missing or don't cover ``program``."""
    if not lanes.available():
        raise NoProgram("the native kernels were not built here (no C compiler when tacit was installed)")
    if not lanes.vectorised():
        raise NoProgram("the native kernels are no faster than PyTorch's on a CPU without AVX2")
    for step in program.steps:
        match step.operation:
            case (
                Convolution(stride=(1, 1), dilation=(1, 1), groups=1) | Pointwise() | Combine() | Dropout() | Flatten()
            ):
                continue
            case Linear() if len(step.before) == 1:
                continue
            case Pool(function=F.max_pool2d, kernel=kernel, stride=stride, padding=(0, 0)) if (
                kernel == stride == (kernel[0], kernel[0]) and kernel[0] <= _LARGEST_POOL
            ):
                continue
        raise NoProgram(f"the native kernels have no {type(step.operation).__name__} of this kind")


def _fuse(program: Program) -> list[_Instruction]:
    """Join each layer with the max-pool and rectifier behind it, and move per-channel dropout behind them."""
    uses = Counter(i for step in program.steps for i in step.inputs)
    instructions: list[_Instruction] = []
    steps = list(enumerate(program.steps, start=1))
    while steps:
        number, step = steps.pop(0)
        if not isinstance(step.operation, Convolution | Linear):
            instructions.append(
                _Instruction(operation=step.operation, inputs=step.inputs, output=number, before=step.before)
            )
            continue
        pool, relu, dropout, shape = 1, False, None, step.shape
        last = number
        while steps and uses[last] == 1 and steps[0][1].inputs == (last,) and not relu:
            following = steps[0][1]
            if isinstance(following.operation, Pool) and isinstance(step.operation, Convolution) and pool == 1:
                pool = following.operation.kernel[0]
            elif _is_relu(following):
                relu = True
            elif isinstance(following.operation, Dropout) and following.operation.per_channel and dropout is None:
                dropout = following.operation
            else:
                break
            shape = following.shape
            last = steps.pop(0)[0]
        layer = _Fused(layer=step.operation, pool=pool, relu=relu)
        output = last if dropout is None else -last
        instructions.append(_Instruction(operation=layer, inputs=step.inputs, output=output, before=step.before))
        if dropout is not None:
            instructions.append(_Instruction(operation=dropout, inputs=(output,), output=last, before=shape))
    return instructions


def _is_relu(step: Step) -> bool:
    function = step.operation.function if isinstance(step.operation, Pointwise) else None
    return isinstance(function, nn.ReLU) or function in (torch.relu, F.relu)
