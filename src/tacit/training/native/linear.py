"""Linear layers whose weights fit a core's cache, by native kernels, in the place of torch's function of this name.

The library that torch has for products lays both matrices out anew before it multiplies, which takes a good part of the
time where they are small, and keeps to narrower registers on processors that are not its maker's. The kernels read
inputs and gradients where they are. They are operations of torch's library, as those of
:mod:`tacit.training.native.attention` are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tacit.training import native
from tacit.training.native import LANES, addresses, plain, readable

_MOST = 1 << 16  # weights: a quarter of a megabyte, turned weights or their gradient as much again
# Multiplications. Each call holds Python's lock for ten to twenty microseconds: two workers' rounds took 1.04 to 1.09
# times as long as torch's at up to 6.5e6 a call, and 0.85 to 0.9 times as long from 1e7 on.
_WORTH = 1 << 23

_OPERATIONS: Any = torch.library.Library("tacit", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch gives it no types
_OPERATIONS.define("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor")
_OPERATIONS.define("linear_back(Tensor grad, Tensor x, Tensor weight, bool[3] wanted) -> (Tensor, Tensor, Tensor)")


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:  # noqa: A002 - torch's name
    """Return what ``F.linear`` returns, or None where the kernels can't, or would not be faster."""
    x = input
    wide = native.available() and native.kernels.levels()[-1] == "avx512"
    if not wide or not plain(x, weight) or (bias is not None and not plain(bias)) or torch.is_autocast_enabled("cpu"):
        return None
    if not _fit(x, weight, bias) or weight.numel() > _MOST or x.numel() * len(weight) < _WORTH:
        return None
    found: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]  # torch gives it no types
    return found


def _fit(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Return whether the kernels can read tensors, which make a layer."""
    if weight.dim() != 2 or x.dim() < 2 or x.shape[-1] != weight.shape[1] or weight.stride(1) != 1:
        return False
    ends = bias is None or (bias.shape == weight.shape[:1] and bias.stride(0) == 1)
    return ends and weight.shape[0] % LANES == 0 and weight.shape[1] % LANES == 0


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        out: Tensor = torch.ops.tacit.linear(x, weight, bias)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad
        found = torch.ops.tacit.linear_back(grad, *ctx.saved_tensors, wanted)
        return tuple(own if asked else None for own, asked in zip(found, wanted, strict=True))


def _rows(value: Tensor) -> Tensor:
    """Return a tensor as rows whose numbers lie side by side; a call for what is nearly always so would cost more."""
    if value.dim() == 2 and value.stride(1) == 1:
        return value
    rows = value.reshape(-1, value.shape[-1])
    return rows if rows.stride(1) == 1 else rows.contiguous()


def _forwards(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if not readable(x, weight, bias) or not _fit(x, weight, bias) or not x.numel():
        raise ValueError(f"linear: inputs {tuple(x.shape)} don't fit weights {tuple(weight.shape)}, or the biases")
    outputs, inputs = weight.shape
    rows, out = _rows(x), torch.empty((*x.shape[:-1], outputs), dtype=torch.float32)
    native.kernels.linear(
        *addresses(rows, weight, bias, out),
        len(rows), inputs, outputs, rows.stride(0), weight.stride(0), 0, torch.get_num_threads(),
    )  # fmt: skip
    return out


def _backwards(grad: Tensor, x: Tensor, weight: Tensor, wanted: list[bool]) -> tuple[Tensor, Tensor, Tensor]:
    fits = readable(grad, x, weight) and _fit(x, weight, None) and x.numel()
    if not fits or grad.shape != (*x.shape[:-1], len(weight)):
        raise ValueError(f"linear_back: {tuple(grad.shape)} and {tuple(x.shape)} don't fit {tuple(weight.shape)}")
    outputs, inputs = weight.shape
    slopes, rows = _rows(grad), _rows(x)
    shapes = x.shape, weight.shape, weight.shape[:1]
    dx, dw, db = (
        torch.empty(shape, dtype=torch.float32) if own else None for shape, own in zip(shapes, wanted, strict=True)
    )
    native.kernels.linear_back(
        *addresses(slopes, rows, weight, dx, dw, db),
        len(rows), inputs, outputs, rows.stride(0), weight.stride(0), slopes.stride(0), torch.get_num_threads(),
    )  # fmt: skip
    return _or_nothing(dx), _or_nothing(dw), _or_nothing(db)


def _or_nothing(gradient: Tensor | None) -> Tensor:
    return torch.empty(0) if gradient is None else gradient


_OPERATIONS.impl("linear", _forwards, "CPU")
_OPERATIONS.impl("linear_back", _backwards, "CPU")
LINEAR, LINEAR_BACK = (getattr(torch.ops.tacit, name).default for name in ("linear", "linear_back"))
