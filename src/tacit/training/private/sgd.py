"""SGD with momentum on gradients that are already private: :class:`torch.optim.SGD` with a state one can keep.

(The first step of an optimiser of :mod:`torch.optim` loads torch's compiler, which takes seconds; a short run would
spend most of its time on that.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Sgd:
    """Moves parameters against their gradients: ``v = momentum v + g + decay w``, ``w = w - lr v``.

    Attributes:
        lr: the learning rate; may be changed between steps.
        velocity: v, tensor by tensor.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], *, lr: float, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        self._parameters = list(parameters)
        self.lr = lr
        self._momentum = momentum
        self._weight_decay = weight_decay
        self.velocity = [torch.zeros_like(p) for p in self._parameters]

    def step(self) -> None:
        """Move the parameters that have a gradient: all of them, after a private step."""
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        values: list[Tensor] = [p.detach() for p in self._parameters]
        if self._weight_decay:
            torch._foreach_add_(gradients, values, alpha=self._weight_decay)
        if self._momentum:
            torch._foreach_mul_(self.velocity, self._momentum)
            torch._foreach_add_(self.velocity, gradients)
            gradients = self.velocity
        torch._foreach_add_(values, gradients, alpha=-self.lr)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        del set_to_none
        for parameter in self._parameters:
            parameter.grad = None
