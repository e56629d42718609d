"""What models give: a tensor, or something that has one under ``logits``, as the models of Hugging Face do."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils.hooks import RemovableHandle

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
    handle = give_tensors(module, features) if isinstance(module, nn.Module) else None
    try:
        yield
    finally:
        if handle is not None:
            handle.remove()


def give_tensors(module: nn.Module, features: Tensor) -> RemovableHandle | None:
    """Let a model return its logits from now on, where it returns something around them; return what ends that."""
    if not _wraps(module, features):
        return None
    return module.register_forward_hook(_unwrap)


def unwraps(module: nn.Module) -> bool:
    """Return whether a model returns its logits since :func:`give_tensors` let it."""
    return _unwrap in module._forward_hooks.values()


def _unwrap(_module: nn.Module, _inputs: Any, outputs: Any) -> Tensor:
    return tensor_of(outputs)


def copy_of(module: nn.Module, features: Tensor) -> nn.Module:
    """Return a copy of a model to try things on: a pass, ``eval()`` and ``train()`` may change what a model holds.

    Two kinds have no copy, nor could they train, before a pass of their own: lazy layers, which learn their sizes from
    it, and layers that hold a tensor which they computed with a gradient.
    """
    tensors = (*module.parameters(), *module.buffers())
    held = (own for part in module.modules() for own in vars(part).values() if isinstance(own, Tensor))
    if any(is_lazy(own) for own in tensors) or not all(own.is_leaf for own in held):
        _pass_once(module, features)
    try:
        return copy.deepcopy(module)
    except Exception as error:  # whatever it keeps that has no copy
        told = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise ConfigError(
            f"The model ({type(module).__name__}) can't be copied ({told}), and it is copies that are tried, trained "
            "and tested. Keep files, locks and the like out of it."
        ) from error


def _pass_once(module: nn.Module, features: Tensor) -> None:
    modes = {part: part.training for part in module.modules()}
    try:
        for part in modes:
            part.training = False  # and not by eval(), which may do more
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            module(features[:2].clone().to(_device(module, features)))
    finally:
        for part, training in modes.items():
            part.training = training


def _wraps(module: nn.Module, features: Tensor) -> bool:
    try:
        own = copy_of(module, features).eval()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            outputs = own(features[:2].clone().to(_device(own, features)))
    except Exception:  # what does not fit is said where model and loss are tried together
        return False
    return not isinstance(outputs, Tensor) and not isinstance(outputs, tuple | list) and outputs is not None


def _device(module: nn.Module, features: Tensor) -> torch.device:
    return next((own.device for own in module.parameters()), features.device)
