r"""K clients with the native kernels: every SIMD lane is a client, or an example of one.

Values are laid out with the lanes innermost (:mod:`tacit.training.lanes`). Which of two things a lane holds depends on
the job: with batches of 64 the examples of a batch fill the lanes; with batches of 10 they would leave six of sixteen
empty, and the lanes hold sixteen clients instead. :class:`LaneTrainer` chooses, and :func:`check` says what is missing.

Convolution, max-pooling and rectifier that follow each other run as one kernel. Per-channel dropout in between is moved
behind them: its factors are not negative, and so :math:`\max(m x, m y) = m \max(x, y)`.

Below are the differentiable layers, thin wrappers that check shapes and call the kernels. Activations are contiguous
float32 ``(N, H, W, C, L)``, or ``(N, F, L)`` for :func:`linear`, with L a multiple of 16. Weights follow PyTorch's own
order and come in two layouts:

- ``clients_in_lanes=True``: lane l is client l, N counts rows of its batch; weight ``(Co, Ci, kh, kw, L)``, bias
  ``(Co, L)``.
- ``clients_in_lanes=False``: n is the client, the lanes are examples of its batch; weight ``(N, Co, Ci, kh, kw)``, bias
  ``(N, Co)``. Clients may be any distance apart, so that slices of one flat vector per client need no copy.
"""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from tacit.training.batches import Holdings
from tacit.training.cohort import Chunk, Trained
from tacit.training.dropout import scaled_mask
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
    is_relu,
)
from tacit.training.settings import LocalTraining, Loss
from tacit.training.stacked import StackedTrainer

_kernels: Any
try:
    _kernels = importlib.import_module("tacit.training.lanes._kernels")
except ImportError:  # built without a C compiler
    _kernels = None

LANES = 16  # the widest register; L is a multiple of it
MAX_POOL = 15  # a window's argmax is saved in one byte, and 255 marks what relu switched off


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

    def arranged(self, parameter: Tensor) -> Tensor:
        """Return a stacked parameter in the order of memory in which the network computes with it."""
        return parameter

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
                    return linear(value, weight, bias, clients_in_lanes=self._clients_in_lanes, relu=relu)
                if any(layer.padding):
                    high, wide = layer.padding
                    value = F.pad(value, (0, 0, 0, 0, wide, wide, high, high))
                return conv2d(value, weight, bias, clients_in_lanes=self._clients_in_lanes, pool=pool, relu=relu)
            case Pool(kernel=kernel):
                return max_pool2d(value, kernel[0])
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

    def train(self, model: Tensor, holdings: Holdings, chunk: Chunk) -> Trained:
        """Train the clients of a chunk from ``model`` and return their updates."""
        count = len(chunk.clients)
        if not prefers_clients(self._batch_size, count):
            return self._by_examples.train(model, holdings, chunk)
        trained = self._by_clients.train(model, holdings, chunk.filled(LANES))
        return Trained(updates=trained.updates[:count], losses=trained.losses[:count])


