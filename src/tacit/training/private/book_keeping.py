r"""Clipped sums by book-keeping: one forward and one backward pass, and the rules of :mod:`ghost_norms`.

:class:`BookKeeping` sums the clipped gradients of a model. The parameters' own gradients are never computed by
autograd: the backward pass stops at the outputs of the layers that train, and each layer's rule does the rest. The
hooks that listen are there during a step only, so that the model stays the user's own. Recurrent layers and attention
run as the layers they consist of (:mod:`tacit.training.batchable`), with the model's own parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from tacit.training import group_norm
from tacit.training.batchable import batchable, pairs
from tacit.training.parameters import leaves
from tacit.training.private import images
from tacit.training.private.clipping import Clipping
from tacit.training.private.ghost_norms import (
    Call,
    LayerGradients,
    Nothing,
    Twice,
    embedding,
    linear,
    shared,
    trained,
    trains,
)
from tacit.training.private.joint import Block, Joints, in_rows, unflattened
from tacit.training.private.norms import NORMS, formed, over_calls
from tacit.training.private.windows import Passing, convolution
from tacit.training.recurrence import Hidden
from tacit.training.settings import Loss


class NoRule(Exception):  # noqa: N818 - an answer, not an error: the caller takes the fallback
    """The model has parameters that no rule covers."""


_RULES: dict[type[nn.Module], Callable[[Any, Sequence[Any]], LayerGradients]] = {
    nn.Linear: linear,
    nn.Conv1d: convolution,
    nn.Conv2d: convolution,
    nn.Embedding: embedding,
    Hidden: linear,
    **dict.fromkeys(NORMS, over_calls),
}


OUTSIDE = "a weight is used outside its layer"
_SHARE = (nn.Linear, nn.Embedding)  # layers whose weight may be another's too
_SMALL = 0.25  # gradients of so many numbers are small beside those that a step holds anyhow


class BookKeeping:
    """Sums clipped per-example gradients of a model whose every trained layer has a rule.

    Attributes:
        module: what passes go through: the model, or what it consists of, with its own parameters.
    """

    name = "book-keeping"

    def __init__(self, model: nn.Module, loss: Loss, clipping: Clipping) -> None:
        """Look for a rule for every layer; :class:`NoRule` says which has none."""
        self.module = batchable(model)
        self._loss = loss
        self._clipping = clipping
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._units = _units(self.module)
        self._layers = [layer for unit in self._units for layer in unit.layers]
        # Of a call of a norm gradients are told, of another layer's its input and the gradient of its output.
        self._told = [sum(trains(layer)) if isinstance(layer, NORMS) else 2 for layer in self._layers]
        places = {id(parameter): place for place, parameter in enumerate(self._parameters)}
        self._places = [[places[id(p)] for p in unit.parameters] for unit in self._units]
        self._modes = pairs(self.module, model)
        self._heard: dict[nn.Module, list[_Heard]] = {}
        self._passing: list[_Passed] = []
        self._joints = Joints()
        self.natively = False  # whether native kernels compute images' layers in the passes

    def sums(
        self, features: Tensor, labels: Tensor, real: Tensor | None = None
    ) -> tuple[list[Tensor], Tensor, Tensor | None]:
        """Return the sum of clipped gradients, parameter by parameter in double precision, and each example's loss.

        Args:
            features: of the examples.
            labels: one per example.
            real: which examples take part; all if None.

        Returns:
            Sums and losses; third, where a graph is captured, whether what it computes is not to be used.
        """
        return self.summed(self.passed(features, labels), real)

    def norms(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return the norm of each example's gradient."""
        told = self.passed(features, labels)
        with torch.no_grad():
            kept = self._kept(told[1:-1], told[-1].tolist(), len(told[0]))
            return torch.stack([own.squares for own in kept]).sum(0).sqrt()

    def unheard(self) -> nn.Module:
        """Return the model that passes go through, in the model's own modes, as autograd would differentiate it."""
        self._as_the_model(listens=False)
        return self.module

    def passed(self, features: Tensor, labels: Tensor) -> list[Tensor]:
        """Return what a forward and a backward pass tell: each example's loss, and what each layer met, call by call.

        Examples come first in every tensor but the last, which says how many calls each layer had. Calls to whose
        outputs no gradient comes are left out, and layers may be: their examples' gradients are zeros.
        """
        norms = [own for own in self._layers if isinstance(own, nn.GroupNorm) and "forward" not in vars(own)]
        norms = norms if self._parameters[0].is_cuda else []
        for norm in norms:
            vars(norm)["forward"] = functools.partial(self._normalised, norm)
        try:  # a model that computes parts of its forward pass once more asks norms in the backward pass too
            losses, total, heard = self._forwards(features, labels, norms)
            calls = [call for own in heard.values() for call in own]
            # A norm's own gradient is asked for so that the pass comes by, whatever lies before it.
            targets = [target for call in calls for target in call.targets]
            found: list[Tensor | None] = [None] * len(targets)
            for call in calls:
                if isinstance(call, _Passed):
                    call.begin()
            if targets and total.requires_grad:
                found = list(torch.autograd.grad(total, targets, allow_unused=True))
            found.reverse()
            for call in calls:
                call.hear(*(found.pop() for _ in call.targets))
        finally:
            for norm in norms:
                del vars(norm)["forward"]
            for passed in self._passing:
                passed.leave()
            self._passing = []
        calls = [call for call in calls if call.given]
        heard = {layer: [call for call in own if call.given] for layer, own in heard.items()}
        silent = (unit for unit in self._units if not any(heard[layer] for layer in unit.layers))
        idle = {id(parameter) for unit in silent for parameter in unit.parameters}
        if idle and any(id(leaf) in idle for leaf in leaves(total)):
            raise NoRule(OUTSIDE)
        counts = torch.tensor([len(heard[layer]) for layer in self._layers], device="cpu")
        return [losses.detach(), *(part for call in calls for part in call.given), counts]

    def _forwards(
        self, features: Tensor, labels: Tensor, norms: Sequence[nn.Module]
    ) -> tuple[Tensor, Tensor, dict[nn.Module, list[_Heard]]]:
        """Return each example's loss, their sum, and the calls of each layer; ``norms`` tell of theirs themselves."""
        self._heard = {layer: [] for layer in self._layers}
        handles = [layer.register_forward_hook(self._listen) for layer in self._layers if layer not in norms]
        self._as_the_model(listens=True)
        try:
            with torch.enable_grad():
                with images.Natively() if self.natively else nullcontext():
                    outputs = self.module(features)
                losses = self._loss(outputs, labels)
                total = losses.sum()
        finally:
            for handle in handles:
                handle.remove()
            heard, self._heard = self._heard, {}
        for layer, calls in heard.items():
            wrong = [call.shape for call in calls if call.shape[:1] != labels.shape[:1]]
            if wrong:
                raise NoRule(f"{type(layer).__name__} sees a value of shape {tuple(wrong[0])}, not one row per example")
        return losses, total, heard

    def _as_the_model(self, *, listens: bool) -> None:
        for own, original in self._modes:
            own.training = original.training
        for layer in self._layers:
            if isinstance(layer, Hidden):
                layer.listens = listens

    def summed(self, passed: list[Tensor], real: Tensor | None = None) -> tuple[list[Tensor], Tensor, Tensor | None]:
        """Return what :meth:`sums` returns of what :meth:`passed` told; the list is empty afterwards."""
        losses, told, counts = passed[0], passed[1:-1], passed[-1].tolist()
        passed.clear()
        with torch.no_grad():
            joint = self._joints.of(told, tuple(counts), lambda: self._blocks(told, counts))
            if joint is not None:
                found = joint.clipped(told, lambda squares: self._clipping.factors(squares, real))
                return unflattened(found, self._parameters), losses, None
            kept = self._kept(told, counts, len(losses))
            factors = self._clipping.factors(torch.stack([own.squares for own in kept]), real)
            totals: list[Tensor | None] = [None] * len(self._parameters)
            for places, layer, row in zip(self._places, kept, factors, strict=True):
                for place, total in zip(places, layer.weighted(row), strict=True):
                    totals[place] = total
            doubts = [own.doubtful for own in kept if own.doubtful is not None]
        assert all(total is not None for total in totals)
        return totals, losses, torch.stack(doubts).any() if doubts else None  # type: ignore[return-value]  # none is None

    def _kept(self, told: list[Tensor], counts: list[int], examples: int) -> list[LayerGradients]:
        """Return what is known of each unit's gradients; the list is empty afterwards."""
        held = sum(part.numel() for part in told)
        told.reverse()
        calls = {
            layer: [tuple(told.pop() for _ in range(parts)) for _ in range(count)]
            for layer, parts, count in zip(self._layers, self._told, counts, strict=True)
        }
        kept = [unit.rule([calls.pop(layer) for layer in unit.layers], examples) for unit in self._units]
        room = _SMALL * held
        twice = [gradients for gradients in kept if isinstance(gradients, Twice | Passing)]
        for gradients in sorted(twice, key=lambda own: own.positions, reverse=True):
            if gradients.numbers <= room:
                gradients.keep()
                room -= gradients.numbers
        return kept

    def _blocks(self, told: Sequence[Tensor], counts: Sequence[int]) -> list[Block] | None:
        """Return how native kernels read what was told; None unless every layer met one position per example."""
        if len(self._layers) != len(self._units) or any(count != 1 for count in counts):
            return None
        blocks: list[Block] = []
        at = 0
        for number, (layer, parts, places) in enumerate(zip(self._layers, self._told, self._places, strict=True)):
            own = told[at : at + parts]
            found = _blocks_of(layer, number, at, own, places)
            if found is None:
                return None
            blocks += found
            at += parts
        return blocks

    def _listen(self, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not inputs:
            raise NoRule(f"{type(layer).__name__} is given its input by keyword")
        if isinstance(layer, Hidden):
            for part, met, tap in layer.heard:
                if part in self._heard and tap.grad_fn is not None:
                    self._heard[part].append(_Kept(met, get_gradient_edge(tap)))
            layer.heard = []
            return
        if output.grad_fn is None:
            return  # somebody has turned gradients off: this call has none
        # The edge is taken now: an operation in place on the output would move the tensor's own.
        edge = get_gradient_edge(output)
        if isinstance(layer, NORMS):
            self._passing.append(_Passed(layer, inputs[0].detach(), edge))
            self._heard[layer].append(self._passing[-1])
        else:
            self._heard[layer].append(_Kept(inputs[0].detach(), edge))

    def _normalised(self, layer: nn.GroupNorm, *inputs: Any, **named: Any) -> Tensor:
        """Return a group norm's outputs, by a kernel of which each example's gradients come back where there is one."""
        own = dict(layer.named_parameters(recurse=False))
        fits = len(inputs) == 1 and not named and inputs[0].shape[1:2] == (layer.num_channels,)
        fits = fits and all(part.dtype == torch.float32 and part.is_contiguous() for part in own.values())
        if not fits or not group_norm.reads(inputs[0], layer.num_groups):
            output: Tensor = nn.GroupNorm.forward(layer, *inputs, **named)
            if layer in self._heard:
                self._listen(layer, inputs, output)
            return output
        value: Tensor = inputs[0]
        each = {
            name: part.detach().expand(len(value), -1).requires_grad_(part.requires_grad) for name, part in own.items()
        }
        output = group_norm.normalised(value, layer.num_groups, each.get("weight"), each.get("bias"), layer.eps)
        if output.grad_fn is not None and layer in self._heard:
            self._heard[layer].append(_Scaled(value, [each[name] for name in ("weight", "bias") if name in each]))
        return output


class _Kept:
    """A call of a layer, whose input is kept until the gradient of its output is there."""

    def __init__(self, value: Tensor, edge: GradientEdge) -> None:
        self.shape = value.shape
        self.targets = [edge]
        self._value = value
        self.given: Call | tuple[()] = ()  # nothing until a gradient comes

    def hear(self, gradient: Tensor | None) -> None:
        if gradient is not None:
            self.given = self._value, gradient


class _Scaled:
    """A call of a norm in which each example had a scale and a shift of its own."""

    def __init__(self, value: Tensor, own: Sequence[Tensor]) -> None:
        self.shape = value.shape
        self.targets = [get_gradient_edge(part) for part in own if part.requires_grad]
        self.given: tuple[Tensor, ...] = ()

    def hear(self, *gradients: Tensor | None) -> None:
        self.given = tuple(gradient for gradient in gradients if gradient is not None)
        assert len(self.given) in (0, len(gradients))  # one kernel has both


class _Passed:
    """A call of a norm: its gradients are formed when the backward pass comes by, and its input is let go.

    A model may take backward passes of its own on the way forward; they come by before the one that counts begins. What
    listens and what it listens to hold each other until a gradient was heard: as long as that lives, autograd computes
    with the parameter on the stream on which it once did, and no graph can be captured on another.
    """

    def __init__(self, layer: nn.Module, value: Tensor, edge: GradientEdge) -> None:
        self.shape = value.shape
        self.targets = [get_gradient_edge(trained(layer)[0])]
        self._layer = layer
        self._value: Tensor | None = value
        self._node: Any = edge.node
        self._place = edge.output_nr
        self._begun = False
        self.given: tuple[Tensor, ...] = ()
        self._listens = None if images.is_norm(edge.node) else edge.node.register_prehook(self)

    def begin(self) -> None:
        """Listen from now on."""
        self._begun = True
        if images.is_norm(self._node):
            images.forget(self._node)

    def __call__(self, gradients: Sequence[Tensor | None]) -> None:
        if not self._begun:
            return
        assert self._value is not None
        gradient = gradients[self._place]
        if gradient is not None:
            with torch.no_grad():
                self.given = formed(self._layer, self._value, gradient)
        self._value = None

    def hear(self, gradient: Tensor | None) -> None:
        """Take what was formed: the gradient of the batch, of all calls together, is of no use."""
        if images.is_norm(self._node):
            rows = images.formed(self._node)
            self.given = tuple(own for own, asked in zip(rows, trains(self._layer), strict=False) if asked)

    def leave(self) -> None:
        """Listen no more, and hold nothing of the pass."""
        if self._listens is not None:
            self._listens.remove()
        self._value = self._node = self._listens = None


_Heard = _Kept | _Scaled | _Passed


def _blocks_of(
    layer: nn.Module, unit: int, at: int, told: Sequence[Tensor], places: Sequence[int]
) -> list[Block] | None:
    """Return the blocks of one layer, of which one call was told; None where a kernel can't read it."""
    examples = len(told[0])
    table = isinstance(layer, nn.Embedding)
    if not all(in_rows(part) for part in told) or any(part.dtype != torch.float32 for part in told[table:]):
        return None
    if isinstance(layer, NORMS):
        widths = [part[0].numel() for part in told]
        return [
            Block(unit, "formed", at + i, at + i, width, width, place)
            for i, (width, place) in enumerate(zip(widths, places, strict=True))
        ]
    width, height = told[0].shape[-1], told[1].shape[-1]
    if told[1].numel() != examples * height:
        return None
    if isinstance(layer, nn.Embedding):
        fits = layer.padding_idx is None and told[0].dtype == torch.int64
        return [Block(unit, "table", at, at + 1, len(layer.weight), height, places[0])] if fits else None
    if type(layer) is not nn.Linear:
        return None
    weight, bias = trains(layer)
    blocks = [Block(unit, "outer", at, at + 1, width, height, places[0])] if weight else []
    return [*blocks, Block(unit, "formed", at + 1, at + 1, height, height, places[-1])] if bias else blocks


@dataclass(frozen=True, kw_only=True)
class _Unit:
    """A layer, or several that share their weight."""

    layers: list[nn.Module]

    @property
    def parameters(self) -> list[nn.Parameter]:
        """What trains, each parameter once."""
        return list(dict.fromkeys(p for layer in self.layers for p in trained(layer)))

    def rule(self, calls: Sequence[Sequence[Any]], examples: int) -> LayerGradients:
        """Return what is known of the gradients of so many examples, given each layer's calls."""
        if not any(calls):
            return Nothing(examples=examples, parameters=self.parameters)
        if len(self.layers) == 1:
            return _RULES[type(self.layers[0])](self.layers[0], calls[0])
        return shared(self.layers, calls, examples)


def _units(model: nn.Module) -> list[_Unit]:
    """Return the layers that train, those that share a weight together."""
    units: list[_Unit] = []
    owner: dict[int, tuple[str, _Unit]] = {}
    for name, layer in model.named_modules():
        own = [p for p in layer.parameters(recurse=False) if p.requires_grad]
        if not own:
            continue
        kind = type(layer).__name__
        if type(layer) not in _RULES:
            raise NoRule(f"{kind} {name or '(the model itself)'} has no rule")
        if len(trained(layer)) < len(own):
            raise NoRule(f"{kind} {name or '(the model itself)'} has parameters beside its weight and bias")
        if isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse):
            raise NoRule(f"{kind} {name} renormalises or rescales its table")
        others = [owner[id(p)] for p in own if id(p) in owner]
        unit = others[0][1] if others else _Unit(layers=[])
        unit.layers.append(layer)
        if others:
            weights = {id(part.weight) for part in unit.layers}
            if len(others) > 1 or len(weights) > 1 or any(type(part) not in _SHARE for part in unit.layers):
                raise NoRule(f"{name} and {others[0][0]} share parameters in a way that has no rule")
        else:
            units.append(unit)
        owner |= {id(p): (name, unit) for p in own if id(p) not in owner}
    return units
