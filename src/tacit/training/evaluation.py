"""Loss, accuracy and other metrics of a model on a set of examples."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.training.hooks import Context, Hooks
from tacit.training.metrics import Metric, computed
from tacit.training.parameters import Parameters
from tacit.training.settings import Loss, gives_logits
from tacit.vectors import Vector

_Batch = tuple[Tensor, Tensor, Tensor]  # outputs, losses, labels
_Part = tuple[float, int | None, NDArray[Any]]  # the sum of the losses, how many are right, the outputs
_NONE: NDArray[Any] = np.empty(0)
_BATCH = 500  # small enough for the activations of a small CNN to stay in the cache


@dataclass(frozen=True, kw_only=True)
class Score:
    """The mean loss, the share of examples whose class is the right one (None where that has no meaning), and more."""

    loss: float
    accuracy: float | None
    metrics: Mapping[str, float] = field(default_factory=dict)

    def told(self) -> dict[str, float]:
        """Return all of it by name."""
        return {"loss": self.loss} | ({} if self.accuracy is None else {"accuracy": self.accuracy}) | dict(self.metrics)


class Evaluator:
    """Scores a model on examples: in batches, in inference mode, over all workers."""

    def __init__(
        self,
        *,
        module: nn.Module,
        loss: Loss,
        device: torch.device,
        workers: int,
        hooks: Hooks | None = None,
        metrics: Mapping[str, Metric] | None = None,
        classes: Sequence[str] = (),
    ) -> None:
        self._hooks = hooks or Hooks.for_evaluation()
        self._loss = loss
        self._one_logit = gives_logits(loss)
        self._metrics = metrics or {}
        self._classes = classes
        self._device = device
        count = 1 if device.type == "cuda" or self._hooks.changed else workers
        layout = Parameters.of(module)
        self._modules = [_ready(module, device, last=not self._hooks.changed) for _ in range(count)]
        self._tensors = [layout.tensors(own) for own in self._modules]
        self._sizes = [slot.size for slot in layout.slots]
        self._pool = ThreadPoolExecutor(count, "tacit-evaluate", initializer=_one_thread if count > 1 else None)

    def score(self, model: Vector, features: Tensor, labels: Tensor) -> Score:
        """Return loss and accuracy on ``features`` and ``labels``."""
        vector = torch.from_numpy(np.array(model)).to(self._device)
        shares = list(zip(features.chunk(len(self._modules)), labels.chunk(len(self._modules)), strict=True))
        parts = self._pool.map(lambda worker: self._part(worker, vector, *shares[worker]), range(len(shares)))
        losses, correct, outputs = zip(*parts, strict=True)
        known = None if correct[0] is None else sum(correct) / len(labels)
        more: Mapping[str, float] = {}
        if self._metrics:
            more = computed(self._metrics, np.concatenate(outputs), labels.cpu().numpy(), self._classes)
        return Score(loss=sum(losses) / len(labels), accuracy=known, metrics=more)

    def outputs(self, model: Vector, features: Tensor) -> NDArray[Any]:
        """Return the model's outputs for ``features``."""
        module, tensors = self._modules[0], self._tensors[0]
        with torch.inference_mode():
            self._write(tensors, torch.from_numpy(np.array(model)).to(self._device))
            parts = [_outputs(module, features[start : start + _BATCH]) for start in range(0, len(features), _BATCH)]
            return torch.cat(parts).cpu().numpy()

    def close(self) -> None:
        """Stop the workers."""
        self._pool.shutdown()

    def _write(self, tensors: list[Tensor], vector: Tensor) -> None:
        for own, values in zip(tensors, torch.split(vector, self._sizes), strict=True):
            own.copy_(values.view(own.shape))

    def _part(self, worker: int, vector: Tensor, features: Tensor, labels: Tensor) -> _Part:
        kept: list[NDArray[Any]] = []
        with torch.inference_mode():
            self._write(self._tensors[worker], vector)
            total = torch.zeros((), dtype=torch.float64, device=self._device)
            correct: Tensor | None = torch.zeros((), dtype=torch.int64, device=self._device)
            passes = self._hooked if self._hooks.changed else self._plain
            for outputs, losses, known in passes(self._modules[worker], features, labels):
                total += losses.double().sum()
                named = decided(outputs, known, one_logit=self._one_logit)
                if correct is not None and named is not None:
                    correct += (named == known.view_as(named)).sum()
                else:
                    correct = None
                if self._metrics:
                    kept.append(outputs.cpu().numpy())
            return float(total), None if correct is None else int(correct), np.concatenate(kept) if kept else _NONE

    def _plain(self, module: nn.Module, features: Tensor, labels: Tensor) -> Iterator[_Batch]:
        for start in range(0, len(labels), _BATCH):
            known = labels[start : start + _BATCH]
            outputs = _outputs(module, features[start : start + _BATCH])
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


def decided(outputs: Tensor, labels: Tensor | None, *, one_logit: bool) -> Tensor | None:
    """Return the class that each output names, or None where outputs name none.

    The largest of several outputs decides; one output is a logit where the loss says so, and is 1 above zero.
    """
    if one_logit:
        return (outputs.reshape(len(outputs), -1) > 0).long().squeeze(1)
    whole = labels is None or labels.dtype == torch.int64
    return outputs.argmax(1) if outputs.dim() == 2 and whole else None


def _ready(module: nn.Module, device: torch.device, *, last: bool) -> nn.Module:
    ready = copy.deepcopy(module).to(device).eval()
    if last:
        _lay_out(ready, torch.channels_last)
    return ready


def _lay_out(module: nn.Module, order: torch.memory_format) -> None:
    for parameter in module.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=order)


def _outputs(module: nn.Module, features: Tensor) -> Tensor:
    """Return a module's outputs; from one that takes views of images with these in the order of their axes."""
    try:
        outputs: Tensor = module(features)
    except RuntimeError:
        if all(own.is_contiguous() for own in module.parameters()):
            raise
        _lay_out(module, torch.contiguous_format)
        outputs = module(features)
    return outputs


def _one_thread() -> None:
    torch.set_num_threads(1)
