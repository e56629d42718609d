"""A torch module as one flat float32 vector, and back.

The vector holds the parameters that train, in :meth:`~torch.nn.Module.named_parameters` order, and then the
floating-point buffers (batch-norm statistics). Integer buffers such as ``num_batches_tracked`` stay outside: they
are counters, not something to average. Where some parameters are frozen (adapters on a base model, LoRA) the buffers of
layers in which nothing trains stay outside too: tables and masks of the base are nothing to send, nor to add noise to.
So do buffers that a model's state dict leaves out (``persistent=False``), and those that hold infinity, as masks of
attention do: they are constants.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tacit.errors import ConfigError

REACHES_PAST = "it reaches a parameter by another way than its name, or computes parts again on the way back"
CHANGES = "a pass changes what the model or the loss holds, or a parameter"

PLAIN = {bool, int, float, str}
OF_TORCH = frozenset(vars(nn.Module()))  # where a module keeps its parts
_Place = tuple[int, int, int, bool, str]  # which memory, from which byte to which, whether it trains, a tensor's name
SHORT = 64  # entries; what is longer is a table, such as a vocabulary, and to look at all of it would slow every step


@dataclass(frozen=True, kw_only=True)
class Slot:
    """Where one tensor lies in the vector."""

    name: str
    shape: torch.Size
    start: int
    trains: bool

    @property
    def size(self) -> int:
        """How many numbers the tensor has."""
        return math.prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The order of a module's tensors in its vector.

    >>> layout = Parameters.of(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    >>> [slot.name for slot in layout.slots]
    ['0.weight', '0.bias', '1.weight', '1.bias', '1.running_mean', '1.running_var']
    >>> layout.size
    21
    """

    slots: tuple[Slot, ...]

    @classmethod
    def of(cls, module: nn.Module) -> Parameters:
        """Lay out the tensors of ``module``."""
        tensors = sent(module)
        if not any(trains for _, _, trains in tensors):
            raise ConfigError(f"Expected a model with parameters to train, {type(module).__name__} has none.")
        _check_memory(module)
        slots: list[Slot] = []
        start = 0
        for name, tensor, trains in tensors:
            if tensor.dtype != torch.float32:
                raise ConfigError(f"Expected float32 in {name!r}, got {tensor.dtype}. Convert the model with .float().")
            slots.append(Slot(name=name, shape=tensor.shape, start=start, trains=trains))
            start += tensor.numel()
        return cls(slots=tuple(slots))

    @property
    def size(self) -> int:
        """The length of the vector."""
        return self.slots[-1].start + self.slots[-1].size

    @property
    def names(self) -> tuple[str, ...]:
        """What the tensors are called."""
        return tuple(slot.name for slot in self.slots)

    def renamed(self, names: Sequence[str]) -> Parameters:
        """Return the same vector for a module that calls its tensors by other names."""
        return Parameters(slots=tuple(replace(slot, name=name) for slot, name in zip(self.slots, names, strict=True)))

    @property
    def trained(self) -> tuple[Slot, ...]:
        """The slots that have gradients; they come first."""
        return tuple(slot for slot in self.slots if slot.trains)

    def tensors(self, module: nn.Module) -> list[Tensor]:
        """Return the module's own tensors in the order of the vector, for whoever overwrites them often."""
        named = dict(module.named_parameters()) | dict(module.named_buffers())
        return [named[slot.name] for slot in self.slots]

    def read(self, module: nn.Module) -> Tensor:
        """Return a new vector with the module's present values."""
        return torch.cat([tensor.detach().reshape(-1) for tensor in self.tensors(module)])

    def write(self, module: nn.Module, vector: Tensor) -> None:
        """Copy ``vector`` into the module."""
        with torch.no_grad():
            for tensor, values in zip(self.tensors(module), self.split(vector), strict=True):
                tensor.copy_(values)

    def split(self, vector: Tensor) -> list[Tensor]:
        """Return views of ``vector``, one per slot, in the tensors' own shapes."""
        return [
            part.view(slot.shape)
            for part, slot in zip(torch.split(vector, [slot.size for slot in self.slots]), self.slots, strict=True)
        ]


