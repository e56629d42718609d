"""Attention of short texts and GELU by native kernels, in the place of torch's functions of these names.

Small linear layers too (:mod:`tacit.training.native.linear`).

PyTorch computes attention in blocks that suit long texts: of short ones, most of the time goes on moving numbers about.
Here one head of one text is computed while it is in the cache, and written where the next layer reads it. A module that
runs under :class:`Natively` has the kernels wherever they can do what it asks for, whichever layers ask. They are
operations of torch's library, so that a step can be followed and written down (:mod:`tacit.training.straight`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode, _get_current_function_mode

from tacit.training import native
from tacit.training.native import LANES, addresses, plain, readable
from tacit.training.native.linear import linear

_LONGEST = 256  # places; all weights of a longer text fill a core's cache, and torch's blocks are for that
_MOST = 1 << 22  # weights of a layer, which are kept for the way back: 16 MB; torch computes them anew
_CURVES = {"none": False, "tanh": True}

_OPERATIONS: Any = torch.library.Library("tacit", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch gives it no types
_OPERATIONS.define("attend(Tensor q, Tensor k, Tensor v, Tensor? mask, bool causal, float scale) -> (Tensor, Tensor)")
_OPERATIONS.define(
    "attend_back(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor weights, bool causal, float scale)"
    " -> (Tensor, Tensor, Tensor)"
)
_OPERATIONS.define("gelu(Tensor x, bool curve) -> (Tensor, Tensor)")


class Natively(TorchFunctionMode):
    """While it is on, attention, GELU and linear layers are native where they can be; ``met`` counts attention's calls.

    ``nn.MultiheadAttention`` is one call to torch, and has to be taken apart before (:mod:`tacit.training.batchable`).

    >>> values = torch.randn(2, 4, 5, 16)
    >>> with Natively():
    ...     own = F.scaled_dot_product_attention(values, values, values, is_causal=True)
    >>> torch.allclose(own, F.scaled_dot_product_attention(values, values, values, is_causal=True), atol=1e-6)
    True
    """

    met = 0

    def __init__(self, *, layers: bool = True) -> None:
        """Say whether linear layers are native too."""
        super().__init__()
        self._layers = layers

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if func is F.scaled_dot_product_attention:
            found = _attention(*args, **given)
            if found is not None:
                self.met += 1
                return found
        elif func is F.gelu:
            found = _gelu(*args, **given)
            if found is not None:
                return found
        elif func is F.linear and self._layers:
            found = linear(*args, **given)
            if found is not None:
                return found
        return func(*args, **given)


def natively() -> bool:
    """Return whether :class:`Natively` is on."""
    return isinstance(_get_current_function_mode(), Natively)  # type: ignore[no-untyped-call]  # torch gives it no types


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    **others: Any,
) -> Tensor | None:
    """Return what torch's function returns, or None where the kernels can't."""
    if dropout_p or enable_gqa or others or not plain(query, key, value) or torch.is_autocast_enabled("cpu"):
        return None
    if not _short(query, key, value):
        return None
    if attn_mask is not None:
        if is_causal or type(attn_mask) is not Tensor or attn_mask.requires_grad or attn_mask.dim() > 4:
            return None
        if attn_mask.dtype == torch.bool:
            added = torch.zeros(attn_mask.shape, dtype=torch.float32, device=attn_mask.device)
            attn_mask = added.masked_fill_(~attn_mask, -math.inf)
        if not plain(attn_mask):
            return None
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    return attend(query, key, value, attn_mask, causal=is_causal, scale=scale)


def _short(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Return whether tensors are texts, heads, places and width, fit each other, and are short enough."""
    if query.dim() != 4 or key.shape != (*query.shape[:2], *key.shape[2:3], query.shape[3]) or value.shape != key.shape:
        return False
    weights = math.prod(query.shape[:3]) * key.shape[2]
    return max(query.shape[2], key.shape[2]) <= _LONGEST and weights <= _MOST


def _gelu(input: Tensor, *, approximate: str = "none") -> Tensor | None:  # noqa: A002 - torch's name
    if approximate not in _CURVES or not plain(input):
        return None
    return gelu(input, curve=_CURVES[approximate])


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, causal: bool, scale: float) -> Tensor:
    """Return the values ``(B, H, T, D)`` that queries find by keys and a softmax.

    Args:
        query: ``(B, H, T, D)``, float32.
        key: ``(B, H, S, D)``.
        value: ``(B, H, S, D)``.
        mask: is added to the scores; ``(B, H, T, S)``, or less where it is the same for all. It has no gradient.
        causal: a place looks at no later one.
        scale: scores are products times this.
    """
    found: tuple[Tensor, Tensor] = _Attention.apply(query, key, value, mask, causal, scale)  # type: ignore[no-untyped-call]  # torch gives it no types
    return found[0]


