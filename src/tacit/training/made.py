"""A module as it was made: what a client's passes leave in it goes with the client, and what is frozen stays as it is.

The numbers of a model's layout are sent, moved and written over. Everything else that a module holds is the same for
every client: what is frozen, counters, caches, in which mode its parts are. Where passes change it, the next client
would begin with something of the one before, which no clip bounds and no noise covers.
"""

from __future__ import annotations

import copy
import functools
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter, is_, itemgetter
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.training.dropout import KeyedDropout
from tacit.training.parameters import OF_TORCH, attributes_of
from tacit.training.state import KNOWN_BY_VALUE, LARGE_ARRAY, Itself, state_of

_AT_ONCE = {"cpu": 1 << 15, "cuda": 1 << 20}  # numbers of a checksum; on a CPU they stay in its cache
_MARKS = attrgetter("requires_grad", "_backward_hooks")
_STILL = KNOWN_BY_VALUE | {FunctionType, BuiltinFunctionType, type}
_LOOKED_AT = 1 << 16  # numbers of a tensor in an attribute, of which more than its version is looked at
_TELLING = {"training", "_parameters", "_buffers", "_modules"}


class Frozen:
    """What a module holds besides the numbers that are sent, and has to be the same whenever it is looked at.

    Args:
        module: the module.
        sent: the tensors of its layout; all other parameters are frozen, and all other buffers of floats.
    """

    def __init__(self, module: nn.Module, sent: Collection[Tensor]) -> None:
        known = {id(tensor) for tensor in sent}
        self._parameters = list(module.named_parameters())
        self._module = module
        numbers = (own for own in module.named_buffers() if own[1].is_floating_point() or own[1].is_complex())
        self._still = {name: own for name, own in (*self._parameters, *numbers) if id(own) not in known}
        self._sums = {name: checksum(tensor) for name, tensor in self._still.items()}

    def check(self) -> None:
        """Refuse a pass that moved what is frozen, or put another tensor in the place of a parameter.

        It is no part of the update, and no clip bounds what comes to others that way.
        """
        own = dict(self._module.named_parameters())
        other = next((name for name, tensor in self._parameters if own.get(name) is not tensor), None)
        if other is not None:
            raise ConfigError(
                f"A pass or a hook put another tensor in the place of the parameter {other!r}: what a model is made of "
                "has to stay as it is. Write to the parameter instead (parameter.data.copy_(...)), or register what "
                "changes as a buffer."
            )
        moved = next((name for name, tensor in self._still.items() if checksum(tensor) != self._sums[name]), None)
        if moved is not None:
            raise ConfigError(
                f"{moved!r} is frozen, and training changed it: what is frozen is neither sent nor clipped, "
                "and has to stay as it is. Let it train (requires_grad_()), register a buffer that is to be sent with "
                "persistent=True, keep hooks and forward passes from writing to it, and put group norm in the place of "
                "batch norm before adapters are added: tacit.fix(model)."
            )


