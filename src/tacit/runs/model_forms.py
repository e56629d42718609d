"""Which forms a model gets on this machine, and why no faster ones: tried on random examples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from tacit.errors import ConfigError, TacitError
from tacit.limits import memory
from tacit.shares import Shares
from tacit.tasks import models
from tacit.training.batches import Holdings
from tacit.training.cohort import CohortTrainer
from tacit.training.forms import cohort_trainer
from tacit.training.outputs import as_tensors
from tacit.training.private.clipping import Clipping
from tacit.training.private.gradient import PrivateGradient
from tacit.training.settings import LocalTraining, cross_entropy
from tacit.training.trial import check_batches, check_fit, check_trains

_SHARE = 0.5  # of the memory, for examples, and for copies of the model
_COPIES = 4  # its own, one that trains, its gradient and its update


@dataclass(frozen=True, kw_only=True)
class Forms:
    """The answer: of training a cohort, and of DP-SGD; a reason is empty where there is no faster form."""

    parameters: int
    form: str
    form_reason: str
    workers: int
    private_form: str
    private_reason: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def forms_of(
    name: str,
    *,
    shape: Sequence[int],
    classes: int,
    words: int | None = None,
    clients: int = 100,
    examples: int = 60,
    batch_size: int = 10,
    device: torch.device | None = None,
) -> Forms:
    """Build a model, have a client take its steps, and say in which form it would train.

    Args:
        name: one of Tacit's models, or ``package.module:Class``.
        shape: of one example.
        classes: how many there are.
        words: where examples are whole numbers (words, characters): how many there are.
        clients: how many hold data.
        examples: how many each of them holds.
        batch_size: how many a step takes.
        device: where it would train.

    Raises:
        TacitError: a run would refuse the model, or stop at it.
    """
    place = device or torch.device("cpu")
    bytes_each = 4 if words is None else 8
    _check_room(f"{examples:,} examples of shape {tuple(shape)} take", bytes_each * examples * math.prod(shape))
    module = models.build(name, shape=shape, classes=classes, seed=0)
    tensors = (*module.parameters(), *module.buffers())
    if not any(is_lazy(tensor) for tensor in tensors):
        _check_room(f"To train model {name!r} takes", _COPIES * sum(tensor.nbytes for tensor in tensors))
    try:
        draw = torch.Generator().manual_seed(0)
        size = (examples, *shape)
        features = torch.randn(size, generator=draw) if words is None else torch.randint(0, words, size, generator=draw)
        labels = torch.randint(0, classes, (examples,), generator=draw)
        module, features, labels = module.to(place), features.to(place), labels.to(place)
        with as_tensors(module, features):
            return _tried(module, features, labels, clients, batch_size)
    except TacitError:
        raise
    except Exception as error:  # the model may be somebody else's code, and do what no step of training can
        raise ConfigError(
            f"Model {name!r} can't train: {_first_line(error)}. A run would stop at it as well. Look which part of its "
            "pass takes or returns something else than dense tensors, or stops gradients."
        ) from error


def _check_room(what: str, needed: int) -> None:
    room = memory()
    if room is not None and needed > _SHARE * room:
        raise ConfigError(
            f"{what} {needed / 1e9:,.0f} GB, and this machine has {room / 1e9:,.0f} GB for data and model. Ask with "
            "fewer --examples or --classes, or a smaller --shape."
        )


def _tried(module: nn.Module, features: Tensor, labels: Tensor, clients: int, batch_size: int) -> Forms:
    """Check a model as a run does, and take a client's steps."""
    check_fit(module, cross_entropy, features, labels, whose="random examples")
    check_trains(module, cross_entropy, features, labels)
    check_batches(module, features, [len(labels)], batch_size)
    holdings = Holdings(features=features, labels=labels, rows=Shares.alike(len(labels), clients=clients))
    settings = LocalTraining(epochs=1, batch_size=batch_size, lr=0.1)
    trainer = cohort_trainer(module=module, holdings=holdings, settings=settings, loss=cross_entropy)
    with closing(trainer):
        _take_steps(trainer, module)
        private, why = _private(module, features[:batch_size], labels[:batch_size])
        return Forms(
            parameters=trainer.layout.size,
            form=trainer.form,
            form_reason=trainer.reason,
            workers=trainer.workers,
            private_form=private,
            private_reason=why,
        )


def _take_steps(trainer: CohortTrainer, module: nn.Module) -> None:
    start = trainer.layout.read(module).cpu().numpy()
    trainer.train(start, [0], np.zeros(1, np.int64), 1, lambda _client, _update, _loss: None)


def _private(module: nn.Module, features: Tensor, labels: Tensor) -> tuple[str, str]:
    """Return the form of DP-SGD and why it is no faster one; ``none`` and why where it would stop."""
    try:
        gradient = PrivateGradient(
            model=module, loss=cross_entropy, clipping=Clipping(bound=1.0), example=(features[:6], labels[:6])
        )
        gradient.sums(features, labels)
    except ConfigError as error:
        return "none", str(error)
    except Exception as error:  # as in a cohort
        return "none", _first_line(error)
    return gradient.form, gradient.reason


def _first_line(error: Exception) -> str:
    said = next(iter(str(error).splitlines()), "").rstrip(".")
    return f"{type(error).__name__}{said and f': {said}'}"
