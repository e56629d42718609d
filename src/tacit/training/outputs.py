"""What models give: a tensor, or something that has one under ``logits``, as the models of Hugging Face do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError


def tensor_of(outputs: Any) -> Tensor:
    """Return the tensor that a model's outputs are, or that they have under ``logits``.

    >>> tensor_of({"logits": torch.zeros(2, 3), "loss": None}).shape
    torch.Size([2, 3])
    """
    found = outputs
    if not isinstance(outputs, Tensor):
        found = getattr(outputs, "logits", None)
        if found is None and isinstance(outputs, Mapping):
            found = outputs.get("logits")
    if not isinstance(found, Tensor):
        raise ConfigError(
            f"Expected the model to return a tensor, or outputs with one under .logits or ['logits'], got "
            f"{type(outputs).__name__}."
        )
    return found


@contextmanager
def as_tensors(module: nn.Module, features: Tensor) -> Iterator[None]:
    """Let a model return its logits for a while, where it returns something around them; others stay as they are."""
    if not isinstance(module, nn.Module) or not _wraps(module, features):
        yield
        return
    handle = module.register_forward_hook(lambda _module, _inputs, outputs: tensor_of(outputs))
    try:
        yield
    finally:
        handle.remove()


def _wraps(module: nn.Module, features: Tensor) -> bool:
    modes = {part: part.training for part in module.modules()}
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            device = next((p.device for p in module.parameters()), features.device)
            outputs = module.eval()(features[:2].to(device))
    except Exception:  # what does not fit is said where model and loss are tried together
        return False
    finally:
        for part, training in modes.items():
            part.training = training
    return not isinstance(outputs, Tensor) and not isinstance(outputs, tuple | list) and outputs is not None