class AsMade:
    """Lets every client begin with a module as it was made, and refuses what it may not change.

    Args:
        module: the module.
        sent: the tensors of its layout, which whoever trains writes.
        keeps: whether passes are known to change what attributes hold inside; they are copied anew for every client
            then. Else they are looked at before every client, and copied anew once they have changed: some change for
            some examples only.
    """

    def __init__(self, module: nn.Module, sent: Sequence[Tensor], *, keeps: bool = False) -> None:
        self._table = _Table(module)
        self._frozen = Frozen(module, sent)
        self.counters = [b for name, b in module.named_buffers() if name.endswith("num_batches_tracked")]
        self._buffers = [
            (part, name, tensor)
            for part in module.modules()
            for name, tensor in part._buffers.items()
            if tensor is not None
        ]
        keys = (part.key for part in module.modules() if isinstance(part, KeyedDropout))
        known = {id(tensor) for tensor in (*sent, *self.counters, *keys)}
        whole = (b for b in module.buffers() if not (b.is_floating_point() or b.is_complex() or id(b) in known))
        self._whole = [(buffer, buffer.clone()) for buffer in whole]
        self._shared = {id(part): part for part in (*module.modules(), *module.parameters(), *module.buffers())}
        self._inside = _Inside(attributes_of(module), self._shared.values())
        self._keeps, self._looks = keeps, not keeps
        aside = [*self._inside.views, *(() if keeps else self._inside.large)]
        self._shared |= {id(own): own for own in aside}
        self._begins = self._copied(attributes_of(module)) if keeps or self._inside else {}

    def begin(self) -> None:
        """Put back what passes of the client before have left in the module and is no part of the model."""
        self._table.put_back()
        for counter in self.counters:
            counter.zero_()
        for buffer, before in self._whole:  # a version would not tell: it stays when .data is written to
            if not torch.equal(buffer, before):
                buffer.copy_(before)
        if self._looks:  # on, too, when copies are made: what is large is not among them
            self._keeps |= self._inside.changed()
        if self._keeps:  # a copy takes its time
            for part, own in self._copied(self._begins).items():
                vars(part).update(own)

    def _copied(self, attributes: dict[nn.Module, dict[str, Any]]) -> dict[nn.Module, dict[str, Any]]:
        """Return a copy of attributes that has the module's own parts, parameters and buffers, and views of these."""
        found: dict[nn.Module, dict[str, Any]] = {}
        memo = dict(self._shared)
        for part, own in attributes.items():
            found[part] = {}
            for name, value in own.items():
                try:
                    found[part][name] = copy.deepcopy(value, memo)
                except Exception as error:  # a lock, say; a module may know how it is copied, and not what it holds
                    if self._keeps:
                        raise ConfigError(
                            f"A pass changes what {type(part).__name__} holds, and {name!r} can't be copied for every "
                            f"client ({error}). Keep locks, files and the like out of the model."
                        ) from error
                    found[part][name] = value
        return found

    def settle(self) -> None:
        """Copy a buffer that a pass put in the place of another to where that one was."""
        for part, name, tensor in self._buffers:
            found = part._buffers.get(name)
            if found is tensor:
                continue
            if found is None or found.shape != tensor.shape:
                raise ConfigError(
                    f"A pass put something of another shape in the place of the buffer {name!r} of "
                    f"{type(part).__name__}: what a model is made of has to stay as it is."
                )
            with torch.no_grad():
                tensor.copy_(found)
            part._buffers[name] = tensor

    def check(self) -> None:
        """Settle, and refuse what :class:`Frozen` refuses."""
        self.settle()
        self._frozen.check()


class _Inside:
    """What lists, tables, tensors and other objects in a module's attributes hold; false where there are none.

    Args:
        attributes: of each part.
        shared: parts, parameters and buffers, which others look after.

    Attributes:
        views: tensors in the memory of parameters and buffers.
        large: tensors, arrays and tables that are not copied unless they are known to change.
    """

    def __init__(self, attributes: Mapping[nn.Module, Mapping[str, Any]], shared: Collection[Any]) -> None:
        known = {id(part) for part in shared}
        every = (own for part in attributes.values() for own in part.values())
        self._held = [own for own in every if not (_stays(own) or id(own) in known)]
        self._before = state_of(*self._held, written=False)
        memory = {_memory(own) for own in shared if isinstance(own, Tensor)} - {None}
        met = [own.value for own in self._before if isinstance(own, Itself) and id(own.value) not in known]
        tensors = [own for own in met if isinstance(own, Tensor)]
        self.views = [own for own in tensors if _memory(own) in memory]
        among = {id(own) for own in self.views}
        free = [own for own in tensors if id(own) not in among and type(own) in (Tensor, nn.Parameter)]
        small = [own for own in free if own.numel() <= _LOOKED_AT and not own.is_meta and not own.is_nested]
        self._small = [(own, own._version, checksum(own)) for own in small]
        among = {id(own) for own in small}
        self._large = [(own, own._version) for own in free if id(own) not in among]
        tables = [own for own in met if isinstance(own, dict | list | tuple | set | frozenset | deque)]
        self._tables = [(own, len(own)) for own in tables]
        arrays = [own for own in met if isinstance(own, np.ndarray) and own.nbytes > LARGE_ARRAY]
        self.large = [*(own for own, _ in self._large), *tables, *arrays]

    def __bool__(self) -> bool:
        return bool(self._held)

    def changed(self) -> bool:
        """Return whether any of it is another than it was.

        Raises:
            ConfigError: what is too large to be put back changed; of that a version tells, or how long it is.
        """
        large = next((own for own, version in self._large if own._version != version), None)
        table = next((own for own, count in self._tables if len(own) != count), None)
        if large is not None or table is not None:
            what = f"a tensor of shape {tuple(large.shape)}" if large is not None else f"a {type(table).__name__}"
            raise ConfigError(
                f"A pass changed {what} that the model holds in an attribute and that is too large to be copied for "
                "every client: what one leaves there would reach the next. Register a tensor as a buffer "
                "(register_buffer), which is sent, or keep the forward pass from writing to it."
            )
        if any(own._version != version or checksum(own) != before for own, version, before in self._small):
            return True
        return bool(self._held) and state_of(*self._held, written=False) != self._before


