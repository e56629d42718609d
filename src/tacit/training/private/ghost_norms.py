r"""Clipped sums by book-keeping: the norms of per-example gradients, and their weighted sum, from one backward pass.

:class:`BookKeeping` sums the clipped gradients of a model. The parameters' own gradients are never computed by
autograd: the backward pass stops at the outputs of the layers that train, and each layer's rule does the rest. The
hooks that listen are there during a step only, so that the model stays the user's own.

For a layer whose weight meets inputs :math:`a_{it}` at positions t and whose outputs have gradients :math:`b_{it}`, the
gradient of example i is :math:`g_i = \sum_t b_{it} a_{it}^T`. It is never needed on its own (Goodfellow 2015; Bu et al.
2022, 2023): the norm is

.. math:: \lVert g_i \rVert^2 = \sum_{t,s} (a_{it}^T a_{is}) (b_{it}^T b_{is}),

for one position :math:`\lVert a_i \rVert^2 \lVert b_i \rVert^2`, and the clipped sum is one matrix product with
:math:`b_{it}` scaled by the example's factor. Where positions are many and the weight is small (convolutions),
forming :math:`g_i` costs less than the two Gram matrices, and that is done instead.

No norm that is found is below that of the gradient that is summed. A gradient that was formed is summed as it was
formed. The Gram sum is in double precision, and what it can be wrong by is added to it; with
:math:`\kappa_i = \sum_t \lVert a_{it} \rVert \lVert b_{it} \rVert` that is at most
:math:`(d + p + T^2 + 1)\, 2^{-53} \kappa_i^2`. Where positions cancel so far that
:math:`\kappa_i > 2^8 \lVert g_i \rVert`, the example's gradient is formed after all: what rounding adds to the sum
is thus at most :math:`2^8 n 2^{-53}` times the bound for each example, n being the positions of a batch.

Every rule takes all calls of its layer in a forward pass: their positions are put side by side, so that a layer that is
used twice is clipped by the gradient of both uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from tacit.training.private import double
from tacit.training.private.clipping import Clipping
from tacit.training.settings import Loss

_CANCELS = 2.0**16  # the square of how much larger than a gradient the sum of its positions' norms may be
_AT_ONCE = 1 << 24  # numbers of gradients that are formed at a time

Call = tuple[Tensor, Tensor]  # a layer's input and the gradient of its output, both with the examples first


class LayerGradients(Protocol):
    """What is known of a layer's per-example gradients."""

    @property
    def squares(self) -> Tensor:
        """Their squared norms, ``(examples,)``, in double precision; not finite where the gradient is not."""
        ...

    def weighted(self, factors: Tensor) -> list[Tensor]:
        """Return their sum, each times its factor, in double precision: one tensor for each parameter that trains.

        An example with the factor 0 takes no part, whatever its rows hold.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Formed:
    """Per-example gradients that were formed, one ``(examples, ...)`` tensor per parameter.

    ``shapes`` are the parameters' own; a weight's gradient may come with its second axis last (``channels_last``).
    """

    gradients: tuple[Tensor, ...]
    shapes: tuple[torch.Size, ...]
    channels_last: bool = False

    @property
    def squares(self) -> Tensor:
        """Their squared norms."""
        return torch.stack([double.squares(gradient) for gradient in self.gradients]).sum(0)

    def weighted(self, factors: Tensor) -> list[Tensor]:
        """Return their weighted sums."""
        sums = [double.combined(factors, gradient) for gradient in self.gradients]
        if self.channels_last:
            sums[0] = sums[0].view(self.gradients[0].shape[1:]).movedim(-1, 1).contiguous()
        return [total.view(shape) for total, shape in zip(sums, self.shapes, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Outer:
    """Gradients of a matrix at one position, outer products that were not formed: ``(B, d)`` and ``(B, p)``."""

    inputs: Tensor
    gradients: Tensor
    weight: bool
    bias: bool

    @property
    def squares(self) -> Tensor:
        """The squared norms: products of the squared norms of the two vectors."""
        b = double.squares(self.gradients)
        weight = b * double.squares(self.inputs) if self.weight else torch.zeros_like(b)
        return weight + b if self.bias else weight

    def weighted(self, factors: Tensor) -> list[Tensor]:
        """Return the weighted sums: one matrix product over all examples."""
        scaled = double.cleared(self.gradients, factors).double() * factors[:, None]
        sums = [scaled.t() @ double.cleared(self.inputs, factors).double()] if self.weight else []
        return [*sums, scaled.sum(0)] if self.bias else sums


class Gram:
    """Gradients of a matrix at several positions: inputs ``(B, T, d)``, output gradients ``(B, T, p)``.

    Attributes:
        squares: the squared norms, by Gram matrices, never below the truth.
    """

    def __init__(self, *, inputs: Tensor, gradients: Tensor, bias: bool) -> None:
        """Compute the norms, and form the gradients of examples whose positions cancel."""
        a, b = inputs.double(), gradients.double()
        self._inputs, self._gradients = inputs, gradients
        self._bias = gradients.sum(1) if bias else None
        positions, width, height = a.shape[1], a.shape[2], b.shape[2]
        found = (torch.bmm(a, a.mT) * torch.bmm(b, b.mT)).sum((1, 2)).clamp(min=0.0)
        reach = (a.square().sum(2) * b.square().sum(2)).sqrt().sum(1).square()  # kappa squared
        # Twice what rounding can do.
        self.squares = found + 2.0 * (width + height + positions * positions + 1) * 2.0**-53 * reach
        self._cancelling = (reach > _CANCELS * self.squares).nonzero()[:, 0]
        for rows in self._few():
            self.squares[rows] = double.squares(self._formed(rows))
        if self._bias is not None:
            self.squares = self.squares + double.squares(self._bias)

    def weighted(self, factors: Tensor) -> list[Tensor]:
        """Return the weighted sums: one matrix product over all examples and positions."""
        whole = factors.index_fill(0, self._cancelling, 0.0)
        scaled = double.cleared(self._gradients, whole).double() * whole[:, None, None]
        inputs = double.cleared(self._inputs, whole).double()
        total = scaled.flatten(0, 1).t() @ inputs.flatten(0, 1)
        for rows in self._few():
            total += double.combined(factors[rows], self._formed(rows)).view_as(total)
        return [total] if self._bias is None else [total, double.combined(factors, self._bias)]

    def _few(self) -> tuple[Tensor, ...]:
        """Return the examples whose gradients are formed, as many at a time as memory bears."""
        size = self._inputs.shape[2] * self._gradients.shape[2]
        return torch.split(self._cancelling, max(1, _AT_ONCE // size)) if len(self._cancelling) else ()

    def _formed(self, rows: Tensor) -> Tensor:
        return torch.bmm(self._gradients[rows].mT, self._inputs[rows])


def linear(layer: nn.Linear, calls: Sequence[Call]) -> LayerGradients:
    """Return the gradients of an affine map of the last axis."""
    a = _side_by_side([_positions(value) for value, _ in calls])
    b = _side_by_side([_positions(value) for _, value in calls])
    weight, bias = _trains(layer)
    positions, size = a.shape[1], layer.weight.numel()
    if positions == 1:
        return Outer(inputs=a[:, 0], gradients=b[:, 0], weight=weight, bias=bias)
    if weight and 2 * positions * positions <= size:
        return Gram(inputs=a, gradients=b, bias=bias)
    formed = (torch.bmm(b.mT, a),) if weight else ()
    return Formed(gradients=(*formed, b.sum(1)) if bias else formed, shapes=_shapes(layer))


def convolution(layer: nn.Conv1d | nn.Conv2d, calls: Sequence[Call]) -> LayerGradients:
    """Return the gradients of a convolution: its gradients are formed from the windows of the input."""
    weight, bias = _trains(layer)
    gradients: list[Tensor] = []
    if weight:
        formed = [_window_products(layer, *call) for call in calls]
        gradients.append(formed[0] if len(formed) == 1 else torch.stack(formed).sum(0))
    if bias:
        sums = [b.flatten(2).sum(2) for _, b in calls]
        gradients.append(sums[0] if len(sums) == 1 else torch.stack(sums).sum(0))
    last = weight and gradients[0].dim() == 5  # the channels came last
    return Formed(gradients=tuple(gradients), shapes=_shapes(layer), channels_last=last)


def _window_products(layer: nn.Conv1d | nn.Conv2d, a: Tensor, b: Tensor) -> Tensor:
    """Return each example's weight gradient: ``(examples, numbers)``, or ``(examples, outputs, *kernel, channels)``."""
    padding = layer._reversed_padding_repeated_twice
    if any(padding):
        a = F.pad(a, padding, mode="constant" if layer.padding_mode == "zeros" else layer.padding_mode)
    kernel, stride, dilation = layer.kernel_size, layer.stride, layer.dilation
    if a.dim() == 3:  # one axis is two, the first of length one
        a, b, kernel, stride, dilation = a[:, :, None], b[:, :, None], (1, *kernel), (1, *stride), (1, *dilation)
    examples, groups = len(a), layer.groups
    channels, outputs, places = a.shape[1] // groups, b.shape[1] // groups, b.shape[2:].numel()
    n, c, h, w = a.stride()
    # On CPUs PyTorch's convolutions are fastest with the channels innermost; windows are then copied a row at a time.
    last = groups == 1 and channels > 1 and c == 1
    if last:
        shape = (examples, *b.shape[2:], *kernel, channels)
        strides = (n, h * stride[0], w * stride[1], h * dilation[0], w * dilation[1], c)
        windows = a.as_strided(shape, strides, a.storage_offset()).reshape(examples, places, -1)
        products = torch.bmm(b.permute(0, 2, 3, 1).reshape(examples, places, outputs).mT, windows)
        return products.view(examples, outputs, *kernel, channels)
    shape = (examples, groups * channels, *kernel, *b.shape[2:])
    strides = (n, c, h * dilation[0], w * dilation[1], h * stride[0], w * stride[1])
    windows = a.as_strided(shape, strides, a.storage_offset()).reshape(examples * groups, -1, places)
    products = torch.bmm(b.reshape(examples * groups, outputs, places), windows.mT)
    return products.view(examples, -1)