def sent(module: nn.Module) -> list[tuple[str, Tensor, bool]]:
    """Return what a module's vector holds: names, tensors, and whether they train.

    >>> [name for name, _, _ in sent(nn.Sequential(nn.Linear(2, 3).requires_grad_(False), nn.Linear(3, 2)))]
    ['1.weight', '1.bias']
    """
    found: list[tuple[str, Tensor, bool]] = [
        (name, p, True) for name, p in module.named_parameters() if p.requires_grad
    ]
    whole = all(p.requires_grad for p in module.parameters())
    for name, buffer in module.named_buffers():
        owner = module.get_submodule(name.rpartition(".")[0])
        learns = whole or any(p.requires_grad for p in owner.parameters(recurse=False))
        if buffer.is_floating_point() and learns and not _constant(owner, name.rpartition(".")[2], buffer):
            found.append((name, buffer, False))
    return found


def _check_memory(module: nn.Module) -> None:
    """Refuse a tensor that lies in the memory of one that trains: copies of the model would part the two.

    A parameter under two names is one tensor, and recurrent layers on GPUs lie side by side in one memory.
    """
    places: list[_Place] = []
    for name, own in (*module.named_parameters(), *module.named_buffers()):
        if own.layout == torch.strided and not is_lazy(own) and own.numel():
            size = own.element_size()
            reach = sum((count - 1) * step for count, step in zip(own.shape, own.stride(), strict=True))
            first = int(own.storage_offset()) * size
            places.append((own.untyped_storage()._cdata, first, first + (reach + 1) * size, own.requires_grad, name))
    furthest: dict[tuple[int, bool], _Place] = {}  # of each memory, of all tensors before and of those that train
    for place in sorted(places, key=itemgetter(0, 1)):
        memory, first, end, trains, name = place
        for among in (False, True):
            before = furthest.get((memory, among))
            if before is not None and first < before[2] and (trains or before[3]):
                raise ConfigError(
                    f"{before[4]!r} and {name!r} lie in the same memory and are not one parameter: copies of the "
                    "model, which are what trains, would part them. Tie them as one parameter (decoder.weight = "
                    "encoder.weight), or give each of them numbers of its own (weight.data = weight.data.clone())."
                )
            if (trains or not among) and (before is None or end > before[2]):
                furthest[memory, among] = place


def _constant(owner: nn.Module, name: str, buffer: Tensor) -> bool:
    """Return whether a buffer says that it is no state: statistics of a norm always are, even once they overflowed."""
    if isinstance(owner, nn.modules.batchnorm._NormBase):
        return False
    return name in owner._non_persistent_buffers_set or bool(buffer.isinf().any())


def held_by(parts: Sequence[nn.Module]) -> list[bool | int | float | str]:
    """Return the numbers and texts that parts of a model hold: what a graph or a program takes for granted.

    >>> layer = nn.Dropout(0.5)
    >>> before = held_by([layer])
    >>> before == held_by([layer.eval()])
    False
    """
    found: list[bool | int | float | str] = []
    for part in parts:
        for name, value in vars(part).items():
            if type(value) in PLAIN:
                found.append(value)
            elif name not in OF_TORCH:
                found += _plain_in(value)
    return found


def _plain_in(value: Any) -> Iterator[bool | int | float | str]:
    """Yield the numbers and texts in lists, tuples and dictionaries that are short, and the lengths of all."""
    if type(value) in PLAIN:
        yield value
    elif isinstance(value, (dict, list, tuple)):
        yield len(value)
        if len(value) <= SHORT:
            for own in (*value.keys(), *value.values()) if isinstance(value, dict) else value:
                yield from _plain_in(own)


