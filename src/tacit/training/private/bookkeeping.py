"""Clipped sums by book-keeping: one forward pass, one backward pass to the layers' outputs, no second one.

The parameters' own gradients are never computed by autograd: the backward pass stops at the outputs of the layers that
train, and each layer's book (:mod:`tacit.training.private.books`) does the rest. The hooks that listen are there during
a step only, so that the model stays the user's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from tacit.training.private import books
from tacit.training.private.books import Book, Call
from tacit.training.private.clipping import Clipping
from tacit.training.settings import Loss


class NoBook(Exception):  # noqa: N818 - an answer, not an error: the caller takes the fallback
    """The model has parameters that no rule covers."""


_RULES: dict[type[nn.Module], Callable[[Any, Sequence[Call]], Book]] = {
    nn.Linear: books.linear,
    nn.Conv1d: books.convolution,
    nn.Conv2d: books.convolution,
    nn.Embedding: books.embedding,
    nn.LayerNorm: books.layer_norm,
    nn.GroupNorm: books.group_norm,
}


class BookKeeping:
    """Sums clipped per-example gradients of a model whose every trained layer has a rule."""

    name = "book-keeping"

    def __init__(self, model: nn.Module, loss: Loss, clipping: Clipping) -> None:
        """Look for a rule for every layer; :class:`NoBook` says which has none."""
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
        losses, kept = self._books(features, labels)
        with torch.no_grad():
            factors = self._clipping.factors(torch.stack([book.squares for book in kept]))
            totals: list[Tensor | None] = [None] * len(self._parameters)
            for own, book, row in zip(self._places, kept, factors, strict=True):
                for place, total in zip(own, book.weighted(row), strict=True):
                    totals[place] = total
        assert all(total is not None for total in totals)
        return totals, losses  # type: ignore[return-value]

    def norms(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return the norm of each example's gradient."""
        kept = self._books(features, labels)[1]
        with torch.no_grad():
            return torch.stack([book.squares for book in kept]).sum(0).sqrt()

    def _books(self, features: Tensor, labels: Tensor) -> tuple[Tensor, list[Book]]:
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
            raise NoBook(f"a layer {unused[0]} takes no part in its output")
        edges = [edge for calls in self._heard.values() for _, edge in calls]
        gradients = iter(torch.autograd.grad(total, edges))
        kept = []
        with torch.no_grad():
            for layer, calls in self._heard.items():
                pairs = [(value, next(gradients)) for value, _ in calls]
                wrong = [tuple(value.shape) for value, _ in pairs if len(value) != len(labels)]
                if wrong:
                    raise NoBook(f"{type(layer).__name__} sees a value of shape {wrong[0]}, not one row an example")
                kept.append(_RULES[type(layer)](layer, pairs))
        self._heard = {}
        return losses.detach(), kept

    def _listen(self, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not inputs:
            raise NoBook(f"{type(layer).__name__} is given its input by keyword")
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
            raise NoBook(f"{kind} {name or '(the model itself)'} has no rule")
        if isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse):
            raise NoBook(f"{kind} {name} renormalises or rescales its table")
        for parameter in own:
            if id(parameter) in owner:
                raise NoBook(f"{name} and {owner[id(parameter)]} share parameters")
            owner[id(parameter)] = name
        found.append(layer)
    return found