def gelu(x: Tensor, *, curve: bool = False) -> Tensor:
    """Return ``F.gelu(x)``; with ``curve`` as the tangent approximates it."""
    out: Tensor = _Gelu.apply(x, curve)  # type: ignore[no-untyped-call]  # as above
    return out


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        out, weights = torch.ops.tacit.attend(query, key, value, mask, causal, scale)
        ctx.save_for_backward(query, key, value, weights)
        ctx.how = causal, scale
        ctx.mark_non_differentiable(weights)
        ctx.set_materialize_grads(False)
        return out, weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return None, None, None, None, None, None
        return *torch.ops.tacit.attend_back(grad, *ctx.saved_tensors, *ctx.how), None, None, None


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, curve: bool) -> Tensor:
        out: Tensor
        out, slope = torch.ops.tacit.gelu(x, curve)
        ctx.save_for_backward(slope)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.saved_tensors[0], None


def _rows(value: Tensor) -> Tensor:
    """Return a tensor whose last numbers lie side by side."""
    return value if value.stride(-1) == 1 else value.contiguous()


def _sizes(query: Tensor, key: Tensor, value: Tensor) -> tuple[int, ...]:
    """Return texts, heads, queries, keys and width, of tensors that fit each other."""
    if not readable(query, key, value):
        raise ValueError("attend: expected float32 on a CPU that has the native kernels")
    batch, heads, queries, width = query.shape
    if key.shape != (batch, heads, key.shape[2], width) or value.shape != key.shape:
        raise ValueError(
            f"attend: query {tuple(query.shape)}, key {tuple(key.shape)} and value {tuple(value.shape)} don't fit: "
            "expected (B, H, T, D) and twice (B, H, S, D)"
        )
    return batch, heads, queries, key.shape[2], width


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    batch, heads, queries, keys, width = sizes = _sizes(query, key, value)
    query, key, value = _rows(query), _rows(key), _rows(value)
    strides = [0, 0, 0, 0]
    if mask is not None:
        if not readable(mask):
            raise ValueError("attend: expected a mask of float32 on the CPU")
        mask = mask.expand(batch, heads, queries, keys)
        strides = list(mask.stride())
    out = torch.empty_strided(
        (batch, heads, queries, width), (queries * heads * width, width, heads * width, 1), dtype=torch.float32
    )
    weights = torch.empty(batch, heads, keys, -(-queries // LANES) * LANES, dtype=torch.float32)
    where = addresses(query, key, value, mask, out, weights)
    apart = [step for own in (query, key, value, out) for step in own.stride()[:3]]
    native.kernels.attend(*where, *sizes, int(causal), *apart, *strides, scale)
    return out, weights


def _attend_back(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads, queries, keys, width = sizes = _sizes(query, key, value)
    if grad.shape != query.shape or weights.shape != (batch, heads, keys, -(-queries // LANES) * LANES):
        raise ValueError(f"attend_back: {tuple(grad.shape)} and {tuple(weights.shape)} don't fit {tuple(query.shape)}")
    if not readable(grad, weights):
        raise ValueError("attend_back: expected float32 on the CPU")
    grad, query, key, value = _rows(grad), _rows(query), _rows(key), _rows(value)
    found = tuple(
        torch.empty_strided(
            (batch, heads, places, width), (places * heads * width, width, heads * width, 1), dtype=torch.float32
        )
        for places in (queries, keys, keys)
    )
    where = addresses(grad, query, key, value, weights.contiguous(), *found)
    apart = [step for own in (query, key, value, grad) for step in own.stride()[:3]]
    native.kernels.attend_back(*where, *sizes, int(causal), *apart, 0, 0, 0, 0, scale)
    return found[0], found[1], found[2]


def _bend(x: Tensor, curve: bool) -> tuple[Tensor, Tensor]:
    if not readable(x):
        raise ValueError("gelu: expected float32 on a CPU that has the native kernels")
    out, slope = torch.empty_like(x), torch.empty_like(x)  # in the order of memory that torch's would have
    x = x if x.stride() == out.stride() else torch.empty_like(x).copy_(x)
    native.kernels.gelu(*addresses(x, out, slope), x.numel(), int(curve))
    return out, slope


_OPERATIONS.impl("attend", _attend, "CPU")
_OPERATIONS.impl("attend_back", _attend_back, "CPU")
_OPERATIONS.impl("gelu", _bend, "CPU")
ATTEND, ATTEND_BACK, GELU = (getattr(torch.ops.tacit, name).default for name in ("attend", "attend_back", "gelu"))
