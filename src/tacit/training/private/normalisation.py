"""Layers whose statistics mix the examples of a batch: refused, and a way to replace them."""

from __future__ import annotations

import copy

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy

from tacit.errors import ConfigError

_GROUPS = 32  # Wu & He 2018


OF_EXAMPLES = (
    "it normalises each example by the others of its batch, or keeps statistics of them, so that no clip bounds what "
    "one example does"
)
OF_CLIENTS = (
    "its running statistics would be clipped and noised like weights, and a variance with noise on it can be below zero"
)


def check_normalisation(model: nn.Module, *, why: str = OF_EXAMPLES) -> None:
    """Refuse batch norm, and instance norm that keeps running statistics."""
    for name, layer in model.named_modules():
        kept = isinstance(layer, _InstanceNorm) and layer.track_running_stats
        if kept or (isinstance(layer, _BatchNorm) and not isinstance(layer, _InstanceNorm)):
            raise ConfigError(
                f"The model has {type(layer).__name__} at {name!r}, which can't train under differential privacy: "
                f"{why}. Put group norm in its place: model = tacit.fix(model)."
            )


def fix(model: nn.Module) -> nn.Module:
    """Return a copy of ``model`` that can train under differential privacy: with group norm in place of batch norm.

    >>> fix(nn.Sequential(nn.Linear(4, 48), nn.BatchNorm1d(48)))[1].num_groups
    24
    """
    if not isinstance(model, nn.Module):
        raise ConfigError(f"Expected a torch.nn.Module to fix, got {getattr(model, '__name__', type(model).__name__)}.")
    if any(is_lazy(value) for value in (*model.parameters(), *model.buffers())):
        raise ConfigError(
            "The model has lazy layers whose sizes are not known yet. Call it on a batch before fixing it."
        )
    return without_batch_norm(model)


def without_batch_norm(model: nn.Module) -> nn.Module:
    """Return a copy of ``model`` with group norm (Wu & He 2018) in the place of every batch norm.

    A layer of c channels gets the largest number of groups up to 32 that divides c; scale and shift are taken over,
    running statistics are left behind. Instance norm keeps its place without running statistics.

    >>> without_batch_norm(nn.Sequential(nn.BatchNorm2d(48)))[0].num_groups
    24
    """
    return _converted(copy.deepcopy(model))


def _converted(layer: nn.Module) -> nn.Module:
    if isinstance(layer, _InstanceNorm):
        layer.track_running_stats = False
        layer.running_mean = layer.running_var = layer.num_batches_tracked = None
        return layer
    if isinstance(layer, _BatchNorm):
        return _grouped(layer)
    for name, child in layer.named_children():
        setattr(layer, name, _converted(child))
    return layer


def _grouped(layer: _BatchNorm) -> nn.GroupNorm:
    channels = layer.num_features
    groups = max(size for size in range(1, min(_GROUPS, channels) + 1) if channels % size == 0)
    if groups == channels and channels > 1:  # one channel per group would be instance norm, and erase vectors
        groups = max(size for size in range(1, channels) if channels % size == 0)
    norm = nn.GroupNorm(groups, channels, eps=layer.eps, affine=layer.affine)
    if layer.affine:
        norm.weight.data = layer.weight.data.clone()
        norm.bias.data = layer.bias.data.clone()
    return norm
