"""Layers that torch computes in one opaque call, in a form that can be mapped over clients and clipped by example.

:func:`batchable` returns a module that computes the same with the same parameters: ``nn.LSTM``, ``nn.GRU`` and
``nn.RNN`` become :class:`~tacit.training.recurrence.Recurrence`, ``nn.MultiheadAttention`` becomes :class:`Attention`.
:class:`Explicit` is a mode under which ``F.scaled_dot_product_attention``, whose fast kernels can't be mapped, is a
softmax between two matrix products, and bags of embeddings, embeddings with padding and cells of recurrent layers are
written out too.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tacit.training.native.attention import natively
from tacit.training.parameters import hooked
from tacit.training.recurrence import Kind, NotInPartsError, Recurrence, linear_of, steps_by_autograd


def batchable(module: nn.Module) -> nn.Module:
    """Return a module of the same parameters, not copies, without layers that nothing can map; it may be the same one.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.GRU(3, 4))
    >>> type(batchable(model)[1]).__name__, batchable(model)[0].weight is model[0].weight
    ('Recurrence', True)
    """
    if not any(_stands_in(layer) is not None for layer in module.modules()):
        return module
    shared = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    own = copy.deepcopy(module, shared)
    replacement = _stands_in(own)
    if replacement is not None:
        return replacement(own).train(own.training)
    made: dict[nn.Module, nn.Module] = {}
    for parent in list(own.modules()):
        for name, child in list(parent._modules.items()):
            replacement = None if child is None else _stands_in(child)
            if child is not None and replacement is not None:
                if child not in made:  # a layer under two names stays one layer
                    made[child] = replacement(child).train(child.training)
                setattr(parent, name, made[child])
    return own


def names_in(module: nn.Module, original: nn.Module, names: Sequence[str]) -> list[str]:
    """Return what the tensors of ``original`` by these names are called in a module that shares them."""
    own = {id(tensor): name for name, tensor in (*module.named_parameters(), *module.named_buffers())}
    tensors = dict(original.named_parameters()) | dict(original.named_buffers())
    return [own[id(tensors[name])] for name in names]


def places_in(module: nn.Module, names: Sequence[str]) -> list[tuple[str, int]]:
    """Return every place at which a module holds one of the tensors by these names, and which of them it is.

    A weight that two layers share has two places; a layer under two names has one of its own, where
    ``torch.func.functional_call`` with ``tie_weights`` would write twice, and put the wrong tensor back.

    >>> layer = nn.Linear(2, 2, bias=False)
    >>> places_in(nn.Sequential(layer, layer), ["0.weight"])
    [('0.weight', 0)]
    """
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    numbers = {id(tensors[name]): number for number, name in enumerate(names)}
    return [
        (f"{prefix}.{name}" if prefix else name, numbers[id(tensor)])
        for prefix, part in module.named_modules()
        for name, tensor in (*part._parameters.items(), *part._buffers.items())
        if id(tensor) in numbers
    ]


def pairs(model: nn.Module, original: nn.Module) -> list[tuple[nn.Module, nn.Module]]:
    """Return each part of a module that stands in for another with the part whose mode it follows."""
    if model is original:
        return []
    known = dict(original.named_modules())
    pairs = []
    for name, part in model.named_modules():
        while name not in known:
            name = name.rpartition(".")[0]  # noqa: PLW2901 - up to the layer that it is a part of
        pairs.append((part, known[name]))
    return pairs


def _stands_in(layer: nn.Module) -> Callable[[Any], nn.Module] | None:
    """Return what stands in for a layer, or None where it may stay, or has hooks that would be lost."""
    if hooked([layer]):
        return None
    if type(layer) in (nn.LSTM, nn.GRU, nn.RNN):
        return None if getattr(layer, "proj_size", 0) else Recurrence
    if type(layer) is nn.MultiheadAttention:
        plain = layer._qkv_same_embed_dim and layer.bias_k is None and layer.bias_v is None and not layer.add_zero_attn
        return Attention if plain else None
    return None


class Attention(nn.Module):
    """Computes what an ``nn.MultiheadAttention`` computes, with its own parameters, in layers that have rules."""

    in_proj_bias = None  # torch's encoder layers look here for a fast path of their own, and take none
    _qkv_same_embed_dim = True
    num_heads: int
    batch_first: bool

    def __init__(self, layer: nn.MultiheadAttention) -> None:
        super().__init__()
        for name in ("embed_dim", "num_heads", "head_dim", "batch_first", "dropout"):  # models ask their layers
            setattr(self, name, getattr(layer, name))
        assert layer.in_proj_weight is not None
        self.projection = linear_of(layer.in_proj_weight, layer.in_proj_bias)
        self.out_proj = linear_of(cast(nn.Parameter, layer.out_proj.weight), layer.out_proj.bias)
        self.drop = nn.Dropout(layer.dropout) if layer.dropout else None

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return outputs and, if asked for, the weights of attention."""
        del is_causal  # a hint that the mask is causal; the mask itself is used
        if query.dim() != 3:
            raise NotInPartsError("attention over a single sequence has no rule")
        alike = query is key and key is value
        if not self.batch_first:
            query, key, value = (part.transpose(0, 1) for part in (query, key, value))
        if alike:
            parts = self.projection(query).chunk(3, -1)
        else:
            bias: Any = self.projection.bias
            biases = (None,) * 3 if bias is None else bias.chunk(3)
            pairs = zip((query, key, value), self.projection.weight.chunk(3), biases, strict=True)
            parts = [F.linear(given, weight, own) for given, weight, own in pairs]
        q, k, v = (part.view(*part.shape[:2], self.num_heads, -1).transpose(1, 2) for part in parts)
        mask = _joined(attn_mask, key_padding_mask, q)
        weights = None
        if self.drop is None and (not need_weights or natively()):
            given = _none_of_nothing(mask) if need_weights and mask is not None else mask
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=given)
            if need_weights:  # mostly nobody looks at them, and then they are no part of a step's program
                weights = attention_weights(q, k, mask)
        else:
            weights = attention_weights(q, k, mask)
            mixed = (weights if self.drop is None else self.drop(weights)) @ v
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        outputs: Tensor = self.out_proj(mixed.transpose(1, 2).flatten(2))
        outputs = outputs if self.batch_first else outputs.transpose(0, 1)
        return outputs, weights if need_weights else None


