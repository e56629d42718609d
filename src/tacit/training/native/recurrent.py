"""LSTM and GRU layers of one direction by native kernels, for one client or many.

PyTorch's LSTM on a CPU reaches half of a core's arithmetic, and its GRU calls some thousand operations per step. Here a
layer is one call forwards and one backwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils._python_dispatch import _get_current_dispatch_mode

from tacit.training import native
from tacit.training.native import LANES, addresses


def suits(kind: str, size: int, *values: Tensor) -> bool:
    """Return whether the kernels can compute a layer with states of ``size``, given its inputs and parameters.

    Under a mode that follows operations they don't, as nothing would be seen, but under one that says ``whole_layers``.
    """
    if kind not in ("lstm", "gru") or size % LANES or not native.available():
        return False
    mode = _get_current_dispatch_mode()
    seen = mode is None or getattr(mode, "whole_layers", False)
    return seen and all(value.dtype == torch.float32 and value.is_cpu and value.numel() > 0 for value in values)


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
    _check(kind, x, given)
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


def _forwards(kind: str, x: Tensor, given: Sequence[Tensor], threads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return outputs and last cells, and what the way back needs, in rows that the kernels know."""
    x, *given = (own.contiguous() for own in (x, *given))
    clients, batch, steps, inputs = x.shape
    size, gru = given[2].shape[2], kind == "gru"
    out = x.new_empty(clients, batch, steps, size)
    kept = x.new_empty(clients, steps, batch, (5 if gru else 6) * size)
    last = torch.empty_like(given[5])
    where = addresses(x, *given, out, kept, last)
    native.kernels.recur(*where, clients, batch, steps, inputs, size, int(gru), threads)
    return out, last, kept


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(kind: str, x: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        return _forwards(kind, x, given, threads=1)

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
        x, weight_ih, weight_hh, hidden, kept = (own.contiguous() for own in ctx.saved_tensors)
        clients, batch, steps, inputs = x.shape
        size, gru = weight_hh.shape[2], ctx.kind == "gru"
        grad, last = (None if own is None else own.contiguous() for own in outputs[:2])
        grad_x = torch.empty_like(x) if ctx.needs_input_grad[1] else None
        grad_weights = torch.empty_like(weight_ih), torch.empty_like(weight_hh)
        grad_biases = x.new_empty(2, clients, weight_ih.shape[1])
        of_hidden, cell = x.new_empty(2, clients, batch, size)
        where = addresses(grad, None if gru else last, x, weight_ih, weight_hh, hidden, kept, grad_x)
        where += addresses(grad_weights[0], grad_biases[0], grad_weights[1], grad_biases[1], of_hidden, cell)
        native.kernels.recur_back(*where, clients, batch, steps, inputs, size, int(gru), 1)
        of_cell = last if gru else cell
        return None, grad_x, grad_weights[0], grad_biases[0], grad_weights[1], grad_biases[1], of_hidden, of_cell

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], kind: str, *values: Tensor) -> tuple[Any, Any]:
        """Return the same with the mapped axis among the clients'."""
        found = _Layer.apply(kind, *among_clients(info, in_dims[1:], values))  # type: ignore[no-untyped-call]  # torch gives it no types
        return tuple(value.unflatten(0, (info.batch_size, -1)) for value in found), (0, 0, 0)


class _Heard(torch.autograd.Function):
    """One client's layer. What is kept lies in parts of the batch, one for each thread, forwards and backwards."""

    @staticmethod
    def forward(ctx: Any, kind: str, x: Tensor, *given: Tensor) -> tuple[Tensor, Tensor]:
        weights, threads = given[2:], torch.get_num_threads()
        out, last, kept = _forwards(kind, x[None], [own[None] for own in weights], threads)
        ctx.kind, ctx.shape, ctx.threads = kind, x.shape, threads
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
        native.kernels.recur_heard(*where, 1, batch, steps, inputs, size, int(gru), ctx.threads)
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