def embedding(layer: nn.Embedding, calls: Sequence[Call]) -> LayerGradients:
    """Return the gradients of a table: words that occur twice in an example share a row of its gradient."""
    rows = _side_by_side([index.reshape(len(index), -1, 1) for index, _ in calls])[:, :, 0]
    b = _side_by_side([value.reshape(len(value), -1, value.shape[-1]) for _, value in calls])
    if layer.padding_idx is not None:
        b = b.masked_fill((rows == layer.padding_idx)[:, :, None], 0.0)
    # Words that are alike lie side by side once sorted; all their gradients are added up at one of their positions.
    ordered, order = rows.sort(1)
    begins = F.pad(ordered[:, 1:] != ordered[:, :-1], (1, 0), value=True)
    starts = torch.where(begins, torch.arange(rows.shape[1], device=rows.device), 0).cummax(1).values
    first = torch.empty_like(order).scatter_(1, order, order.gather(1, starts))
    own = torch.zeros_like(b).scatter_add_(1, first[:, :, None].expand_as(b), b)
    return _Rows(rows=rows, gradients=own, table=len(layer.weight))


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """Gradients of a table: which rows ``(B, T)``, and their gradients where a row comes first ``(B, T, p)``."""

    rows: Tensor
    gradients: Tensor
    table: int

    @property
    def squares(self) -> Tensor:
        return double.squares(self.gradients)

    def weighted(self, factors: Tensor) -> list[Tensor]:
        scaled = double.cleared(self.gradients, factors).double() * factors[:, None, None]
        table = scaled.new_zeros(self.table, scaled.shape[2])
        return [table.index_add_(0, self.rows.flatten(), scaled.flatten(0, 1))]


