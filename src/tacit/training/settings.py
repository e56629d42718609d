"""How a client trains: the settings of local SGD, and the losses."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from tacit.errors import ConfigError

Loss = Callable[[Tensor, Tensor], Tensor]  # outputs (n, ...), labels (n, ...) -> one loss per example, (n,)


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    r"""Local SGD, with the proximal term of FedProx (Li et al. 2020).

    A client minimises :math:`F_k(w) + \frac{\mu}{2} \lVert w - w_{global} \rVert^2`. In each step the gradient is
    clipped (``grad_clip``, an L2 norm over the whole model), weight decay is added, and momentum is applied as in
    :class:`torch.optim.SGD`. The rate falls in a line from ``lr`` in the first of T rounds to ``final * lr`` in the
    last, and is multiplied by ``decay`` after each round. Clients that end in smaller steps end closer together, and
    their average is better.
    """

    epochs: int
    batch_size: int
    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    final: float = 1.0
    rounds: int = 1  # T
    decay: float = 1.0
    grad_clip: float | None = None
    mu: float = 0.0


cross_entropy: Loss = functools.partial(F.cross_entropy, reduction="none")  # of each example; outputs are logits


def squared_error(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean squared error of each example."""
    errors = F.mse_loss(outputs, labels.to(outputs.dtype).view_as(outputs), reduction="none")
    return errors.flatten(1).mean(1) if errors.dim() > 1 else errors


LOSSES: Mapping[str, Loss] = {"cross-entropy": cross_entropy, "squared-error": squared_error}


def loss_named(loss: str | Loss) -> Loss:
    """Return the loss of this name, or the function that was given."""
    if callable(loss):
        return loss
    if not isinstance(loss, str) or loss not in LOSSES:
        raise ConfigError(f"Unknown loss {loss!r}. Known: {', '.join(LOSSES)}, or a function of your own.")
    return LOSSES[loss]
