"""A trial of a model and its loss, so that what does not fit is said before training begins."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.training.settings import Loss, cross_entropy


def check_fit(module: nn.Module, loss: Loss, features: Tensor, labels: Tensor) -> None:
    """Take two examples through the model and the loss, so that what does not fit is said before a round begins."""
    few = slice(0, 2)
    modes = {part: part.training for part in module.modules()}
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            device = next((p.device for p in module.parameters()), features.device)
            outputs = module.eval()(features[few].to(device))
            if loss is cross_entropy and labels.dtype == torch.int64 and outputs.dim() == 2:
                _check_labels(labels, outputs.shape[1])
            losses = loss(outputs, labels[few].to(device))
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise ConfigError(
            f"The model and the loss can't take examples of shape {tuple(features.shape[1:])} ({features.dtype}) with "
            f"labels of {labels.dtype}: {(str(error).splitlines() or [repr(error)])[0].rstrip('.')}."
        ) from error
    finally:
        for part, training in modes.items():
            part.training = training
    if losses.shape != labels[few].shape[:1]:
        raise ConfigError(
            f"Expected the loss to return one number an example, shape {tuple(labels[few].shape[:1])}, "
            f"got {tuple(losses.shape)}. Use reduction='none'."
        )


def _check_labels(labels: Tensor, outputs: int) -> None:
    if not 0 <= labels.min() <= labels.max() < outputs:
        raise ConfigError(
            f"The model has {outputs} outputs, but labels run from {labels.min()} to {labels.max()}. "
            "Number the classes from 0, and give the model one output a class."
        )