def layer_norm(layer: nn.LayerNorm, calls: Sequence[Call]) -> LayerGradients:
    """Return the gradients of layer norm's scale and shift."""
    shape = layer.normalized_shape

    def normal(a: Tensor) -> Tensor:
        return F.layer_norm(a, shape, eps=layer.eps)

    def summed(value: Tensor) -> Tensor:
        return value.reshape(len(value), -1, *shape).sum(1)

    return _scale_and_shift(layer, calls, normal, summed)


def group_norm(layer: nn.GroupNorm, calls: Sequence[Call]) -> LayerGradients:
    """Return the gradients of group norm's scale and shift, one number per channel."""

    def normal(a: Tensor) -> Tensor:
        return F.group_norm(a, layer.num_groups, eps=layer.eps)

    def summed(value: Tensor) -> Tensor:
        return value.reshape(*value.shape[:2], -1).sum(2)

    return _scale_and_shift(layer, calls, normal, summed)


def _scale_and_shift(
    layer: nn.Module, calls: Sequence[Call], normal: Callable[[Tensor], Tensor], summed: Callable[[Tensor], Tensor]
) -> LayerGradients:
    weight, bias = _trains(layer)
    scales = [summed(b * normal(a)) for a, b in calls] if weight else []
    shifts = [summed(b) for _, b in calls] if bias else []
    gradients = tuple(torch.stack(parts).sum(0) for parts in (scales, shifts) if parts)
    return Formed(gradients=gradients, shapes=_shapes(layer))


def _trains(layer: nn.Module) -> tuple[bool, bool]:
    """Return whether the weight trains, and the bias."""
    own = {name for name, parameter in layer.named_parameters(recurse=False) if parameter.requires_grad}
    return "weight" in own, "bias" in own


