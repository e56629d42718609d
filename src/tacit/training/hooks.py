"""Extension points of local training and evaluation, with FederatedScope's names.

A pass over the data is a fixed sequence of points; what happens at each is a list of hooks that run in order. The
built-in work (forward, backward, step) is itself hooks of that list, so a user's hook can be put before or after it,
or the list can be taken over entirely::

    hooks = Hooks.for_training()
    hooks.register("on_batch_backward", clip_activations, position=0)   # before the built-in backward pass

Hooks see one client and one batch at a time, so a run with hooks trains its clients in a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.training.optimizers import Sgd
from tacit.training.settings import LocalTraining, Loss

Point = Literal[
    "on_fit_start",
    "on_epoch_start",
    "on_batch_start",
    "on_batch_forward",
    "on_batch_backward",
    "on_batch_end",
    "on_epoch_end",
    "on_fit_end",
]
POINTS: tuple[Point, ...] = get_args(Point)


@dataclass(kw_only=True)
class Context:
    """What a hook may read and change. ``notes`` is the hooks' own; it lives as long as the fit."""

    model: nn.Module
    loss_function: Loss
    training: bool
    client: int | None = None  # None when the server evaluates
    round_number: int = 0
    settings: LocalTraining | None = None
    optimizer: torch.optim.Optimizer | Sgd | None = None
    parameters: list[nn.Parameter] = field(default_factory=list)  # that train; looked up where empty
    origin: list[Tensor] = field(default_factory=list)  # the model that was sent, for the proximal term
    epoch: int = 0
    batch: int = 0
    features: Tensor | None = None
    labels: Tensor | None = None
    outputs: Tensor | None = None
    losses: Tensor | None = None  # one per example
    loss: Tensor | None = None  # their mean, what is differentiated
    notes: dict[str, Any] = field(default_factory=dict)


Hook = Callable[[Context], None]


class Hooks:
    """Lists of hooks, one list per point.

    >>> hooks = Hooks.for_training()
    >>> hooks.register("on_batch_end", lambda context: None)
    >>> hooks.register("on_batch_ending", lambda context: None)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    tacit.errors.ConfigError: Expected a point among on_fit_start, ... got 'on_batch_ending'.
    """

    def __init__(self) -> None:
        self._lists: dict[Point, list[Hook]] = {point: [] for point in POINTS}
        self.changed = False

    @classmethod
    def for_training(cls) -> Hooks:
        """Return the hooks of plain local SGD."""
        return cls._with(on_batch_forward=forward, on_batch_backward=backward)

    @classmethod
    def for_evaluation(cls) -> Hooks:
        """Return the hooks of evaluation: a forward pass."""
        return cls._with(on_batch_forward=forward)

    @classmethod
    def _with(cls, **built_in: Hook) -> Hooks:
        hooks = cls()
        for point in POINTS:
            if point in built_in:
                hooks._lists[point].append(built_in[point])
        return hooks

    def register(self, point: str, hook: Hook, position: int | None = None) -> None:
        """Add ``hook`` at ``point``, before the hook now at ``position``, or last."""
        hooks = self._at(point)
        hooks.insert(len(hooks) if position is None else position, hook)
        self.changed = True

    def remove(self, point: str, hook: Hook) -> None:
        """Take ``hook`` out of ``point``, a built-in one (:func:`forward`, :func:`backward`) too."""
        hooks = self._at(point)
        if hook not in hooks:
            raise ConfigError(f"{hook} is not registered at {point!r}.")
        hooks.remove(hook)
        self.changed = True

    def run(self, point: Point, context: Context) -> None:
        """Run the hooks of ``point`` in order."""
        for hook in self._lists[point]:
            hook(context)

    def _at(self, point: str) -> list[Hook]:
        for known in POINTS:
            if point == known:
                return self._lists[known]
        raise ConfigError(f"Expected a point among {', '.join(POINTS)}, got {point!r}.")


def forward(context: Context) -> None:
    """Compute the outputs and the loss of the batch."""
    assert context.features is not None
    assert context.labels is not None
    context.outputs = context.model(context.features)
    context.losses = context.loss_function(context.outputs, context.labels)
    context.loss = context.losses.mean()


def backward(context: Context) -> None:
    """Differentiate the loss, add the proximal term, clip, and step."""
    assert context.loss is not None
    assert context.optimizer is not None
    assert context.settings is not None
    context.optimizer.zero_grad(set_to_none=True)
    context.loss.backward()  # type: ignore[no-untyped-call]  # torch gives it no types
    parameters = context.parameters or [p for p in context.model.parameters() if p.requires_grad]
    with torch.no_grad():
        if context.settings.mu:
            for parameter, sent in zip(parameters, context.origin, strict=True):
                if parameter.grad is not None:
                    parameter.grad.add_(parameter - sent, alpha=context.settings.mu)
        if context.settings.grad_clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, context.settings.grad_clip)
    context.optimizer.step()
