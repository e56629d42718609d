"""How a client trains: the settings of its optimiser, and the losses."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from tacit.errors import ConfigError

Loss = Callable[[Tensor, Tensor], Tensor]  # outputs (n, ...), labels (n, ...) -> one loss per example, (n,)


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    r"""Local training by SGD or another optimiser, with the proximal term of FedProx (Li et al. 2020).

    A client minimises :math:`F_k(w) + \frac{\mu}{2} \lVert w - w_{global} \rVert^2`. In each step the gradient is
    clipped (``grad_clip``, an L2 norm over the whole model), weight decay is added, and momentum is applied as in
    :class:`torch.optim.SGD`. The rate falls in a line, or along half a cosine, from ``lr`` in the first of T rounds to
    ``final * lr`` in the last, and is multiplied by ``decay`` after each round. Clients that end in smaller steps end
    closer together, and their average is better. With Adam or AdamW, or an optimiser of one's own, what it remembers
    begins anew in each round of each client.
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
    name: Literal["sgd", "adam", "adamw"] = "sgd"
    beta1: float = 0.9  # of Adam and AdamW
    beta2: float = 0.999
    eps: float = 1e-8
    schedule: Literal["linear", "cosine", "constant"] = "linear"  # how the rate falls from lr to final * lr
    warmup: int = 0  # rounds in which the rate rises in a line before
    own_schedule: Callable[[int], float] | None = None  # instead: the rate of a round
    factory: Callable[[list[nn.Parameter]], Any] | None = None  # instead of ``name``: makes the optimiser

    @property
    def is_sgd(self) -> bool:
        """Whether steps are those of SGD with momentum, which every form of training knows."""
        return self.name == "sgd" and self.factory is None

    @property
    def descends(self) -> bool:
        """Whether a step is the gradient times the rate and nothing else."""
        own = self.mu or self.grad_clip is not None or self.weight_decay or self.momentum
        return self.is_sgd and not own


cross_entropy: Loss = functools.partial(F.cross_entropy, reduction="none")  # of each example; outputs are logits


def squared_error(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean squared error of each example."""
    errors = F.mse_loss(outputs, labels.to(outputs.dtype).view_as(outputs), reduction="none")
    return errors.flatten(1).mean(1) if errors.dim() > 1 else errors


def binary_cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the binary cross-entropy of each example, whose output is one logit and whose label is 0 or 1."""
    wanted = labels.to(outputs.dtype).view_as(outputs)
    losses = F.binary_cross_entropy_with_logits(outputs, wanted, reduction="none")
    return losses.flatten(1).mean(1) if losses.dim() > 1 else losses


LOSSES: Mapping[str, Loss] = {
    "cross-entropy": cross_entropy,
    "squared-error": squared_error,
    "binary-cross-entropy": binary_cross_entropy,
}
_OPTIONS = ("weight", "pos_weight", "label_smoothing", "ignore_index")
_TORCHS: dict[type[nn.Module], Loss] = {
    nn.CrossEntropyLoss: cross_entropy,
    nn.MSELoss: squared_error,
    nn.BCEWithLogitsLoss: binary_cross_entropy,
}


def gives_logits(loss: Loss) -> bool:
    """Return whether a loss takes one output per example for the logit of class 1."""
    return loss is binary_cross_entropy


def loss_named(loss: str | Loss) -> Loss:
    """Return the loss of this name, or the function that was given.

    The losses of :mod:`torch.nn` are taken too, whatever their reduction: one loss per example is what is needed.
    """
    if isinstance(loss, nn.Module) and hasattr(loss, "reduction"):
        return _each(loss)
    if isinstance(loss, type) and loss in _TORCHS:
        raise ConfigError(f"Expected a loss, got the class {loss.__name__}. Make one of it first: {loss.__name__}().")
    if callable(loss):
        return loss
    if not isinstance(loss, str) or loss not in LOSSES:
        raise ConfigError(f"Unknown loss {loss!r}. Known: {', '.join(LOSSES)}, or a function of your own.")
    return LOSSES[loss]


def is_apart(loss: Loss) -> bool:
    """Return whether it is known that nobody beside an example changes its loss: of Tacit's, and of torch's unreduced.

    >>> is_apart(cross_entropy), is_apart(loss_named(nn.CrossEntropyLoss(label_smoothing=0.1)))
    (True, True)
    >>> is_apart(lambda outputs, labels: cross_entropy(outputs, labels) / len(labels))
    False
    """
    if isinstance(loss, functools.partial):
        own = getattr(loss.func, "__module__", "") == F.__name__
        return own and not loss.args and loss.keywords.get("reduction") == "none"
    if isinstance(loss, _Each):
        return type(loss.single).__module__ == "torch.nn.modules.loss"
    return any(loss is own for own in LOSSES.values())


def _each(loss: nn.Module) -> Loss:
    """Return a loss of torch's as one number per example."""
    kind: Any = type(loss)
    if kind in _TORCHS and all(getattr(loss, key, None) == getattr(kind(), key, None) for key in _OPTIONS):
        return _TORCHS[kind]
    single = copy.copy(loss)
    single.reduction = "none"  # type: ignore[assignment]  # the losses of torch have it; nn.Module does not say so
    return _Each(single)


@dataclass(frozen=True)
class _Each:
    """A loss of one number per example, which a module computes without reduction."""

    single: nn.Module

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        losses: Tensor = self.single(outputs, labels)
        return losses.flatten(1).mean(1) if losses.dim() > 1 else losses
