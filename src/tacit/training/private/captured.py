"""Clipped sums that are computed once and then repeated: a CUDA graph on a GPU, a straight program for tiny models.

A step of DP-SGD is some hundred operations of a few microseconds each, which Python calls more slowly than a GPU, or a
core with a tiny model, computes them. Poisson batches have any size: what is repeated has room for a few more examples
than it is given, which take no part in the sums. The arithmetic is that of the form, and the same from the first step
on, before anything is repeated. A graph has all of it; a program has the passes through the model, and what is made of
them is left to the native part.

What is repeated is what was computed once. Another mode of a part of the model, another number or text that a part
holds or tensors that lie elsewhere make another graph or program. A model that somebody listens to by hooks, that draws
from a generator of the host, or that asks what it computes something, is computed plainly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from tacit.training.captured import capture_stream, here, no_garbage, settle
from tacit.training.dropout import watched_generators
from tacit.training.parameters import held_by, hooked
from tacit.training.private.double import blind
from tacit.training.settings import Loss
from tacit.training.straight import FOLLOWING, StraightStep

_SEEN = 2  # steps of a shape before a graph is made for it
_USES = 64  # and before a program is, which takes longer
_WARM_UPS = 2
_MOST_GRAPHS = 8
_MOST_STATES = 16  # a model of which a number changes at every step is computed plainly
_FINEST = 8  # rooms are multiples of this, and of an eighth of the power of two below


class Form(Protocol):
    """What sums clipped gradients."""

    @property
    def module(self) -> nn.Module:
        """What passes go through."""
        ...

    def sums(
        self, features: Tensor, labels: Tensor, real: Tensor | None = None
    ) -> tuple[list[Tensor], Tensor, Tensor | None]:
        """Return sums, losses, and where nobody may look (:func:`blind`) whether they are not to be used."""
        ...

    def passed(self, features: Tensor, labels: Tensor) -> list[Tensor]:
        """Return what sums are made of, by operations of torch's alone: losses first."""
        ...

    def summed(self, passed: list[Tensor], real: Tensor | None = None) -> tuple[list[Tensor], Tensor, Tensor | None]:
        """Return sums of that; the list need not stay as it is."""
        ...