def _shapes(layer: nn.Module) -> tuple[torch.Size, ...]:
    return tuple(p.shape for p in layer.parameters(recurse=False) if p.requires_grad)


def _positions(value: Tensor) -> Tensor:
    return value.reshape(len(value), -1, value.shape[-1])


def _side_by_side(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=1)


class NoRule(Exception):  # noqa: N818 - an answer, not an error: the caller takes the fallback
    """The model has parameters that no rule covers."""


_RULES: dict[type[nn.Module], Callable[[Any, Sequence[Call]], LayerGradients]] = {
    nn.Linear: linear,
    nn.Conv1d: convolution,
    nn.Conv2d: convolution,
    nn.Embedding: embedding,
    nn.LayerNorm: layer_norm,
    nn.GroupNorm: group_norm,
}


class BookKeeping:
    """Sums clipped per-example gradients of a model whose every trained layer has a rule."""

    name = "book-keeping"

    def __init__(self, model: nn.Module, loss: Loss, clipping: Clipping) -> None:
        """Look for a rule for every layer; :class:`NoRule` says which has none."""
        self._model = model
        self._loss = loss
        self._clipping = clipping
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._layers = _layers(model)
        places = {id(parameter): place for place, parameter in enumerate(self._parameters)}
        self._places = [
            [places[id(p)] for p in layer.parameters(recurse=False) if p.requires_grad] for layer in self._layers
        ]
        self._heard: dict[nn.Module, list[tuple[Tensor, GradientEdge]]] = {}

    def sums(self, features: Tensor, labels: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the sum of clipped gradients, parameter by parameter in double precision, and each example's loss."""
        losses, kept = self._gradients_of(features, labels)
        with torch.no_grad():
            factors = self._clipping.factors(torch.stack([own.squares for own in kept]))
            totals: list[Tensor | None] = [None] * len(self._parameters)
            for places, layer, row in zip(self._places, kept, factors, strict=True):
                for place, total in zip(places, layer.weighted(row), strict=True):
                    totals[place] = total
        assert all(total is not None for total in totals)
        return totals, losses  # type: ignore[return-value]  # none is None: see above

    def norms(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return the norm of each example's gradient."""
        kept = self._gradients_of(features, labels)[1]
        with torch.no_grad():
            return torch.stack([own.squares for own in kept]).sum(0).sqrt()

    def _gradients_of(self, features: Tensor, labels: Tensor) -> tuple[Tensor, list[LayerGradients]]:
        self._heard = {layer: [] for layer in self._layers}
        handles = [layer.register_forward_hook(self._listen) for layer in self._layers]
        try:
            with torch.enable_grad():
                losses = self._loss(self._model(features), labels)
                total = losses.sum()
        finally:
            for handle in handles:
                handle.remove()
        unused = [type(layer).__name__ for layer, calls in self._heard.items() if not calls]
        if unused:
            raise NoRule(f"a layer {unused[0]} takes no part in its output")
        edges = [edge for calls in self._heard.values() for _, edge in calls]
        gradients = iter(torch.autograd.grad(total, edges))
        kept = []
        with torch.no_grad():
            for layer, calls in self._heard.items():
                pairs = [(value, next(gradients)) for value, _ in calls]
                wrong = [tuple(value.shape) for value, _ in pairs if len(value) != len(labels)]
                if wrong:
                    raise NoRule(f"{type(layer).__name__} sees a value of shape {wrong[0]}, not one row per example")
                kept.append(_RULES[type(layer)](layer, pairs))
        self._heard = {}
        return losses.detach(), kept

    def _listen(self, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not inputs:
            raise NoRule(f"{type(layer).__name__} is given its input by keyword")
        # The edge is taken now: an operation in place on the output would move the tensor's own.
        self._heard[layer].append((inputs[0].detach(), get_gradient_edge(output)))


def _layers(model: nn.Module) -> list[nn.Module]:
    """Return the layers that train, each with parameters of its own."""
    found: list[nn.Module] = []
    owner: dict[int, str] = {}
    for name, layer in model.named_modules():
        own = [p for p in layer.parameters(recurse=False) if p.requires_grad]
        if not own:
            continue
        kind = type(layer).__name__
        if type(layer) not in _RULES:
            raise NoRule(f"{kind} {name or '(the model itself)'} has no rule")
        if isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse):
            raise NoRule(f"{kind} {name} renormalises or rescales its table")
        for parameter in own:
            if id(parameter) in owner:
                raise NoRule(f"{name} and {owner[id(parameter)]} share parameters")
            owner[id(parameter)] = name
        found.append(layer)
    return found
