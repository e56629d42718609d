"""A trial of a model and its loss, so that what does not fit is said before training begins."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tacit.errors import ConfigError, DataError, TacitError
from tacit.training.outputs import tensor_of
from tacit.training.private.probe import in_full_precision
from tacit.training.settings import Loss, cross_entropy, gives_logits

_FLOATS = " Whole numbers stay whole, as an embedding needs them: give features as floats, such as x.astype('float32')."


def check_fit(
    module: nn.Module, loss: Loss, features: Tensor, labels: Tensor, *, whose: str = "the training data"
) -> None:
    """Take two examples through the model and the loss, so that what does not fit is said before a round begins."""
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"Expected a torch.nn.Module as the model, got {getattr(module, '__name__', type(module).__name__)}."
            f"{' Make one of that class first.' if isinstance(module, type) else ''}"
        )
    few = slice(0, 2)
    modes = {part: part.training for part in module.modules()}
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            device = next((p.device for p in module.parameters()), features.device)
            outputs = module.eval()(features[few].to(device))
            outputs = tensor_of(outputs)
            if loss is cross_entropy and labels.dtype == torch.int64 and outputs.dim() == 2:
                _check_labels(labels, outputs.shape[1], whose)
            if gives_logits(loss):
                _check_binary(labels, outputs, whose)
            losses = loss(outputs, labels[few].to(device))
    except TacitError:
        raise
    except Exception as error:  # the model and the loss may be somebody else's code
        raise ConfigError(
            f"The model and the loss can't take examples of shape {tuple(features.shape[1:])} ({features.dtype}) with "
            f"labels of {labels.dtype}, as {whose} have: "
            f"{(str(error).splitlines() or [repr(error)])[0].rstrip('.')} ({type(error).__name__})."
            f"{_FLOATS if 'dtype' in str(error) and not features.is_floating_point() else ''}"
        ) from error
    finally:
        for part, training in modes.items():
            part.training = training
    if not isinstance(losses, Tensor) or losses.shape != labels[few].shape[:1]:
        found = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise ConfigError(
            f"Expected the loss to return one number per example, shape {tuple(labels[few].shape[:1])}, "
            f"got {found}. Use reduction='none'."
        )


def check_trains(module: nn.Module, loss: Loss, features: Tensor, labels: Tensor) -> None:
    """Refuse a model of which a part is frozen where no gradient reaches the rest: nothing but noise would move it."""
    trained = [p for p in module.parameters() if p.requires_grad]
    if len(trained) == len(list(module.parameters())) or not trained:
        return
    few = slice(0, 8)
    own = copy.deepcopy(module).eval()
    trained = [p for p in own.parameters() if p.requires_grad]
    with torch.enable_grad(), torch.random.fork_rng(devices=[]), in_full_precision():
        total = loss(tensor_of(own(features[few].to(trained[0].device))), labels[few].to(trained[0].device)).sum()
        found = torch.autograd.grad(total, trained, allow_unused=True) if total.requires_grad else [None]
    if not any(gradient is not None and bool(gradient.count_nonzero()) for gradient in found):
        raise ConfigError(
            f"No gradient reaches the {sum(p.numel() for p in trained):,} numbers of {type(module).__name__} that are "
            "to train: the first examples give zeros for all of them. Adapters that are switched off, not among the "
            "layers that run, or zero in both of their factors never learn. Switch them on, or let other parameters "
            "train (requires_grad_())."
        )


def lone_norms(module: nn.Module, features: Tensor) -> list[nn.Module]:
    """Return the batch norms of a model that can't train on a batch of one example, which has nothing to compare with.

    >>> len(lone_norms(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), torch.zeros(1, 2)))
    1
    """
    if not any(isinstance(part, _BatchNorm) for part in module.modules()):
        return []
    own = copy.deepcopy(module).train()  # in which some norms may stay as they are, by the model's own train()
    pairs = zip(module.modules(), own.modules(), strict=True)
    norms: list[nn.Module] = [part for part, other in pairs if isinstance(part, _BatchNorm) and other.training]
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            own(features[:1].to(next(module.parameters()).device))
    except ValueError:
        return norms
    return []


def check_batches(module: nn.Module, features: Tensor, sizes: Sequence[int], batch_size: int) -> None:
    """Refuse a batch of one example where batch norm keeps no running statistics that could stand in for the batch's.

    Args:
        module: the model.
        features: some examples.
        sizes: how many examples each client holds.
        batch_size: how many a step takes; the last step of a pass takes what is left.
    """
    alone = next((client for client, size in enumerate(sizes) if size % batch_size == 1 or batch_size == 1), None)
    if alone is None or all(getattr(norm, "track_running_stats", True) for norm in lone_norms(module, features)):
        return
    raise DataError(
        f"Client {alone} holds {sizes[alone]} examples: in batches of {batch_size} one is left alone, which batch norm "
        "without running statistics can't train on. Choose another train.batch_size, or put group norm in its place: "
        "model = tacit.fix(model)."
    )


def _check_labels(labels: Tensor, outputs: int, whose: str) -> None:
    if not 0 <= labels.min() <= labels.max() < outputs:
        raise ConfigError(
            f"The model has {outputs} outputs, but labels run from {labels.min()} to {labels.max()} in {whose}. "
            "Number the classes from 0, and give the model one output per class."
        )


def _check_binary(labels: Tensor, outputs: Tensor, whose: str) -> None:
    if outputs[0].numel() != 1 or labels[0].numel() != 1:
        raise ConfigError(
            f"The loss binary-cross-entropy takes one output per example, the model has {outputs[0].numel()}. Use "
            "loss='cross-entropy', or a model with one output."
        )
    if not bool(((labels == 0) | (labels == 1)).all()):
        raise ConfigError(
            f"The loss binary-cross-entropy takes labels 0 and 1, but labels run from {labels.min()} to {labels.max()} "
            f"in {whose}."
        )
