"""Which forms a model gets on this machine, and why no faster ones: tried on random examples."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from tacit.errors import ConfigError
from tacit.tasks import models
from tacit.training.batches import Holdings
from tacit.training.forms import cohort_trainer
from tacit.training.private.clipping import Clipping
from tacit.training.private.gradient import PrivateGradient
from tacit.training.settings import LocalTraining, cross_entropy
from tacit.training.trial import check_fit


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
    """Build a model and say in which form it would train.

    Args:
        name: one of Tacit's models, or ``package.module:Class``.
        shape: of one example.
        classes: how many there are.
        words: where examples are whole numbers (words, characters): how many there are.
        clients: how many hold data.
        examples: how many each of them holds.
        batch_size: how many a step takes.
        device: where it would train.
    """
    place = device or torch.device("cpu")
    module = models.build(name, shape=shape, classes=classes, seed=0).to(place)
    draw = torch.Generator().manual_seed(0)
    size = (examples, *shape)
    features = torch.randn(size, generator=draw) if words is None else torch.randint(0, words, size, generator=draw)
    labels = torch.randint(0, classes, (examples,), generator=draw)
    features, labels = features.to(place), labels.to(place)
    check_fit(module, cross_entropy, features, labels, whose="random examples")
    holdings = Holdings(features=features, labels=labels, rows=[np.arange(examples)] * clients)
    settings = LocalTraining(epochs=1, batch_size=batch_size, lr=0.1)
    trainer = cohort_trainer(module=module, holdings=holdings, settings=settings, loss=cross_entropy)
    with closing(trainer):
        private, why = "none", ""
        try:
            gradient = PrivateGradient(
                model=module, loss=cross_entropy, clipping=Clipping(bound=1.0), example=(features[:6], labels[:6])
            )
            private, why = gradient.form, gradient.reason
        except ConfigError as error:
            why = str(error)
        return Forms(
            parameters=trainer.layout.size,
            form=trainer.form,
            form_reason=trainer.reason,
            workers=trainer.workers,
            private_form=private,
            private_reason=why,
        )