def prefers_clients(batch_size: int, clients: int) -> bool:
    """Whether clients fill the lanes better than the examples of a batch."""
    return clients / -(-clients // LANES) > batch_size / -(-batch_size // LANES)


def check(program: Program) -> None:
    """Raise :class:`NoProgram` if the native kernels are missing or don't cover ``program``."""
    if not available():
        raise NoProgram("the native kernels were not built here (no C compiler when tacit was installed)")
    if not vectorised():
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
                kernel == stride == (kernel[0], kernel[0]) and kernel[0] <= MAX_POOL
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
            elif is_relu(following):
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


def available() -> bool:
    """Whether the native kernels were built for this installation."""
    return _kernels is not None


def vectorised() -> bool:
    """Whether this CPU has the wide registers (AVX2 or AVX-512) that make the kernels faster than PyTorch's."""
    return _kernels is not None and len(_kernels.levels()) > 1


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    clients_in_lanes: bool,
    pool: int = 1,
    relu: bool = False,
) -> Tensor:
    """Convolve, and optionally max-pool and rectify, without keeping the convolution's output.

    ``relu(max_pool2d(x * weight + bias, pool))`` with stride 1, no padding, and pooling windows that do
    not overlap. The unpooled output is the largest array of a small network; a slab of it lives in the
    cache only, and backward needs one byte per pooled value.

    Args:
        x: Input ``(N, H, W, Ci, L)``.
        weight: ``(Co, Ci, kh, kw, L)``, or ``(N, Co, Ci, kh, kw)`` if lanes are examples.
        bias: ``(Co, L)``, or ``(N, Co)`` if lanes are examples.
        clients_in_lanes: Which of the two layouts the weights have.
        pool: Side of the pooling window; 1 means no pooling.
        relu: Whether negative outputs become zero.

    Returns:
        ``(N, (H - kh + 1) // pool, (W - kw + 1) // pool, Co, L)``.
    """
    if x.dim() != 5 or weight.dim() != 5:
        raise ValueError(
            f"conv2d: expected x and weight of 5 dimensions, got {tuple(x.shape)} and {tuple(weight.shape)}"
        )
    n, h, w, ci, lanes = x.shape
    co, weight_ci, kh, kw = weight.shape[:4] if clients_in_lanes else weight.shape[1:]
    if weight_ci != ci or (weight.shape[4] != lanes if clients_in_lanes else weight.shape[0] != n):
        raise ValueError(
            f"conv2d: weight {tuple(weight.shape)} does not fit x {tuple(x.shape)}, clients_in_lanes={clients_in_lanes}"
        )
    if not 1 <= pool <= MAX_POOL:
        raise ValueError(f"conv2d: pool is {pool}, expected 1 to {MAX_POOL}")
    ph, pw = (h - kh + 1) // pool, (w - kw + 1) // pool
    if h < kh or w < kw or ph < 1 or pw < 1:
        raise ValueError(f"conv2d: input {h} x {w} is too small for kernel {kh} x {kw} and pool {pool}")
    sizes = (n, h, w, ci, co, kh, kw, lanes, int(clients_in_lanes), pool, int(relu))
    return _layer("conv2d", x, weight, bias, (n, ph, pw, co, lanes), sizes)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    clients_in_lanes: bool,
    relu: bool = False,
) -> Tensor:
    """Apply ``x @ weight.T + bias`` per client, and optionally rectify: a convolution of one pixel.

    Args:
        x: Input ``(N, F, L)``.
        weight: ``(G, F, L)``, or ``(N, G, F)`` if lanes are examples.
        bias: ``(G, L)``, or ``(N, G)`` if lanes are examples.
        clients_in_lanes: Which of the two layouts the weights have.
        relu: Whether negative outputs become zero.

    Returns:
        ``(N, G, L)``.
    """
    if x.dim() != 3 or weight.dim() != 3:
        raise ValueError(
            f"linear: expected x and weight of 3 dimensions, got {tuple(x.shape)} and {tuple(weight.shape)}"
        )
    n, ci, lanes = x.shape
    co, weight_ci = weight.shape[:2] if clients_in_lanes else weight.shape[1:]
    if weight_ci != ci or (weight.shape[2] != lanes if clients_in_lanes else weight.shape[0] != n):
        raise ValueError(
            f"linear: weight {tuple(weight.shape)} does not fit x {tuple(x.shape)}, clients_in_lanes={clients_in_lanes}"
        )
    sizes = (n, 1, 1, ci, co, 1, 1, lanes, int(clients_in_lanes), 1, int(relu))
    return _layer("linear", x, weight, bias, (n, co, lanes), sizes)


def max_pool2d(x: Tensor, kernel: int, relu: bool = False) -> Tensor:
    """Take the maximum of windows that do not overlap, and optionally rectify it.

    Rows and columns that fill no window are dropped, ties go to the first maximum, and NaN wins, as in
    PyTorch. :func:`conv2d` does the same in one pass over the convolution's output.

    Args:
        x: Input ``(N, H, W, C, L)``.
        kernel: Side and stride of the window.
        relu: Whether negative outputs become zero.

    Returns:
        ``(N, H // kernel, W // kernel, C, L)``.
    """
    if x.dim() != 5:
        raise ValueError(f"max_pool2d: expected x of 5 dimensions, got {tuple(x.shape)}")
    if not 1 <= kernel <= MAX_POOL or x.shape[1] < kernel or x.shape[2] < kernel:
        raise ValueError(
            f"max_pool2d: kernel is {kernel}, expected 1 to {MAX_POOL} and no more than the input "
            f"{x.shape[1]} x {x.shape[2]}"
        )
    _check_input("max_pool2d", x)
    out: Tensor = _MaxPool.apply(x, kernel, int(relu))  # type: ignore[no-untyped-call]  # torch gives it no types
    return out


