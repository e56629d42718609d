"""Perceptrons of one client on a CPU: all steps of a client in a few calls, batches, losses and moves included.

A step of a small perceptron is a dozen operations of microseconds, of which each is called by Python, and a larger
one's time goes on weights that are read and written again and again: for the outputs, for the gradient, for the step
against it. Here a layer's outputs and what is behind them are one loop, and its weights move while their gradient is
still in registers (``dense.h``). Nothing of it is a matter of Python's lock, so that clients train side by side.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.training import native
from tacit.training.batches import Holdings, schedule
from tacit.training.cohort import Chunk, Trained
from tacit.training.parameters import Parameters
from tacit.training.program import Flatten, Linear, NoProgram, Pointwise, Program, ProgramStep, is_relu
from tacit.training.settings import LocalTraining, Loss, cross_entropy

_AS_IT_IS, _ABOVE_ZERO, _TANGENT, _SIGMOID = range(4)  # what is behind a layer, as in dense.h
_LINE = 16  # floats of a line of the cache
_CALL = 0.05  # seconds: between calls whoever wants to stop a run is heard
_LARGE = 1 << 31  # numbers that a layer may have at most
_PART = 1_000_000  # products of a thread, as in dense.h
# Seconds of a step, of each layer, product and weight: perceptrons of one to seven layers with 40 to 3e6 weights took
# 0.7 to 1.4 times what these say, in batches of 1 to 128.
_STEP, _LAYER, _PRODUCT, _WEIGHT = 2e-6, 2e-6, 4e-11, 2e-10
# Where batches and layers are so large PyTorch's products are faster, which are cut to fit a cache in both directions.
# Of a loop's speed at 128 and 512 examples 784 x 200 had 1.25 and 0.85, 3072 x 256 1.0 and 0.5, 100 x 100 1.3 and 1.0.
_MANY, _WIDE = 64, 3e7  # examples, and products of a layer


@dataclass(frozen=True, kw_only=True)
class Dense:
    """A linear layer, with the function behind it; weight and bias are numbers of trained slots."""

    weight: int
    bias: int | None
    inputs: int
    outputs: int
    function: int


def layers(program: Program, layout: Parameters) -> list[Dense]:
    """Return a program's layers.

    Raises:
        NoProgram: it is no perceptron, or a part of it is not native.
    """
    found: list[Dense] = []
    before = program.input_shape
    for number, step in enumerate(program.steps):
        own = step.operation
        if step.inputs != (number,):
            raise NoProgram("it is more than one layer behind the other")
        if isinstance(own, Linear) and len(step.before) == 1:
            sizes = {"inputs": step.before[0], "outputs": step.shape[0]}
            found.append(Dense(weight=own.weight, bias=own.bias, function=_AS_IT_IS, **sizes))
        elif isinstance(own, Pointwise) and found and len(before) == 1:
            _add_function(found, own, step)
        elif not (isinstance(own, Flatten) or _changes_nothing(own)):
            raise NoProgram(f"{type(own).__name__} is no part of a perceptron")
        before = step.shape
    slots = [slot for layer in found for slot in (layer.weight, layer.bias) if slot is not None]
    if len(set(slots)) < len(slots):
        raise NoProgram("layers share weights")
    if not found or found[-1].function != _AS_IT_IS or len(slots) != len(layout.slots):
        raise NoProgram("a perceptron ends in a linear layer")
    if max(layout.size, math.prod(program.input_shape)) >= _LARGE:
        raise NoProgram("it is too large")
    return found


def _add_function(found: list[Dense], own: Pointwise, step: ProgramStep) -> None:
    """Put a function behind the last layer."""
    if _changes_nothing(own):
        return
    last, function = found[-1], _function(own, step)
    if function is None or last.function != _AS_IT_IS:
        raise NoProgram(f"{own.function} has no native rule")
    found[-1] = replace(last, function=function)


def _function(own: Pointwise, step: ProgramStep) -> int | None:
    if is_relu(step):
        return _ABOVE_ZERO
    if _is(own, nn.Tanh, torch.tanh, F.tanh):
        return _TANGENT
    return _SIGMOID if _is(own, nn.Sigmoid, torch.sigmoid, F.sigmoid) else None


def _is(own: Pointwise, kind: type[nn.Module], *functions: object) -> bool:
    return isinstance(own.function, kind) or own.function in functions


def _changes_nothing(own: object) -> bool:
    return isinstance(own, Pointwise) and isinstance(own.function, nn.Identity)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a step of so many examples takes."""

    layers: Sequence[Dense]
    count: int

    @property
    def pays(self) -> bool:
        """Whether PyTorch's products are not faster."""
        return self.count < _MANY or max(self._products) <= _WIDE

    @property
    def seconds(self) -> float:
        """How long a step takes on one core."""
        return _STEP + sum(self._layers)

    def shared(self, cores: int) -> float:
        """Return how many times as fast a step is on all cores, of which a large layer alone has any use for others."""
        threads = (max(1, min(cores, int(own / _PART))) for own in self._products)
        parts = (2 * own / (1 + count) for own, count in zip(self._layers, threads, strict=True))
        return self.seconds / (_STEP + sum(parts))

    @property
    def _products(self) -> list[float]:
        return [float(self.count * own.inputs * own.outputs) for own in self.layers]

    @property
    def _layers(self) -> list[float]:
        """Seconds of each layer, whose products are formed three times."""
        return [_LAYER + _PRODUCT * own + _WEIGHT * own / self.count for own in self._products]