def _joined(mask: Tensor | None, padding: Tensor | None, queries: Tensor) -> Tensor | None:
    """Return the masks of multi-head attention, in which True is left out, as one that is added to the scores."""
    joined = None
    if mask is not None:
        joined = _added(mask, queries)
        joined = joined.view(len(queries), -1, *joined.shape[1:]) if joined.dim() == 3 else joined
    if padding is not None:
        own = _added(padding, queries)[:, None, None]
        joined = own if joined is None else joined + own
    return joined


def _none_of_nothing(mask: Tensor) -> Tensor:
    """Return a mask by which whoever may look at nothing finds NaN, as layers that give weights do, and not zeros."""
    return mask.masked_fill((mask == -math.inf).all(-1, keepdim=True), math.nan)


def _added(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=like.dtype, device=mask.device).masked_fill(mask, -math.inf)


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None = None) -> Tensor:
    """Return the softmax of scaled scores; a mask of floats is added, one of truth values says who takes part."""
    return _scores(query, key, mask, scale).softmax(-1)


def _scores(query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * factor) @ key.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return scores


def explicit_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return what ``F.scaled_dot_product_attention`` returns, in operations that can be mapped."""
    if dropout_p:
        raise ValueError("attention with dropout of its own draws random numbers")
    if is_causal:
        attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = (part.repeat_interleave(times, -3) for part in (key, value))
    scores = _scores(query, key, attn_mask, scale)
    if attn_mask is None or is_causal or not query.is_cpu:  # of a GPU nobody has measured it
        return scores.softmax(-1) @ value
    nothing = (scores == -math.inf).all(-1, keepdim=True)  # zeros for whoever may look at nothing
    return scores.masked_fill(nothing, 0.0).softmax(-1).masked_fill(nothing, 0.0) @ value


def explicit_bag(
    input: Tensor,  # noqa: A002 - as torch calls it, and callers may
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Return what ``F.embedding_bag`` returns, of bags of one length in operations that can be mapped."""
    plain = input.dim() == 2 and offsets is None and max_norm is None and not scale_grad_by_freq and not sparse
    if not plain or (mode == "max" and padding_idx is not None):
        return F.embedding_bag(
            input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse, per_sample_weights,
            include_last_offset, padding_idx,
        )  # fmt: skip
    rows = F.embedding(input, weight)
    if mode == "max":
        return rows.max(1).values
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if padding_idx is None:
        return rows.mean(1) if mode == "mean" else rows.sum(1)
    real = (input != padding_idx % len(weight)).unsqueeze(-1).to(rows.dtype)
    total = (rows * real).sum(1)
    return total / real.sum(1).clamp(min=1.0) if mode == "mean" else total


def explicit_embedding(
    input: Tensor,  # noqa: A002 - as torch calls it, and callers may
    weight: Tensor,
    padding_idx: int | None = None,
    *others: Any,
    **named: Any,
) -> Tensor:
    """Return what ``F.embedding`` returns; where ``padding_idx`` is given, no gradient comes to that row.

    Torch's rule for many clients looks for the row in the first one's table alone: the others' would train.
    """
    rows = F.embedding(input, weight, None, *others, **named)
    if padding_idx is None:
        return rows
    return torch.where((input == padding_idx % len(weight)).unsqueeze(-1), rows.detach(), rows)


def _explicit_cell(kind: Kind) -> Callable[..., Any]:
    """Return what computes one step of a recurrent layer as ``nn.LSTMCell`` and its kin call it, in mappable parts."""

    def step(
        values: Tensor,
        before: Any,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Any:
        state, cell = before if kind == "lstm" else (before, before)
        bias = values.new_zeros(len(w_hh)) if b_hh is None else b_hh
        states, cell = steps_by_autograd(kind, F.linear(values, w_ih, b_ih)[:, None], bias, w_hh, state, cell)
        return (states[:, 0], cell) if kind == "lstm" else states[:, 0]

    return step


_EXPLICIT: dict[Any, Callable[..., Any]] = {
    F.scaled_dot_product_attention: explicit_attention,
    F.embedding_bag: explicit_bag,
    torch.lstm_cell: _explicit_cell("lstm"),
    torch.gru_cell: _explicit_cell("gru"),
    torch.rnn_tanh_cell: _explicit_cell("tanh"),
    torch.rnn_relu_cell: _explicit_cell("relu"),
}


class Explicit(TorchFunctionMode):
    """While it is on, what vmap has no rule for is written out; ``met`` says if any of it came.

    Attention's fast kernels can't be mapped at all. Of bags of embeddings and cells of recurrent layers vmap computes
    one client after the other, and warns of it; of embeddings it forgets which row is padding.
    """

    met = False

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        written_out = _EXPLICIT.get(func)
        if func is F.embedding and (args[2:3] or ((kwargs or {}).get("padding_idx"),)) != (None,):
            written_out = explicit_embedding
        if written_out is None:
            return func(*args, **(kwargs or {}))
        self.met = True
        return written_out(*args, **(kwargs or {}))
