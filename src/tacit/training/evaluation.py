"""Loss, accuracy and other metrics of a model on a set of examples."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.training.hooks import Context, Hooks
from tacit.training.made import checksum
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
        self._stills = [Still(own, layout.names, module) for own in self._modules]
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
        with self._holding(0, torch.from_numpy(np.array(model)).to(self._device)) as module, torch.inference_mode():
            parts = [_outputs(module, features[start : start + _BATCH]) for start in range(0, len(features), _BATCH)]
            return torch.cat(parts).cpu().numpy()

    def close(self) -> None:
        """Stop the workers."""
        self._pool.shutdown()

    @contextmanager
    def _holding(self, worker: int, vector: Tensor) -> Iterator[nn.Module]:
        """Yield a worker's module with the numbers of ``vector``, in evaluation mode.

        They are written in training mode: adapters that ``eval()`` merges into frozen weights are merged anew then.
        """
        module, still = self._modules[worker], self._stills[worker]
        with torch.no_grad():
            for own, values in zip(self._tensors[worker], torch.split(vector, self._sizes), strict=True):
                own.copy_(values.view(own.shape))
            module.eval()
        still.begin()
        yield module
        still.check()
        still.put_back(module)

    def _part(self, worker: int, vector: Tensor, features: Tensor, labels: Tensor) -> _Part:
        kept: list[NDArray[Any]] = []
        with self._holding(worker, vector) as module, torch.inference_mode():
            total = torch.zeros((), dtype=torch.float64, device=self._device)
            correct: Tensor | None = torch.zeros((), dtype=torch.int64, device=self._device)
            passes = self._hooked if self._hooks.changed else self._plain
            for outputs, losses, known in passes(module, features, labels):
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
            yield outputs, self._loss(outputs, known.clone()), known  # a loss may write to labels, too

    def _hooked(self, module: nn.Module, features: Tensor, labels: Tensor) -> Iterator[_Batch]:
        """Do the same with the hooks of a user around each step, who may change what is in the batch."""
        hooks, context = self._hooks, Context(model=module, loss_function=self._loss, training=False)
        hooks.run("on_fit_start", context)
        hooks.run("on_epoch_start", context)
        for context.batch, start in enumerate(range(0, len(labels), _BATCH)):
            context.features = features[start : start + _BATCH].clone()
            context.labels = labels[start : start + _BATCH].clone()
            hooks.run("on_batch_start", context)
            hooks.run("on_batch_forward", context)
            assert context.losses is not None
            assert context.outputs is not None
            yield context.outputs, context.losses, context.labels
            hooks.run("on_batch_end", context)
        hooks.run("on_epoch_end", context)
        hooks.run("on_fit_end", context)


class Still:
    """What is frozen in a copy of a model that is in training mode: tests may not move it, nor ``eval()`` for good.

    Some adapters are merged into frozen weights by ``eval()`` and taken out again by ``train()`` (loralib), up to
    rounding. What that leaves is put right, so that no test depends on those before.

    Args:
        own: the copy, in training mode.
        sent: names of the tensors that are written over.
        module: the model it is a copy of, which stays as it is.
    """

    def __init__(self, own: nn.Module, sent: Collection[str], module: nn.Module) -> None:
        parameters, buffers = dict(own.named_parameters()), dict(own.named_buffers())
        numbers = {name: own for name, own in buffers.items() if own.is_floating_point() or own.is_complex()}
        self._tensors = {name: tensor for name, tensor in (parameters | numbers).items() if name not in sent}
        self._made = self._sums()
        theirs = dict(module.named_parameters()) | dict(module.named_buffers())
        self._before = {name: theirs[name] for name in self._tensors}
        if any(checksum(tensor) != self._made[name] for name, tensor in self._before.items()):  # it is merged
            self._before = {name: tensor.detach().clone() for name, tensor in self._tensors.items()}
        self._begun = self._made

    def begin(self) -> None:
        """Take what there is now, in evaluation mode, as what passes have to leave."""
        self._begun = self._sums()

    def check(self) -> None:
        """Refuse passes that moved what is frozen."""
        now = self._sums()
        moved = next((name for name, sums in self._begun.items() if sums != now[name]), None)
        if moved is not None:
            raise ConfigError(
                f"{moved!r} is frozen, and a pass in evaluation mode changed it: every test would be of another model. "
                "Keep forward passes and hooks from writing to what is frozen, or let it train (requires_grad_())."
            )

    def put_back(self, own: nn.Module) -> None:
        """Go back to training mode, and refuse a model in which that does not undo what ``eval()`` did."""
        merged = {
            name: tensor.detach().clone()
            for name, tensor in self._tensors.items()
            if self._begun[name] != self._made[name]
        }
        with torch.no_grad():
            own.train()
        for name, tensor in self._tensors.items():
            if checksum(tensor) == self._made[name]:
                continue
            before = self._before[name].detach().to(tensor.device)
            if name not in merged or not _undone(before, merged[name], tensor.detach()):
                raise ConfigError(
                    f"{name!r} is frozen, and eval() and train() of the model ({type(own).__name__}) changed it for "
                    "good. Adapters that eval() merges have to be taken out again by train(): let both leave the "
                    "weights as they are (merge_weights=False, say), and merge them after the run."
                )
            with torch.no_grad():
                tensor.copy_(before)

    def _sums(self) -> dict[str, list[int]]:
        return {name: checksum(tensor) for name, tensor in self._tensors.items()}


def _undone(before: Tensor, merged: Tensor, after: Tensor) -> bool:
    """Return whether what was added to numbers was taken out again, but for rounding."""
    if not before.is_floating_point() or before.layout != torch.strided:
        return False
    size = float(torch.maximum(before.abs(), merged.abs()).max())
    return float((after - before).abs().max()) <= 8 * torch.finfo(before.dtype).eps * size


def decided(outputs: Tensor, labels: Tensor | None, *, one_logit: bool) -> Tensor | None:
    """Return the class that each output names, or None where outputs name none.

    The largest of several outputs decides; one output is a logit where the loss says so, and is 1 above zero.
    """
    if one_logit:
        return (outputs.reshape(len(outputs), -1) > 0).long().squeeze(1)
    whole = labels is None or labels.dtype == torch.int64
    return outputs.argmax(1) if outputs.dim() == 2 and whole else None


def _ready(module: nn.Module, device: torch.device, *, last: bool) -> nn.Module:
    ready = copy.deepcopy(module).to(device).train()
    if last:
        _lay_out(ready, torch.channels_last)
    return ready


def _lay_out(module: nn.Module, order: torch.memory_format) -> None:
    for parameter in module.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=order)


def _outputs(module: nn.Module, features: Tensor) -> Tensor:
    """Return a module's outputs; from one that takes views of images with these in the order of their axes.

    It is given a copy, which it may write to.
    """
    try:
        outputs: Tensor = module(features.clone())
    except RuntimeError:
        if all(own.is_contiguous() for own in module.parameters()):
            raise
        _lay_out(module, torch.contiguous_format)
        outputs = module(features.clone())
    return outputs


def _one_thread() -> None:
    torch.set_num_threads(1)
