"""The rules of layer, RMS and group norm: gradients of scale and shift, formed while the backward pass is there.

They are a few numbers per example. Formed at once they need neither the norm's input nor the gradient of its output
afterwards, which are as large as any others of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.training.private.ghost_norms import Formed, LayerGradients, shapes, trains


def formed(layer: nn.Module, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Return each example's gradients of what trains, given a call's input and the gradient of its output."""
    weight, bias = trains(layer)
    normal, summed = _RULES[type(layer)](layer)
    return (*((summed(b * normal(a)),) if weight else ()), *((summed(b),) if bias else ()))


def over_calls(layer: nn.Module, calls: Sequence[tuple[Tensor, ...]]) -> LayerGradients:
    """Return the gradients of a norm, given what was formed of each of its calls."""
    gradients = calls[0] if len(calls) == 1 else tuple(torch.stack(own).sum(0) for own in zip(*calls, strict=True))
    return Formed(gradients=gradients, shapes=shapes(layer))


_Parts = tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]  # what normalises, and what sums over places


def _layer_norm(layer: nn.LayerNorm) -> _Parts:
    shape = layer.normalized_shape
    return lambda a: F.layer_norm(a, shape, eps=layer.eps), lambda value: _summed_over(value, shape)


def _rms_norm(layer: nn.RMSNorm) -> _Parts:
    shape = layer.normalized_shape
    return lambda a: F.rms_norm(a, shape, eps=layer.eps), lambda value: _summed_over(value, shape)


def _group_norm(layer: nn.GroupNorm) -> _Parts:
    """One number per channel."""
    normal = lambda a: F.group_norm(a, layer.num_groups, eps=layer.eps)  # noqa: E731 - as those above
    return normal, lambda value: value.reshape(*value.shape[:2], -1).sum(2)


def _summed_over(value: Tensor, shape: Sequence[int]) -> Tensor:
    """Return each example's sum over all places that a norm's last axes, of ``shape``, stand at."""
    return value.reshape(len(value), -1, *shape).sum(1)


_RULES: dict[type[nn.Module], Callable[[Any], _Parts]] = {
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _rms_norm,
    nn.GroupNorm: _group_norm,
}
NORMS = tuple(_RULES)