def _check_input(name: str, x: Tensor) -> None:
    if _kernels is None:
        raise RuntimeError(f"{name}: the native kernels were not built; check available() first")
    if x.dtype != torch.float32 or not x.is_contiguous() or not x.is_cpu:
        raise ValueError(
            f"{name}: x must be contiguous float32 on the CPU, got {x.dtype} on {x.device} with strides {x.stride()}"
        )
    if x.shape[-1] % LANES or not x.numel():
        raise ValueError(
            f"{name}: x is {tuple(x.shape)}; no size may be zero and the last a multiple of {LANES} (pad it)"
        )


def _check_parameter(name: str, value: Tensor, clients_in_lanes: bool) -> None:
    if value.dtype != torch.float32 or not value.is_cpu or not value.numel():
        raise ValueError(
            f"{name}: parameters must be float32 on the CPU and not empty, got {tuple(value.shape)} "
            f"{value.dtype} on {value.device}"
        )
    if not (value.is_contiguous() or (not clients_in_lanes and value[0].is_contiguous())):
        raise ValueError(f"{name}: a client's parameters must be contiguous, got strides {value.stride()}")


def _layer(
    name: str, x: Tensor, weight: Tensor, bias: Tensor | None, shape: tuple[int, ...], sizes: tuple[int, ...]
) -> Tensor:
    clients_in_lanes = bool(sizes[8])
    _check_input(name, x)
    _check_parameter(name, weight, clients_in_lanes)
    if bias is not None:
        _check_parameter(name, bias, clients_in_lanes)
        expected = (sizes[4], sizes[7]) if clients_in_lanes else (sizes[0], sizes[4])
        if bias.shape != expected:
            raise ValueError(f"{name}: bias is {tuple(bias.shape)}, expected {expected}")
    sizes = (*sizes, weight.stride(0), 0 if bias is None else bias.stride(0))
    out: Tensor = _Layer.apply(x, weight, bias, shape, sizes)  # type: ignore[no-untyped-call]  # torch gives it no types
    return out


def _address(value: Tensor | None) -> int:
    return 0 if value is None else value.data_ptr()


class _Layer(torch.autograd.Function):
    """Convolution or linear layer with its pooling and relu; ``sizes`` are the kernel's own arguments."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        shape: tuple[int, ...],
        sizes: tuple[int, ...],
    ) -> Tensor:
        out = x.new_empty(shape)
        argmax = x.new_empty(shape, dtype=torch.uint8) if sizes[9] > 1 or sizes[10] else None
        _kernels.forward(x.data_ptr(), weight.data_ptr(), _address(bias), out.data_ptr(), _address(argmax), *sizes)
        ctx.save_for_backward(x, weight, argmax)
        ctx.sizes = sizes
        ctx.has_bias = bias is not None
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, argmax = ctx.saved_tensors
        sizes = ctx.sizes
        grad = grad.contiguous()
        grad_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        grad_weight = weight.new_empty(weight.shape)
        grad_bias = None
        if ctx.has_bias:
            grad_bias = x.new_empty((sizes[4], sizes[7]) if sizes[8] else (sizes[0], sizes[4]))
        _kernels.backward(
            x.data_ptr(),
            weight.data_ptr(),
            grad.data_ptr(),
            _address(argmax),
            _address(grad_x),
            grad_weight.data_ptr(),
            _address(grad_bias),
            *sizes,
        )
        return grad_x, grad_weight, grad_bias, None, None


class _MaxPool(torch.autograd.Function):
    """Max-pool with optional relu; one saved byte per output says where the gradient goes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: int, relu: int) -> Tensor:
        n, h, w, c, lanes = x.shape
        shape = (n, h // kernel, w // kernel, c, lanes)
        out = x.new_empty(shape)
        argmax = x.new_empty(shape, dtype=torch.uint8)
        _kernels.pool_forward(x.data_ptr(), out.data_ptr(), argmax.data_ptr(), n, h, w, c * lanes, kernel, relu)
        ctx.save_for_backward(argmax)
        ctx.shape = x.shape
        ctx.kernel = kernel
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (argmax,) = ctx.saved_tensors
        n, h, w, c, lanes = ctx.shape
        grad = grad.contiguous()
        grad_x = grad.new_empty(ctx.shape)
        _kernels.pool_backward(grad.data_ptr(), argmax.data_ptr(), grad_x.data_ptr(), n, h, w, c * lanes, ctx.kernel)
        return grad_x, None, None
