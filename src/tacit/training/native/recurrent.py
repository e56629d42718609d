"""LSTM and GRU layers of one direction by native kernels, for one client or many.

PyTorch's LSTM on a CPU reaches half of a core's arithmetic, and its GRU calls some thousand operations per step. Here a
layer is one call forwards and one backwards. They are operations of torch's library, so that whoever follows a step
sees them, but for those whose weights' gradients somebody else makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils._python_dispatch import _get_current_dispatch_mode

from tacit.training import native
from tacit.training.native import LANES, addresses, readable

PART = 16  # examples, at least, of a part of a batch that a thread computes; as in recurrence.h

_OPERATIONS: Any = torch.library.Library("tacit", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch gives it no types
_OPERATIONS.define(
    "recur(Tensor x, Tensor weight_ih, Tensor bias_ih, Tensor weight_hh, Tensor bias_hh, Tensor hidden, Tensor cell, "
    "bool gru) -> (Tensor, Tensor, Tensor)"
)
_OPERATIONS.define(
    "recur_back(Tensor? grad, Tensor? last, Tensor x, Tensor weight_ih, Tensor weight_hh, Tensor hidden, Tensor kept, "
    "bool gru, bool wanted) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def suits(kind: str, size: int, *values: Tensor) -> bool:
    """Return whether the kernels can compute a layer with states of ``size``, given its inputs and parameters."""
    if kind not in ("lstm", "gru") or size % LANES or not native.available():
        return False
    return all(value.dtype == torch.float32 and value.is_cpu and value.numel() > 0 for value in values)


def unseen() -> bool:
    """Return whether nobody follows operations, who would not see those of :func:`recur_heard`."""
    return _get_current_dispatch_mode() is None


def recur(
    kind: Literal["lstm", "gru"],
    x: Tensor,
    weight_ih: Tensor,
    bias_ih: Tensor,
    weight_hh: Tensor,
    bias_hh: Tensor,
    hidden: Tensor,
    cell: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return all states, ``(K, B, T, H)``, and the last cell, ``(K, B, H)``, of K clients' layers.

    Args:
        kind: the cell.
        x: ``(K, B, T, I)``.
        weight_ih: ``(K, G H, I)`` with G = 4 gates of an LSTM or 3 of a GRU, as torch orders them.
        bias_ih: ``(K, G H)``.
        weight_hh: ``(K, G H, H)``; H is a multiple of 16.
        bias_hh: ``(K, G H)``.
        hidden: the first states, ``(K, B, H)``.
        cell: the first cells, ``(K, B, H)``; a GRU has none and returns them.
    """
    given = (weight_ih, bias_ih, weight_hh, bias_hh, hidden, cell)
    found: tuple[Tensor, ...] = _Layer.apply(kind, x, *given)  # type: ignore[no-untyped-call]  # torch gives it no types
    return found[0], found[1]