def _stays(value: Any) -> bool:
    """Return whether nothing in a value can change."""
    return type(value) in _STILL or (type(value) is tuple and all(map(_stays, value)))


def _memory(tensor: Tensor) -> int | None:
    """Return which memory a tensor lies in, as far as it can be told."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError, ValueError):  # it leaves out zeros, or has no numbers yet
        return None


class _Table:
    """What a module is besides numbers, as it was made: names, attributes, modes of its parts, and what trains.

    Attributes are told from others by what they are, not by what they hold inside. To look takes a microsecond for a
    part.
    """

    def __init__(self, module: nn.Module) -> None:
        parts = [vars(part) for part in module.modules()]
        self._parameters = list(module.parameters())
        self._tensors = [*self._parameters, *module.buffers()]
        self._marks = [_MARKS(tensor) for tensor in self._tensors]
        inside: list[Any] = [own for part in parts for name, own in part.items() if name in OF_TORCH]
        tables = [*parts, *map(vars, self._tensors), *(own for own in inside if isinstance(own, dict | set))]
        self._before = [(table, table.copy()) for table in tables]
        self._sizes = [*map(len, tables)]
        self._tables = tables
        # Torch's own dictionaries of hooks stay the same objects.
        telling = [[name for name in part if name not in OF_TORCH or name in _TELLING] for part in parts]
        self._attributes = [(itemgetter(*names), part) for names, part in zip(telling, parts, strict=True)]
        self._filled = [own for own in tables[len(parts) :] if own]
        self._names = [*chain.from_iterable(self._filled)]
        self._values = [*self._found()]

    def put_back(self) -> None:
        """Make the module what it was."""
        if not self._same():
            for table, before in self._before:
                table.clear()
                table.update(before)
        if [*map(_MARKS, self._tensors)] != self._marks:
            for tensor, marks in zip(self._tensors, self._marks, strict=True):
                if _MARKS(tensor) != marks:
                    trains, tensor._backward_hooks = marks
                    tensor.detach_().requires_grad_(trains)
        for parameter in self._parameters:
            parameter.grad = None

    def _same(self) -> bool:
        """Return whether the same names stand for the same objects."""
        if [*map(len, self._tables)] != self._sizes or [*chain.from_iterable(self._filled)] != self._names:
            return False
        try:
            return all(map(is_, self._found(), self._values))
        except KeyError:  # there is another in the place of a name
            return False

    def _found(self) -> Iterator[Any]:
        inside = (own.values() for own in self._filled if not isinstance(own, set))
        return chain(chain.from_iterable([get(own) for get, own in self._attributes]), chain.from_iterable(inside))


def checksum(tensor: Tensor) -> list[int]:
    """Return sums of a tensor's bytes, taken as whole numbers times odd ones that tell where they lie.

    One of them changes wherever one number does, and where numbers change places.
    """
    if tensor.layout != torch.strided:
        return [own for part in _inside(tensor) for own in checksum(part)]
    if tensor.is_quantized:
        return checksum(tensor.int_repr())
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1)
    size = flat.element_size()
    wide = not flat.numel() * size % 8 and not flat.storage_offset() * size % 8  # half as many, and none is converted
    whole = torch.int64 if wide else {1: torch.uint8, 2: torch.int16, 4: torch.int32}.get(size, torch.int64)
    numbers, places = flat.view(whole), _places(flat.device)
    sums = [(part * places[: len(part)]).sum() for part in torch.split(numbers, len(places))]
    found: list[int] = torch.stack(sums).tolist()
    return found


def _inside(tensor: Tensor) -> list[Tensor]:
    """Return what a tensor that leaves out zeros consists of."""
    match tensor.layout:
        case torch.sparse_coo:
            return [tensor._indices(), tensor._values()]
        case torch.sparse_csr | torch.sparse_bsr:
            return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
        case torch.sparse_csc | torch.sparse_bsc:
            return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
        case _:
            return [tensor.to_dense()]


@functools.cache
def _places(device: torch.device) -> Tensor:
    """Return an odd number for each place; times an odd number, no two whole numbers of 64 bits are the same."""
    count = _AT_ONCE.get(device.type, _AT_ONCE["cuda"])
    draw = torch.Generator().manual_seed(0)
    return (2 * torch.randint(0, 1 << 62, (count,), generator=draw) + 1).to(device)