class Repeated:
    """Sums of a form with room for Poisson batches, by graphs or programs once there are any."""

    def __init__(self, form: Form, model: nn.Module, loss: Loss, lay_out: Callable[[Tensor], Tensor]) -> None:
        self._form = form
        self._model = model
        self._parts = [*model.modules(), *(loss.modules() if isinstance(loss, nn.Module) else ())]
        self._lay_out = lay_out
        self._states: dict[tuple[Any, ...], _Graphs | _Programs] = {}

    def sums(self, features: Tensor, labels: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the sum of clipped gradients and each example's loss."""
        count = len(labels)
        room = room_for(count)
        given, wanted = self._lay_out(_filled(features, room)), _filled(labels, room)
        real = torch.arange(room, device=labels.device) < count
        quick = None if hooked(self._parts) else self._quick(cuda=features.is_cuda)
        found = None if quick is None else quick(given, wanted, real)
        sums, losses = self._form.sums(given, wanted, real)[:2] if found is None else found
        return sums, losses[:count]

    def _quick(self, *, cuda: bool) -> _Graphs | _Programs | None:
        """Return what repeats sums of the model as it is now."""
        state = _state(self._parts)
        if state not in self._states and len(self._states) < _MOST_STATES:
            self._states[state] = (_Graphs if cuda else _Programs)(self._form, self._model)
        return self._states.get(state)


@dataclass(frozen=True, kw_only=True)
class _Capture:
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    total: Tensor  # all sums, one after the other
    shapes: list[torch.Size]
    losses: Tensor
    doubtful: Tensor | None


class _Graphs:
    """CUDA graphs of a form's sums, one per shape."""

    def __init__(self, form: Form, model: nn.Module) -> None:
        del model  # a graph is captured with the model's own memory
        self._form = form
        self._seen: dict[tuple[Any, ...], int] = {}
        self._captures: dict[tuple[Any, ...], _Capture] = {}
        self._pool: Any = None  # graphs never run at the same time, and share what is theirs while they run
        self._fails = False

    def __call__(self, *given: Tensor) -> tuple[list[Tensor], Tensor] | None:
        """Return sums, which the next call writes over, and losses, or None where they are to be computed plainly."""
        if self._fails:
            return None
        key = tuple((part.shape, part.dtype) for part in given)
        capture = self._captures.get(key)
        if capture is None:
            self._seen[key] = self._seen.get(key, 0) + 1
            if self._seen[key] <= _SEEN:
                return None
            if len(self._captures) >= _MOST_GRAPHS:
                self._captures.pop(next(iter(self._captures)))
                self._seen.clear()
            capture = self._captured(given)
            if capture is None:
                self._fails = True
                return None
            self._captures[key] = capture
        for place, part in zip(capture.inputs, given, strict=True):
            place.copy_(part)
        capture.graph.replay()
        parts = torch.split(capture.total, [shape.numel() for shape in capture.shapes])
        sums = [part.view(shape) for part, shape in zip(parts, capture.shapes, strict=True)]
        losses = capture.losses.clone()
        if capture.doubtful is not None and bool(capture.doubtful):  # last: who looks waits for the GPU
            return None
        return sums, losses

    def _captured(self, given: Sequence[Tensor]) -> _Capture | None:
        """Capture a graph; None where there can't be one."""
        # Others in the place of parameters only where it is needed: a model may look at which they are.
        for stands_in in (nullcontext, _leaves_anew):
            try:
                with stands_in(self._form.module):
                    return self._capture(given)
            except BaseException as error:  # a step that asks the device something while it computes, or has no memory
                self._pool = None
                settle(given[0].device)
                if not isinstance(error, Exception):
                    raise
        return None

    def _capture(self, given: Sequence[Tensor]) -> _Capture | None:
        features, labels, real = inputs = tuple(part.clone() for part in given)
        graph = torch.cuda.CUDAGraph()
        device = features.device
        stream: Any = capture_stream(device)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        with watched_generators(torch.device("cpu")) as drawn:
            stream.wait_stream(torch.cuda.current_stream(device))
            with torch.random.fork_rng([device]), torch.cuda.stream(stream):
                for _ in range(_WARM_UPS):
                    self._form.sums(features, labels, real)
            torch.cuda.current_stream(device).wait_stream(stream)
            if drawn():  # what it drew would be the same in every replay
                return None
        # Other threads may draw noise into pinned memory meanwhile: that is none of this graph's business.
        own = torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local")
        with here(device), blind(), no_garbage(), own:
            sums, losses, doubtful = self._form.sums(features, labels, real)
            total = torch.cat([own.reshape(-1) for own in sums])
        return _Capture(
            graph=graph,
            inputs=inputs,
            total=total,
            shapes=[own.shape for own in sums],
            losses=losses,
            doubtful=doubtful,
        )


@contextmanager
def _leaves_anew(module: nn.Module) -> Iterator[None]:
    """While it is on, others with the same memory stand in the place of a module's parameters.

    Autograd adds up a parameter's gradient on the stream on which it first met it, for as long as anybody keeps a loss
    that depends on it; none of a graph's streams may wait for that.
    """
    places = [
        (part._parameters, name, own)
        for part in module.modules()
        for name, own in part._parameters.items()
        if type(own) is nn.Parameter and own.requires_grad
    ]
    others = {id(own): nn.Parameter(own.detach()) for *_, own in places}
    for *_, own in places:
        vars(others[id(own)]).update(vars(own))  # some are tagged
    try:
        for held, name, own in places:
            held[name] = others[id(own)]
        yield
    finally:
        for held, name, own in places:
            held[name] = own


class _Programs:
    """Straight programs of a form's passes, one per shape; they read the model's parameters where they lie."""

    def __init__(self, form: Form, model: nn.Module) -> None:
        self._form = form
        self._straight = StraightStep(self._passed, model, uses=_USES)
        self._draws = False

    def __call__(self, features: Tensor, labels: Tensor, real: Tensor) -> tuple[list[Tensor], Tensor] | None:
        """Return sums and losses, or None where they are to be computed plainly."""
        if self._draws:
            return None
        if self._straight.due:
            with FOLLOWING, watched_generators(torch.device("cpu")) as drawn:
                self._form.passed(features, labels)
                self._draws = drawn()
                if self._draws:  # a program would draw once and for all
                    return None
                self._straight.make()
        passed = self._straight(features, labels)
        if passed is None:
            return None
        sums, losses, _ = self._form.summed(passed, real)
        return sums, losses.clone()  # one that may be written to, which is not so of what a program computes

    def _passed(self, *given: Tensor | None) -> list[Tensor]:
        features, labels = (part for part in given if part is not None)
        return self._form.passed(features, labels)


def room_for(examples: int) -> int:
    """Return how many examples there is room for where there are so many: at most an eighth more, or seven.

    >>> [room_for(n) for n in (1, 8, 60, 256, 257)]
    [8, 8, 64, 256, 288]
    """
    step = max(_FINEST, (1 << (examples.bit_length() - 1)) // 8)
    return -(-examples // step) * step


def _filled(part: Tensor, room: int) -> Tensor:
    """Return a batch filled up with copies of its first example."""
    missing = room - len(part)
    return torch.cat([part, part[:1].expand(missing, *part.shape[1:])]) if missing else part


def _state(parts: Sequence[nn.Module]) -> tuple[Any, ...]:
    """Return what a graph takes for granted: modes, numbers and texts of all parts, and where tensors lie."""
    products: Any = torch.backends.cuda.matmul
    autocast = torch.is_autocast_enabled("cuda"), torch.is_autocast_enabled("cpu")
    switches = *autocast, torch.backends.cudnn.allow_tf32, products.allow_tf32
    tensors = [own for part in parts for own in (*part._parameters.values(), *part._buffers.values())]
    places = (None if own is None else own.data_ptr() if own.layout == torch.strided else id(own) for own in tensors)
    return (*switches, *places, *held_by(parts))
