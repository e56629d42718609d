"""Loss and accuracy of a model on a set of examples."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from tacit.training.hooks import Context, Hooks
from tacit.training.parameters import Parameters
from tacit.training.settings import Loss
from tacit.vectors import Vector

_Batch = tuple[Tensor, Tensor, Tensor]  # outputs, losses, labels
_BATCH = 500  # small enough for the activations of a small CNN to stay in the cache


@dataclass(frozen=True, kw_only=True)
class Score:
    """The mean loss, and the share of examples whose largest output is their label (None where that has no meaning)."""

    loss: float
    accuracy: float | None


class Evaluator:
    """Scores a model on examples: in batches, in inference mode, over all workers."""

    def __init__(
        self, *, module: nn.Module, loss: Loss, device: torch.device, workers: int, hooks: Hooks | None = None
    ):
        self._hooks = hooks or Hooks.for_evaluation()
        self._loss = loss
        self._device = device
        count = 1 if device.type == "cuda" or self._hooks.changed else workers
        layout = Parameters.of(module)
        self._modules = [_ready(module, device) for _ in range(count)]
        self._tensors = [layout.tensors(own) for own in self._modules]
        self._sizes = [slot.size for slot in layout.slots]
        self._pool = ThreadPoolExecutor(count, "tacit-evaluate", initializer=_one_thread if count > 1 else None)

    def score(self, model: Vector, features: Tensor, labels: Tensor) -> Score:
        """Return loss and accuracy on ``features`` and ``labels``."""
        vector = torch.from_numpy(np.array(model)).to(self._device)
        shares = list(zip(features.chunk(len(self._modules)), labels.chunk(len(self._modules)), strict=True))
        parts = self._pool.map(lambda worker: self._part(worker, vector, *shares[worker]), range(len(shares)))
        losses, correct = zip(*parts, strict=True)
        known = None if correct[0] is None else sum(correct) / len(labels)
        return Score(loss=sum(losses) / len(labels), accuracy=known)

    def close(self) -> None:
        """Stop the workers."""
        self._pool.shutdown()

    def _part(self, worker: int, vector: Tensor, features: Tensor, labels: Tensor) -> tuple[float, int | None]:
        with torch.inference_mode():
            for own, values in zip(self._tensors[worker], torch.split(vector, self._sizes), strict=True):
                own.copy_(values.view(own.shape))
            total = torch.zeros((), dtype=torch.float64, device=self._device)
            correct: Tensor | None = torch.zeros((), dtype=torch.int64, device=self._device)
            passes = self._hooked if self._hooks.changed else self._plain
            for outputs, losses, known in passes(self._modules[worker], features, labels):
                total += losses.double().sum()
                if correct is not None and outputs.dim() == 2 and known.dtype == torch.int64:
                    correct += (outputs.argmax(1) == known).sum()
                else:
                    correct = None
            return float(total), None if correct is None else int(correct)

    def _plain(self, module: nn.Module, features: Tensor, labels: Tensor) -> Iterator[_Batch]:
        for start in range(0, len(labels), _BATCH):
            known = labels[start : start + _BATCH]
            outputs = module(features[start : start + _BATCH])
            yield outputs, self._loss(outputs, known), known

    def _hooked(self, module: nn.Module, features: Tensor, labels: Tensor) -> Iterator[_Batch]:
        """Do the same with the hooks of a user around each step, who may change what is in the batch."""
        hooks, context = self._hooks, Context(model=module, loss_function=self._loss, training=False)
        hooks.run("on_fit_start", context)
        hooks.run("on_epoch_start", context)
        for context.batch, start in enumerate(range(0, len(labels), _BATCH)):
            context.features, context.labels = features[start : start + _BATCH], labels[start : start + _BATCH]
            hooks.run("on_batch_start", context)
            hooks.run("on_batch_forward", context)
            assert context.losses is not None
            assert context.outputs is not None
            yield context.outputs, context.losses, context.labels
            hooks.run("on_batch_end", context)
        hooks.run("on_epoch_end", context)
        hooks.run("on_fit_end", context)


def _ready(module: nn.Module, device: torch.device) -> nn.Module:
    ready = copy.deepcopy(module).to(device).eval()
    for parameter in ready.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.to(memory_format=torch.channels_last)
    return ready


def _one_thread() -> None:
    torch.set_num_threads(1)
