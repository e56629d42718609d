"""Clipped sums on a GPU, captured once as a CUDA graph and replayed.

A step of DP-SGD is some hundred kernels of a few microseconds each, which Python launches more slowly than a GPU runs
them. Poisson batches have any size: a graph has room for a few more examples than it is given, whose places are filled
with examples of earlier steps and whose factors are 0, so that they take no part. The arithmetic is that of the form
that was captured.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from tacit.training.dropout import watched_generators
from tacit.training.parameters import held_by

_SEEN = 2  # steps of a shape before a graph is made for it
_WARM_UPS = 2
_MOST_GRAPHS = 8
_MOST_KEYS = 256  # a model of which a number changes at every step is not captured
_FINEST = 8  # rooms are multiples of this, and of an eighth of the power of two below


class Form(Protocol):
    """What sums clipped gradients."""

    def sums(
        self, features: Tensor, labels: Tensor, real: Tensor | None = None
    ) -> tuple[list[Tensor], Tensor, Tensor | None]:
        """Return sums, losses, and inside a graph whether they are not to be used."""
        ...


@dataclass(frozen=True, kw_only=True)
class _Capture:
    graph: torch.cuda.CUDAGraph
    features: Tensor
    labels: Tensor
    real: Tensor  # which places hold examples of this step
    total: Tensor  # all sums, one after the other
    shapes: list[torch.Size]
    losses: Tensor
    doubtful: Tensor | None


class CapturedSums:
    """Replays graphs of a form's sums.

    A graph repeats what was computed when it was captured. Another mode of a part of the model, another number or text
    that a part holds, a hook more or tensors that lie elsewhere make another graph. A model that draws from a generator
    of the host, or asks the GPU something while it computes, is never captured.
    """

    def __init__(self, form: Form, model: nn.Module) -> None:
        self._form = form
        self._model = model
        self._seen: dict[tuple[Any, ...], int] = {}
        self._captures: dict[tuple[Any, ...], _Capture] = {}
        self._pool: Any = None  # graphs never run at the same time, and share what is theirs while they run
        self._fails = False

    def sums(self, features: Tensor, labels: Tensor) -> tuple[list[Tensor], Tensor] | None:
        """Return the sum of clipped gradients and each example's loss, or None where it is to be computed plainly."""
        if self._fails:
            return None
        room = room_for(len(labels))
        key = (room, features.shape[1:], features.dtype, labels.shape[1:], labels.dtype, *_state(self._model))
        capture = self._captures.get(key)
        if capture is None:
            self._seen[key] = self._seen.get(key, 0) + 1
            if self._seen[key] <= _SEEN:
                self._fails = len(self._seen) > _MOST_KEYS
                return None
            if len(self._captures) >= _MOST_GRAPHS:
                self._captures.pop(next(iter(self._captures)))
                self._seen.clear()
            capture = self._captured(features, labels, room)
            if capture is None:
                self._fails = True
                return None
            self._captures[key] = capture
        _load(capture, features, labels)
        capture.graph.replay()
        if capture.doubtful is not None and bool(capture.doubtful):
            return None
        parts = torch.split(capture.total.clone(), [size.numel() for size in capture.shapes])
        sums = [part.view(shape) for part, shape in zip(parts, capture.shapes, strict=True)]
        return sums, capture.losses[: len(labels)].clone()

    def _captured(self, features: Tensor, labels: Tensor, room: int) -> _Capture | None:
        """Capture a graph; None where there can't be one."""
        given, wanted = (part[:1].expand(room, *part.shape[1:]).clone() for part in (features, labels))
        real = torch.zeros(room, dtype=torch.bool, device=labels.device)
        graph = torch.cuda.CUDAGraph()
        device = features.device
        stream: Any = capture_stream(device)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        try:
            with watched_generators(torch.device("cpu")) as drawn:
                stream.wait_stream(torch.cuda.current_stream(device))
                with torch.random.fork_rng([device]), torch.cuda.stream(stream):
                    for _ in range(_WARM_UPS):
                        self._form.sums(given, wanted, real)
                torch.cuda.current_stream(device).wait_stream(stream)
                if drawn():  # what it drew would be the same in every replay
                    return None
            # Other threads may draw noise into pinned memory meanwhile: that is none of this graph's business.
            with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
                sums, losses, doubtful = self._form.sums(given, wanted, real)
                total = torch.cat([own.reshape(-1) for own in sums])
        except RuntimeError:  # a step that asks the device something while it computes, or too little memory for it
            torch.cuda.synchronize(device)
            return None
        return _Capture(
            graph=graph,
            features=given,
            labels=wanted,
            real=real,
            total=total,
            shapes=[own.shape for own in sums],
            losses=losses,
            doubtful=doubtful,
        )


@functools.cache
def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream on which graphs are captured: one, because matrix products keep 32 MB for each."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch gives it no types


def room_for(examples: int) -> int:
    """Return how many examples a graph for so many has room for: at most an eighth more, or seven.

    >>> [room_for(n) for n in (1, 8, 60, 256, 257)]
    [8, 8, 64, 256, 288]
    """
    step = max(_FINEST, (1 << (examples.bit_length() - 1)) // 8)
    return -(-examples // step) * step


def _load(capture: _Capture, features: Tensor, labels: Tensor) -> None:
    count = len(labels)
    capture.features[:count].copy_(features)
    capture.labels[:count].copy_(labels)
    capture.real[:count] = True
    capture.real[count:] = False


def _state(model: nn.Module) -> tuple[Any, ...]:
    """Return what a graph takes for granted: modes, numbers and texts of all parts, hooks, and where tensors lie."""
    products: Any = torch.backends.cuda.matmul
    found: list[Any] = [torch.is_autocast_enabled("cuda"), torch.backends.cudnn.allow_tf32, products.allow_tf32]
    lies = [own.data_ptr() for own in (*model.parameters(), *model.buffers())]
    return (*found, *lies, *held_by(model))
