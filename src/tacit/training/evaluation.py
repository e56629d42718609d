"""Loss and accuracy of a model on a set of examples."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from tacit.training.hooks import Context, Hooks
from tacit.training.parameters import Parameters
from tacit.training.settings import Loss
from tacit.vectors import Vector

_BATCH = 500  # small enough for the activations of a small CNN to stay in the cache


@dataclass(frozen=True, kw_only=True)
class Score:
    """The mean loss, and the share of examples whose largest output is their label (None where that has no meaning)."""

    loss: float
    accuracy: float | None


class Evaluator:
    """Evaluates in batches, in inference mode, over all workers."""

    def __init__(
        self, *, module: nn.Module, loss: Loss, device: torch.device, workers: int, hooks: Hooks | None = None
    ):
        self._layout = Parameters.of(module)
        self._hooks = hooks or Hooks.for_evaluation()
        self._loss = loss
        self._device = device
        count = 1 if device.type == "cuda" or self._hooks.changed else workers
        self._modules = [_ready(module, device) for _ in range(count)]
        self._pool = ThreadPoolExecutor(count, "tacit-evaluate", initializer=_one_thread if count > 1 else None)

    def score(self, model: Vector, features: Tensor, labels: Tensor) -> Score:
        """Return loss and accuracy on ``features`` and ``labels``."""
        vector = torch.from_numpy(np.array(model)).to(self._device)
        shares = list(zip(features.chunk(len(self._modules)), labels.chunk(len(self._modules)), strict=True))
        parts = self._pool.map(lambda i: self._part(self._modules[i], vector, *shares[i]), range(len(shares)))
        losses, correct = zip(*parts, strict=True)
        known = None if correct[0] is None else sum(correct) / len(labels)
        return Score(loss=sum(losses) / len(labels), accuracy=known)

    def close(self) -> None:
        """Stop the workers."""
        self._pool.shutdown()

    def _part(self, module: nn.Module, vector: Tensor, features: Tensor, labels: Tensor) -> tuple[float, int | None]:
        hooks = self._hooks
        with torch.inference_mode():
            self._layout.write(module, vector)
            context = Context(model=module, loss_function=self._loss, training=False)
            total = torch.zeros((), dtype=torch.float64, device=self._device)
            correct: Tensor | None = torch.zeros((), dtype=torch.int64, device=self._device)
            hooks.run("on_fit_start", context)
            hooks.run("on_epoch_start", context)
            for batch, start in enumerate(range(0, len(labels), _BATCH)):
                context.batch = batch
                context.features, context.labels = (
                    features[start : start + _BATCH],
                    labels[start : start + _BATCH],
                )
                hooks.run("on_batch_start", context)
                hooks.run("on_batch_forward", context)
                assert context.losses is not None
                assert context.outputs is not None
                total += context.losses.double().sum()
                if correct is not None and context.outputs.dim() == 2 and context.labels.dtype == torch.int64:
                    correct += (context.outputs.argmax(1) == context.labels).sum()
                else:
                    correct = None
                hooks.run("on_batch_end", context)
            hooks.run("on_epoch_end", context)
            hooks.run("on_fit_end", context)
            return float(total), None if correct is None else int(correct)


def _ready(module: nn.Module, device: torch.device) -> nn.Module:
    ready = copy.deepcopy(module).to(device).eval()
    for parameter in ready.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.to(memory_format=torch.channels_last)
    return ready


def _one_thread() -> None:
    torch.set_num_threads(1)
