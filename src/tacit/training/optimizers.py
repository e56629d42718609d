"""The clients' optimisers: SGD, Adam and AdamW by name, or what a function of yours makes of the parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.training.settings import LocalTraining


def optimizer_of(settings: LocalTraining, parameters: Sequence[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    """Return a new optimiser for a client's round; what it remembers ends with the round.

    >>> type(optimizer_of(LocalTraining(epochs=1, batch_size=1, lr=0.1, name="adamw"), [nn.Parameter()], 0.1)).__name__
    'AdamW'
    """
    if settings.factory is not None:
        return _made(settings, parameters, rate)
    if settings.name == "sgd":
        return torch.optim.SGD(parameters, lr=rate, momentum=settings.momentum, weight_decay=settings.weight_decay)
    kind = torch.optim.Adam if settings.name == "adam" else torch.optim.AdamW
    betas = (settings.beta1, settings.beta2)
    return kind(parameters, lr=rate, betas=betas, eps=settings.eps, weight_decay=settings.weight_decay)


def _made(settings: LocalTraining, parameters: Sequence[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    assert settings.factory is not None
    try:
        made: Any = settings.factory(list(parameters))
    except Exception as error:  # it is somebody else's code
        raise ConfigError(
            f"The optimiser can't be made: {(str(error).splitlines() or [repr(error)])[0].rstrip('.')} "
            f"({type(error).__name__}). Expected a function of the parameters, such as "
            "lambda parameters: torch.optim.AdamW(parameters, lr=1e-3)."
        ) from error
    held = {id(p) for group in getattr(made, "param_groups", ()) for p in group["params"]}
    if not isinstance(made, torch.optim.Optimizer) or held != {id(p) for p in parameters}:
        raise ConfigError(
            f"Expected a function of the parameters that returns an optimiser of torch.optim over all of them, got "
            f"{type(made).__name__}."
        )
    for group in made.param_groups:
        group["lr"] = group["lr"] * rate / settings.lr  # as the schedule has it
    return made


class Sgd:
    """Moves parameters against their gradients: ``v = momentum v + g + decay w``, ``w = w - lr v``.

    It is :class:`torch.optim.SGD` with a state one can keep. (The first step of an optimiser of :mod:`torch.optim`
    loads torch's compiler, which takes seconds; a short run would spend most of its time on that.)

    Attributes:
        lr: the learning rate; may be changed between steps.
        velocity: v, tensor by tensor; empty without momentum.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], *, lr: float, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        self._parameters = list(parameters)
        self.lr = lr
        self._momentum = momentum
        self._weight_decay = weight_decay
        self.velocity = [torch.zeros_like(p) for p in self._parameters] if momentum else []

    def step(self) -> None:
        """Move the parameters that have a gradient: all of them, after a private step."""
        self.move([p.grad for p in self._parameters])

    def move(self, found: Sequence[Tensor | None]) -> None:
        """Move the parameters by these gradients, of which some may be None; they stay as they are.

        Two parameters may have one and the same tensor.
        """
        moving = [place for place, gradient in enumerate(found) if gradient is not None]
        gradients = [gradient for gradient in found if gradient is not None]
        values: list[Tensor] = [self._parameters[place].detach() for place in moving]
        if not values:
            return
        if self._weight_decay:
            gradients = list(torch._foreach_add(gradients, values, alpha=self._weight_decay))
        if self._momentum:
            velocity = [self.velocity[place] for place in moving]
            torch._foreach_mul_(velocity, self._momentum)
            torch._foreach_add_(velocity, gradients)
            gradients = velocity
        torch._foreach_add_(values, gradients, alpha=-self.lr)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        del set_to_none
        for parameter in self._parameters:
            parameter.grad = None
