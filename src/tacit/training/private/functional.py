"""Clipped sums by :mod:`torch.func`: every example's gradient is formed; any layer that can be mapped over examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.func import functional_call, grad_and_value, vmap

from tacit.training.batchable import Explicit, batchable, names_in, pairs, places_in
from tacit.training.parameters import REACHES_PAST, reaches_past
from tacit.training.private import double
from tacit.training.private.book_keeping import NoRule
from tacit.training.private.clipping import Clipping
from tacit.training.private.joint import Block, Joints, in_rows, unflattened
from tacit.training.recurrence import Hidden
from tacit.training.settings import Loss


class Functional:
    """Sums clipped per-example gradients of any model that ``vmap`` can map; memory grows with batch times model.

    Attributes:
        module: what is mapped: the model, or what it consists of.
    """

    name = "functional"

    def __init__(self, model: nn.Module, loss: Loss, clipping: Clipping) -> None:
        self.module = batchable(model)
        for part in self.module.modules():
            if isinstance(part, Hidden):
                part.unrolled = True
        self._modes = pairs(self.module, model)
        self._loss = loss
        self._clipping = clipping
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        names = names_in(self.module, model, [name for name, _ in named])
        self._trained = dict(zip(names, (p for _, p in named), strict=True))
        self._places = [(place, names[number]) for place, number in places_in(self.module, names)]
        self._groups = _by_layer([name for name, _ in named])
        self._joints = Joints()
        self._mapped: Callable[..., Any] = vmap(grad_and_value(self._one), in_dims=(None, 0, 0), randomness="different")

    def sums(
        self, features: Tensor, labels: Tensor, real: Tensor | None = None
    ) -> tuple[list[Tensor], Tensor, Tensor | None]:
        """Return what :meth:`BookKeeping.sums` returns."""
        return self.summed(self.passed(features, labels), real)

    def passed(self, features: Tensor, labels: Tensor) -> list[Tensor]:
        """Return each example's loss, and its gradients, with the examples first."""
        gradients, losses = self.gradients(features, labels)
        return [losses, *gradients]

    def summed(self, passed: list[Tensor], real: Tensor | None = None) -> tuple[list[Tensor], Tensor, Tensor | None]:
        """Return what :meth:`sums` returns of what :meth:`passed` told."""
        losses, *gradients = passed
        with torch.no_grad():
            joint = self._joints.of(gradients, None, lambda: self._blocks(gradients))
            if joint is not None:
                total = joint.clipped(gradients, lambda squares: self._clipping.factors(squares, real))
                return unflattened(total, [g[0] for g in gradients]), losses, None
            squares = [double.squares(gradient) for gradient in gradients]
            layers = torch.stack([torch.stack([squares[i] for i in group]).sum(0) for group in self._groups])
            rows = self._clipping.factors(layers, real)
            factors = {i: rows[line] for line, group in enumerate(self._groups) for i in group}
            sums = [
                double.combined(factors[i], gradient).view(gradient.shape[1:]) for i, gradient in enumerate(gradients)
            ]
        return sums, losses, None

    def check_reached(self, features: Tensor) -> None:
        """Refuse a model in whose place no other parameters can be put."""
        given = {name: p.detach().requires_grad_() for name, p in self._trained.items()}
        state = {place: given[name] for place, name in self._places}
        with torch.enable_grad(), Explicit():
            outputs = functional_call(self.module, state, (features,), tie_weights=False)
        if reaches_past(outputs, given.values()):
            raise NoRule(REACHES_PAST)

    def _blocks(self, gradients: Sequence[Tensor]) -> list[Block] | None:
        """Return how native kernels read the gradients; None where they can't."""
        if not all(in_rows(own) and own.dtype == torch.float32 for own in gradients):
            return None
        units = {i: unit for unit, group in enumerate(self._groups) for i in group}
        return [Block(units[i], "formed", i, i, own[0].numel(), own[0].numel(), i) for i, own in enumerate(gradients)]

    def norms(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return the norm of each example's gradient."""
        gradients, _ = self.gradients(features, labels)
        return torch.stack([double.squares(gradient) for gradient in gradients]).sum(0).sqrt()

    def gradients(self, features: Tensor, labels: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return every example's gradient, ``(examples, ...)`` per parameter, and its loss."""
        detached = {name: p.detach() for name, p in self._trained.items()}
        for own, original in self._modes:
            own.training = original.training
        with Explicit(), self._left_as_they_are():
            gradients, losses = self._mapped(detached, features, labels)
        return [gradients[name].detach() for name in self._trained], losses.detach()

    @contextmanager
    def _left_as_they_are(self) -> Iterator[None]:
        """Put back where a mapped pass left a value of its own in the model: it means nothing afterwards.

        Raises:
            NoRule: it is in the place of a buffer, which is the model's.
        """
        before = [(part, dict(vars(part)), dict(part._buffers)) for part in self.module.modules()]
        replaced = ""
        try:
            yield
        finally:
            for part, attributes, buffers in before:
                for name in [name for name, own in vars(part).items() if _is_mapped(own)]:
                    del vars(part)[name]
                    vars(part).update({name: attributes[name]} if name in attributes else {})
                for name in [name for name, own in part._buffers.items() if _is_mapped(own)]:
                    part._buffers[name] = buffers.get(name)
                    replaced = name
        if replaced:
            raise NoRule(f"a pass puts another tensor in the place of the buffer {replaced!r}")

    def _one(self, parameters: dict[str, Tensor], features: Tensor, label: Tensor) -> Tensor:
        state = {place: parameters[name] for place, name in self._places}
        outputs = functional_call(self.module, state, (features[None],), tie_weights=False)
        return self._loss(outputs, label[None]).sum()


def _is_mapped(value: Any) -> bool:
    return isinstance(value, Tensor) and is_functorch_wrapped_tensor(value)


def _by_layer(names: list[str]) -> list[list[int]]:
    """Return the places of parameters that belong to one layer, by their names."""
    groups: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        groups.setdefault(name.rpartition(".")[0], []).append(place)
    return list(groups.values())