def attributes_of(module: nn.Module) -> dict[nn.Module, dict[str, Any]]:
    """Return what the parts of a model hold besides parameters, buffers and parts: counters, caches, settings."""
    return {part: {name: own for name, own in vars(part).items() if name not in OF_TORCH} for part in module.modules()}


def computes_again() -> bool:
    """Return whether somebody stands in for what the pass of this thread saves for the way back, as checkpoints do.

    They compute it again then, by what the model holds at that time. True of a torch that can't say.

    >>> with torch.autograd.graph.saved_tensors_hooks(lambda own: own, lambda own: own):
    ...     computes_again()
    True
    >>> computes_again()
    False
    """
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return top is None or top(True) is not None


class _Reads(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch gives it no types
    """Notices operations on the memory of some tensors, and those that are computed again on the way back."""

    met = False

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self._memory = {own.untyped_storage()._cdata for own in tensors if own.layout == torch.strided}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = (own for own in tree_leaves((args, kwargs)) if isinstance(own, Tensor) and own.layout == torch.strided)
        self.met |= any(own.untyped_storage()._cdata in self._memory for own in given) or computes_again()
        return func(*args, **(kwargs or {}))


def reads(tensors: Iterable[Tensor], computed: Callable[[], object]) -> bool:
    """Return whether a pass reads tensors in whose place others were put, by another way than their names.

    So does one that computes parts again on the way back, when the others are gone.

    Forms that put other tensors in a parameter's or a buffer's place, such as a map over clients, would compute with
    numbers that nobody trains, and nobody would notice.

    >>> layer = nn.Linear(2, 2)
    >>> given = {name: own.detach().clone() for name, own in layer.named_parameters()}
    >>> reads(layer.parameters(), lambda: torch.func.functional_call(layer, given, torch.ones(1, 2)))
    False
    >>> reads(layer.parameters(), lambda: layer(torch.ones(1, 2)))
    True
    """
    mode = _Reads(tensors)
    with mode:
        computed()
    return mode.met


def leaves(outputs: Tensor) -> Iterator[Tensor]:
    """Yield what trains of what outputs were computed with.

    >>> weight, other = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    >>> [leaf is weight for leaf in leaves((weight * 2.0 + other.detach()).sum())]
    [True]
    """
    waiting = [outputs.grad_fn] if outputs.grad_fn is not None else []
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        variable = getattr(node, "variable", None)
        if variable is not None:
            yield variable
        further = {own for own, _ in node.next_functions if own is not None} - seen
        seen |= further
        waiting += further


def reaches_past(outputs: Tensor, given: Iterable[Tensor]) -> bool:
    """Return whether outputs depend on anything that trains besides the tensors that a pass was given.

    Where those share the memory of the model's own, nothing but a gradient can be missing (see :func:`reads`).

    >>> weight, other = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    >>> reaches_past(weight * other, [weight]), reaches_past(weight * 2.0, [weight])
    (True, False)
    """
    known = {id(own) for own in given}
    return any(id(leaf) not in known for leaf in leaves(outputs))


def in_one_piece(module: nn.Module) -> nn.Module:
    """Return a copy in which recurrent layers hold their weights in one piece, as cuDNN asks for."""
    held = next((own for own in (*module.parameters(), *module.buffers())), None)
    own = copy.deepcopy(module)
    return own if held is None else own.to(held.device)


def hooked(parts: Sequence[nn.Module]) -> bool:
    """Return whether anybody listens to a pass of a part: a graph or a program would not call him."""
    return hooked_backwards(parts) or any(part._forward_hooks or part._forward_pre_hooks for part in parts)


def hooked_backwards(parts: Iterable[nn.Module]) -> bool:
    """Return whether anybody listens to a part's backward pass: under a map over clients he would not be called."""
    return any(part._backward_hooks or part._backward_pre_hooks for part in parts)
