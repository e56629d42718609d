"""What a model keeps from pass to pass: parameters, buffers, and whatever its parts have in attributes of their own."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.errors import ConfigError

_TORCHS_OWN = set(vars(nn.Module())) - {"_buffers"}
_DEEPEST = 6


def copied(model: nn.Module) -> nn.Module:
    """Return a copy of the model, tensors that are results of computations included."""
    computed = {id(value): value.detach().clone() for _, value in _values(model) if _is_result(value)}
    try:
        return copy.deepcopy(model, computed)
    except Exception as error:  # whatever it keeps that has no copy
        told = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise ConfigError(
            f"The model ({type(model).__name__}) can't be copied ({told}), so that nobody can try whether it keeps "
            "examples apart. Keep files, locks and the like out of it."
        ) from error


def kept(model: nn.Module) -> dict[str, Any]:
    """Return every number, text and array that the model holds, by name: its own, not copies."""
    return {**dict(model.named_parameters()), **dict(_values(model))}


def changed(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """Return the name of something that differs between two models' states, or None."""
    for name in [*one, *other]:
        if name not in one or name not in other or not _same(one[name], other[name]):
            return name
    return None


def _values(model: nn.Module) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for prefix, part in model.named_modules():
        for name, value in vars(part).items():
            if name == "_buffers":
                yield from _leaves(prefix, value, seen, 0)
            elif name not in _TORCHS_OWN:
                yield from _leaves(f"{prefix}.{name}" if prefix else name, value, seen, 0)


def _leaves(name: str, value: Any, seen: set[int], depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, nn.Parameter):
        return
    if isinstance(value, (Tensor, bool, int, float, complex, str, bytes, np.generic, np.ndarray)):
        yield name, value
        return
    if depth == _DEEPEST or id(value) in seen or isinstance(value, type):
        return
    seen.add(id(value))
    if isinstance(value, Mapping):
        inner: Iterator[tuple[Any, Any]] = iter(list(value.items()))
    elif isinstance(value, (Sequence, set, frozenset)) or type(value).__name__ == "deque":
        yield f"{name} (length)", len(value)
        inner = enumerate(list(value))
    else:
        inner = iter([(key, own) for key, own in getattr(value, "__dict__", {}).items() if key not in _TORCHS_OWN])
    for key, own in inner:
        yield from _leaves(f"{name}.{key}" if name else str(key), own, seen, depth + 1)


def _is_result(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.is_leaf


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        alike = one.shape == other.shape and one.dtype == other.dtype
        return alike and torch.equal(one.detach().nan_to_num(), other.detach().nan_to_num())
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.shape == other.shape and one.tobytes() == other.tobytes()
    return type(one) is type(other) and repr(one) == repr(other)  # NaN equals itself here
