"""A trial of a model and its loss, so that what does not fit is said before training begins."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tacit.errors import ConfigError, DataError, TacitError
from tacit.training.settings import Loss, cross_entropy


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
            if not isinstance(outputs, Tensor):
                raise ConfigError(f"Expected the model to return a tensor, got {type(outputs).__name__}.")  # noqa: TRY301
            if loss is cross_entropy and labels.dtype == torch.int64 and outputs.dim() == 2:
                _check_labels(labels, outputs.shape[1], whose)
            losses = loss(outputs, labels[few].to(device))
    except TacitError:
        raise
    except Exception as error:  # the model and the loss may be somebody else's code
        raise ConfigError(
            f"The model and the loss can't take examples of shape {tuple(features.shape[1:])} ({features.dtype}) with "
            f"labels of {labels.dtype}, as {whose} have: "
            f"{(str(error).splitlines() or [repr(error)])[0].rstrip('.')} ({type(error).__name__})."
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


def check_batches(module: nn.Module, features: Tensor, sizes: Sequence[int], batch_size: int) -> None:
    """Refuse batches of one example where the model normalises over a batch and one has nothing to be compared with.

    Args:
        module: the model.
        features: some examples.
        sizes: how many examples each client holds.
        batch_size: how many a step takes; the last step of a pass takes what is left.
    """
    alone = next((client for client, size in enumerate(sizes) if size % batch_size == 1 or batch_size == 1), None)
    if alone is None or not any(isinstance(part, _BatchNorm) for part in module.modules()):
        return
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            copy.deepcopy(module).train()(features[:1].to(next(module.parameters()).device))
    except ValueError as error:
        raise DataError(
            f"Client {alone} holds {sizes[alone]} examples: in batches of {batch_size} one is left alone, which the "
            f"model's batch normalisation can't train on ({error}). Choose another train.batch_size, give the client "
            "more examples, or use nn.GroupNorm."
        ) from error


def _check_labels(labels: Tensor, outputs: int, whose: str) -> None:
    if not 0 <= labels.min() <= labels.max() < outputs:
        raise ConfigError(
            f"The model has {outputs} outputs, but labels run from {labels.min()} to {labels.max()} in {whose}. "
            "Number the classes from 0, and give the model one output per class."
        )
