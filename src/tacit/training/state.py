"""What somebody's code and values go by: state that may change from one call to the next."""

from __future__ import annotations

import functools
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.training.parameters import OF_TORCH, PLAIN

_LIBRARIES = {"torch", "numpy"}  # whose functions and classes stay as they are
_MOST_CODE = 256  # functions and classes that are looked into; a library of somebody's has thousands
_MOST_VALUES = 1 << 14  # the same, the nearest first; code may reach all that a process holds
LARGE_ARRAY = 1 << 16  # bytes
LARGE_TABLE = 1 << 16  # entries of a list or a table
KNOWN_BY_VALUE = {*PLAIN, type(None), bytes, torch.device, torch.dtype, torch.layout, torch.memory_format, torch.Size}
_OF_CLASSES = {"__module__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__slots__", "__qualname__"}
_OF_CLASSES |= {"__parameters__", "__orig_bases__", "__abstractmethods__", "_abc_impl", "__dataclass_fields__"}


def state_of(*roots: Any, written: bool = True) -> list[Any]:
    """Return what somebody's code and values go by that may change from one call to the next.

    These are the numbers, texts and arrays in attributes, closures and the globals that functions name, however deep,
    the functions and classes themselves, generators' states, which tensors there are and, if ``written``, how often
    each was written to. Code of torch, NumPy and Tacit is not looked into, nor what is in arrays of more than 64 kB
    and in tables of more than 65,536 entries, of which it is known how many there are. Of more than 16,384 values only
    the nearest are looked into.

    >>> weight = {"now": 1.0}
    >>> loss = functools.partial(torch.mul, out=weight)
    >>> before = state_of(loss)
    >>> before == state_of(loss)
    True
    >>> weight["now"] = 2.0
    >>> before == state_of(loss)
    False
    """
    found: list[Any] = []
    seen: dict[int, tuple[int, Any]] = {}
    waiting, code = deque(roots), 0
    while waiting:
        value = waiting.popleft()
        if value is None or type(value) in KNOWN_BY_VALUE:
            found.append(value)
        elif id(value) in seen:
            found.append(("seen", seen[id(value)][0]))
        else:
            seen[id(value)] = len(seen), value
            is_code = isinstance(value, FunctionType | type)
            code += is_code
            told = _told(value, written=written)
            found += told
            near = len(seen) <= _MOST_VALUES and (code <= _MOST_CODE or not is_code)
            if (not told or is_code) and near and not _of_a_library(value):
                parts = _parts_of(value)
                found.append(len(parts))
                waiting += parts
    return found


def _told(value: Any, *, written: bool) -> list[Any]:  # noqa: PLR0911 - a table of rules
    """Return what is to be known of code, and of a value that is not looked into; nothing of others."""
    if isinstance(value, FunctionType):
        return [value.__code__]
    if isinstance(value, Tensor):
        return [Itself(value), value._version if written else 0]
    if isinstance(value, np.ndarray | np.generic):
        return [value.tobytes() if value.nbytes <= LARGE_ARRAY and value.dtype != object else Itself(value)]
    if isinstance(value, torch.Generator):
        return [value.get_state().numpy().tobytes()]
    if isinstance(value, np.random.Generator):
        return [repr(value.bit_generator.state)]
    if isinstance(value, np.random.RandomState):
        return [repr(value.get_state(legacy=False))]
    if type(value).__module__ == "random":  # Python's own generators
        return [value.getstate()]
    if isinstance(value, bytearray | array):
        return [bytes(value)]
    if isinstance(value, dict | list | tuple | set | frozenset | deque):
        if len(value) > LARGE_TABLE:
            return [Itself(value), len(value)]
        columns = [tuple(value.keys()), tuple(value.values())] if isinstance(value, dict) else [tuple(value)]
        return [("all", *columns)] if all(KNOWN_BY_VALUE.issuperset(map(type, own)) for own in columns) else []
    itself = isinstance(value, type | ModuleType | BuiltinFunctionType) or _of_a_library(value)
    return [Itself(value)] if itself else []


@dataclass(frozen=True, eq=False)
class Itself:
    """Equal to the same object alone, which it keeps: its number would be given to another once it is gone."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Itself) and self.value is other.value

    __hash__ = None  # type: ignore[assignment]  # nobody looks it up


def _of_a_library(value: Any) -> bool:
    is_code = isinstance(value, FunctionType | type)
    own = getattr(value if is_code else type(value), "__module__", None) or ""
    if own.partition(".")[0] == "tacit":
        return is_code
    return own.partition(".")[0] in _LIBRARIES and not isinstance(value, nn.Module)


def _parts_of(value: Any) -> list[Any]:  # noqa: PLR0911 - a table of rules
    """Return what a value is made of."""
    if isinstance(value, dict | list | tuple | set | frozenset | deque):
        return [*value.keys(), *value.values()] if isinstance(value, dict) else list(value)
    if isinstance(value, functools.partial | MethodType):
        names = ("func", "args", "keywords", "__self__", "__func__")
        return [getattr(value, name) for name in names if hasattr(value, name)]
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
        return [*cells, *_globals_of(value), value.__defaults__, value.__kwdefaults__]
    if isinstance(value, staticmethod | classmethod):
        return [value.__func__]
    if isinstance(value, property):
        return [value.fget]
    if isinstance(value, type):
        return [own for name, own in vars(value).items() if name not in _OF_CLASSES]
    own = vars(value) if hasattr(value, "__dict__") else {}
    parts = [part for name, part in own.items() if name not in OF_TORCH or type(part) in PLAIN]
    if isinstance(value, nn.Module):
        parts += [*value._parameters.values(), *value._buffers.values(), *value._modules.values()]
    slots = {name for kind in type(value).__mro__ for name in _slots(kind)}
    parts += [getattr(value, name) for name in sorted(slots) if hasattr(value, name)]
    return [*parts, *(kind for kind in type(value).__mro__ if not _of_a_library(kind) and kind is not object)]


def _slots(kind: type) -> tuple[str, ...]:
    own = vars(kind).get("__slots__", ())
    return (own,) if isinstance(own, str) else tuple(own)


def _globals_of(function: FunctionType) -> Iterator[Any]:
    """Yield the globals that a function names, and of modules among them what it names of these."""
    names = list(_named_in(function.__code__))
    for name in names:
        if name not in function.__globals__:
            continue
        value = function.__globals__[name]
        yield value
        if isinstance(value, ModuleType) and value.__name__.partition(".")[0] not in _LIBRARIES:
            yield from (vars(value)[own] for own in names if own in vars(value))


def _named_in(code: CodeType) -> Iterator[str]:
    """Yield the names that code uses and are not local to it, and those of functions that it makes."""
    yield from code.co_names
    for own in code.co_consts:
        if isinstance(own, CodeType):
            yield from _named_in(own)