class PerceptronTrainer:
    """Trains the clients of a chunk one after the other, each by the native kernels."""

    def __init__(self, *, program: Program, layout: Parameters, settings: LocalTraining) -> None:
        self._settings = settings
        self._layers = layers(program, layout)
        self._layout = layout
        self._model = torch.empty(layout.size, dtype=torch.float32, device="cpu")
        self._kept = torch.zeros(layout.size if settings.momentum else 0, dtype=torch.float32, device="cpu")
        self._plans: dict[int, _Plan] = {}  # by the examples of a batch
        self._room = torch.empty(0, dtype=torch.float32, device="cpu")

    def train(self, model: Tensor, holdings: Holdings, chunk: Chunk) -> Trained:
        """Train the clients of a chunk from ``model`` and return their updates."""
        settings = self._settings
        plan = schedule(holdings, chunk.clients, chunk.keys, epochs=settings.epochs, batch_size=settings.batch_size)
        self._check(holdings, plan.rows.flatten())
        updates = torch.from_numpy(np.empty((len(chunk.clients), len(model)), np.float32))
        losses = np.empty(len(chunk.clients))
        rows = plan.rows.transpose(0, 1).contiguous()
        for place, update in enumerate(updates):
            self._model.copy_(model)
            self._kept.zero_()
            total = torch.zeros(1, dtype=torch.float64, device="cpu")
            for first, end, count in _alike(plan.counts[:, place]):
                own = rows[place, first:end, :count].contiguous()
                self._descend(holdings, own, chunk.rate, total)
            torch.sub(self._model, model, out=update)
            losses[place] = float(total) / int(plan.counts[:, place].sum())
        return Trained(updates=updates.numpy(), losses=losses)

    def _descend(self, holdings: Holdings, rows: Tensor, rate: float, total: Tensor) -> None:
        """Take a step with each line of rows."""
        count = rows.shape[1]
        plan = self._plans.get(count)
        if plan is None:
            plan = self._plans[count] = _Plan(self._layers, self._layout, count)
        if len(self._room) < plan.floats:
            self._room = torch.empty(plan.floats, dtype=torch.float32, device="cpu")
        data = holdings.features.data_ptr(), holdings.labels.data_ptr()
        kept = self._kept.data_ptr() if self._settings.momentum else 0
        held = self._model.data_ptr(), kept, self._room.data_ptr(), total.data_ptr()
        rates = float(rate), float(self._settings.momentum), float(self._settings.weight_decay)
        threads, layers = torch.get_num_threads(), (plan.address, len(self._layers))
        for some in torch.split(rows, plan.steps):
            native.kernels.descend(
                *layers, *data, some.data_ptr(), *held, *plan.grads, count, len(some), threads, *rates
            )

    def _check(self, holdings: Holdings, rows: Tensor) -> None:
        """Refuse rows beyond the examples and labels beyond the classes, as torch does."""
        examples, classes = min(len(holdings.features), len(holdings.labels)), self._layers[-1].outputs
        least, most = (int(own) for own in torch.aminmax(rows))
        if least < 0 or most >= examples:
            raise IndexError(f"Row {least if least < 0 else most} is out of bounds.")
        least, most = (int(own) for own in torch.aminmax(holdings.labels[rows]))
        if least < 0 or most >= classes:
            raise IndexError(f"Target {least if least < 0 else most} is out of bounds.")


class _Plan:
    """Where values and gradients of a batch of so many examples are."""

    def __init__(self, layers: Sequence[Dense], layout: Parameters, count: int) -> None:
        starts = [slot.start for slot in layout.slots]
        numbers, floats = array("q"), 0
        for own in layers:
            bias = -1 if own.bias is None else starts[own.bias]
            numbers.extend([own.inputs, own.outputs, own.function, starts[own.weight], bias, floats])
            floats += _padded(count * own.outputs)
        widest = _padded(count * max(own.outputs for own in layers))
        self.grads = (floats, floats + widest)
        self.floats = floats + 2 * widest
        self.steps = max(1, int(_CALL / Cost(layers=layers, count=count).seconds))
        self._numbers = numbers
        self.address = numbers.buffer_info()[0]


def _padded(floats: int) -> int:
    return -(-floats // _LINE) * _LINE + _LINE  # arrays that are used side by side don't share sets of the cache


def _alike(counts: np.ndarray) -> list[tuple[int, int, int]]:
    """Return the first step, the end and how many examples, of steps in a row with as many; none without any."""
    changes = [0, *(np.flatnonzero(np.diff(counts)) + 1).tolist(), len(counts)]
    runs = ((first, end, int(counts[first])) for first, end in pairwise(changes))
    return [run for run in runs if run[2]]


def fitting(program: Program, layout: Parameters, features: Tensor, labels: Tensor) -> list[Dense]:
    """Return a program's layers if it is a perceptron and the kernels can read such features and labels, or none."""
    try:
        found = layers(program, layout)
    except NoProgram:
        return []
    kinds = features.dtype, labels.dtype, labels.dim()
    if kinds != (torch.float32, torch.int64, 1) or not (features.is_contiguous() and labels.is_contiguous()):
        return []
    least, most = (int(own) for own in torch.aminmax(labels))
    return found if least >= 0 and most < found[-1].outputs else []


def suits(settings: LocalTraining, loss: Loss) -> bool:
    """Return whether steps are such as the kernels take: SGD's, against cross-entropy."""
    return settings.is_sgd and not settings.mu and settings.grad_clip is None and loss is cross_entropy