def recur_heard(
    kind: Literal["lstm", "gru"], x: Tensor, taps: tuple[Tensor, Tensor], given: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return what :func:`recur` returns of one client, by all of torch's threads; the gates' gradients can be heard.

    Args:
        kind: the cell.
        x: ``(B, T, I)``.
        taps: two tensors ``(B, T, G H)`` of anything; their gradients are those of what input and state add to the
            gates, and so of the outputs of the two weights at every position.
        given: weights, biases, first states and cells, as :func:`recur` takes them but of one client. Weights and
            biases have no gradients of their own.
    """
    _check(kind, x[None], [own[None] for own in given])
    expected = (*x.shape[:2], len(given[0]))
    if any(tap.shape != expected for tap in taps):
        shapes = [tuple(tap.shape) for tap in taps]
        raise ValueError(f"recur_heard: expected two taps of shape {expected}, got {shapes}")
    found: tuple[Tensor, Tensor] = _Heard.apply(kind, x, *taps, *given)  # type: ignore[no-untyped-call]  # as above
    return found


def _check(kind: str, x: Tensor, given: Sequence[Tensor]) -> None:
    """Refuse what the kernels would read or write past the end of."""
    clients, batch, _, inputs = x.shape
    size = given[2].shape[2]
    gates = (3 if kind == "gru" else 4) * size
    weights = ((gates, inputs), (gates,), (gates, size), (gates,))
    expected = [(clients, *shape) for shape in (*weights, (batch, size), (batch, size))]
    if size % LANES or any(own.shape != shape for own, shape in zip(given, expected, strict=True)):
        raise ValueError(
            f"recur: {[tuple(own.shape) for own in given]} don't fit x {tuple(x.shape)}: expected {expected}, "
            f"with states of a multiple of {LANES}"
        )
    if not suits(kind, size, x, *given):
        raise ValueError("recur: expected float32 on a CPU that has the native kernels, and an LSTM or a GRU")


def _forwards(
    x: Tensor, weight_ih: Tensor, bias_ih: Tensor, weight_hh: Tensor, bias_hh: Tensor, hidden: Tensor, cell: Tensor,
    gru: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return outputs and last cells, and what the way back needs, in rows that the kernels know."""
    given = (weight_ih, bias_ih, weight_hh, bias_hh, hidden, cell)
    _check("gru" if gru else "lstm", x, given)
    x, *own = (part.contiguous() for part in (x, *given))
    clients, batch, steps, inputs = x.shape
    size = weight_hh.shape[2]
    out = x.new_empty(clients, batch, steps, size)
    kept = x.new_empty(clients, steps, batch, (5 if gru else 6) * size)
    last = torch.empty_like(own[5])
    where = addresses(x, *own, out, kept, last)
    native.kernels.recur(*where, clients, batch, steps, inputs, size, int(gru), torch.get_num_threads())
    return out, last, kept


def _backwards(
    grad: Tensor | None, last: Tensor | None, x: Tensor, weight_ih: Tensor, weight_hh: Tensor, hidden: Tensor,
    kept: Tensor, gru: bool, wanted: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the gradients of everything that :func:`_forwards` takes; that of the inputs is empty if not wanted."""
    clients, batch, steps, inputs = x.shape
    size, gates = weight_hh.shape[2], weight_ih.shape[1]
    states, firsts = (clients, batch, steps, size), (clients, batch, size)
    shapes = (*((own, size_of) for own, size_of in ((grad, states), (last, firsts)) if own is not None),)
    shapes += ((kept, (clients, steps, batch, (5 if gru else 6) * size)), (hidden, firsts))
    shapes += ((weight_ih, (clients, gates, inputs)), (weight_hh, (clients, (3 if gru else 4) * size, size)))
    if any(own.shape != expected for own, expected in shapes) or weight_ih.shape[1] != weight_hh.shape[1]:
        raise ValueError(f"recur_back: {[tuple(own.shape) for own, _ in shapes]} don't fit {tuple(x.shape)}")
    if size % LANES or not readable(*(own for own, _ in shapes), x) or not x.numel():
        raise ValueError("recur_back: expected float32 on a CPU that has the native kernels")
    x, weight_ih, weight_hh, hidden, kept = (own.contiguous() for own in (x, weight_ih, weight_hh, hidden, kept))
    grad, last = (None if own is None else own.contiguous() for own in (grad, last))
    grad_x = torch.empty_like(x) if wanted else None
    weights = torch.empty_like(weight_ih), torch.empty_like(weight_hh)
    biases = x.new_empty(clients, gates), x.new_empty(clients, gates)
    of_hidden, cell = torch.empty_like(hidden), torch.empty_like(hidden)
    where = addresses(grad, None if gru else last, x, weight_ih, weight_hh, hidden, kept, grad_x)
    where += addresses(weights[0], biases[0], weights[1], biases[1], of_hidden, cell)
    native.kernels.recur_back(*where, clients, batch, steps, inputs, size, int(gru), torch.get_num_threads())
    if gru:
        cell = torch.zeros_like(cell) if last is None else last.clone()
    found = x.new_empty(0) if grad_x is None else grad_x
    return found, weights[0], biases[0], weights[1], biases[1], of_hidden, cell


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(kind: str, x: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = torch.ops.tacit.recur(x, *given, kind == "gru")
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.kind = inputs[0]
        x, weight_ih, _, weight_hh, _, hidden = inputs[1:7]
        ctx.save_for_backward(x, weight_ih, weight_hh, hidden, output[2])
        ctx.mark_non_differentiable(output[2])
        ctx.set_materialize_grads(False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outputs: Tensor | None) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[1]
        found = torch.ops.tacit.recur_back(*outputs[:2], *ctx.saved_tensors, ctx.kind == "gru", wanted)
        return None, found[0] if wanted else None, *found[1:]

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], kind: str, *values: Tensor) -> tuple[Any, Any]:
        """Return the same with the mapped axis among the clients'."""
        found = _Layer.apply(kind, *among_clients(info, in_dims[1:], values))  # type: ignore[no-untyped-call]  # torch gives it no types
        return tuple(value.unflatten(0, (info.batch_size, -1)) for value in found), (0, 0, 0)


class _Heard(torch.autograd.Function):
    """One client's layer."""

    @staticmethod
    def forward(ctx: Any, kind: str, x: Tensor, *given: Tensor) -> tuple[Tensor, Tensor]:
        weights = given[2:]
        out, last, kept = torch.ops.tacit.recur(x[None], *(own[None] for own in weights), kind == "gru")
        ctx.kind, ctx.shape = kind, x.shape
        ctx.save_for_backward(weights[0], weights[2], kept)
        ctx.set_materialize_grads(False)
        return out.squeeze_(0), last.squeeze_(0)  # no views: models may write over what a layer returns

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outputs: Tensor | None) -> tuple[Tensor | None, ...]:
        weight_ih, weight_hh, kept = (own.contiguous() for own in ctx.saved_tensors)
        batch, steps, inputs = ctx.shape
        size, gru = weight_hh.shape[1], ctx.kind == "gru"
        grad, last = (None if own is None else own.contiguous() for own in outputs)
        grad_x = weight_ih.new_empty(ctx.shape) if ctx.needs_input_grad[1] else None
        gates = weight_ih.new_empty(batch, steps, 4 * size)
        hidden, cell = weight_ih.new_empty(2, batch, size)
        where = addresses(grad, None if gru else last, weight_ih, weight_hh, kept, grad_x, gates, hidden, cell)
        native.kernels.recur_heard(*where, 1, batch, steps, inputs, size, int(gru), torch.get_num_threads())
        of_cell = last if gru else cell
        of_input, of_state = gates, gates
        if gru:  # n has a gradient by what the input gives, and another by what the state does
            of_input, of_state = torch.cat([gates[..., : 2 * size], gates[..., 3 * size :]], 2), gates[..., : 3 * size]
        return None, grad_x, of_input, of_state, None, None, None, None, hidden, of_cell


def among_clients(info: Any, places: Sequence[int | None], values: Sequence[Tensor]) -> list[Tensor]:
    """Return what vmap maps with the mapped axis joined to the clients', which leads."""
    return [
        (value.expand(info.batch_size, *value.shape) if place is None else value.movedim(place, 0)).flatten(0, 1)
        for value, place in zip(values, places, strict=True)
    ]


_OPERATIONS.impl("recur", _forwards, "CPU")
_OPERATIONS.impl("recur_back", _backwards, "CPU")
RECUR, RECUR_BACK = (getattr(torch.ops.tacit, name).default for name in ("recur", "recur_back"))
