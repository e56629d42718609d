"""Many steps of plain SGD of one client as one list of native calls, made of a step that was followed.

A step of a transformer that was written down (:mod:`tacit.training.straight`) is some three hundred operations of
torch's, most of them views; a recurrent network's are few, and what is around its layers is a fifth of its time. Here
what computes is a native call, what only looks at numbers in another way is an address, and an array lies where another
lay that nobody needs any more. Python's lock is needed to begin and to end only, whichever operations there are, and
products read their matrices as they lie.

Sums are added up in another order than torch's: like programs that leave places out (:mod:`tacit.training.narrow`) a
list is made before the first step, or never. Operations that have no rule here leave the step to TorchScript.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx

from tacit.training.native import LANES, available
from tacit.training.native.attention import ATTEND, ATTEND_BACK, GELU
from tacit.training.native.calls import Calls, Kind, Place, Room, place
from tacit.training.native.linear import LINEAR, LINEAR_BACK
from tacit.training.native.recurrent import RECUR, RECUR_BACK

_ROOM, _FEATURES, _LABELS, _ROWS, _TOTAL, _RATE, _FIRST = range(7)  # tensors; parameters come behind, then constants
_STEPS = 8  # of a call: between calls whoever wants to stop a run is heard
_AXES = 4  # of numbers that are copied
_ATEN = torch.ops.aten


class NoRule(Exception):  # noqa: N818 - it ends no program
    """A step has an operation that no native call computes."""


@dataclass(eq=False)
class Buffer:
    """Memory of a step: of a tensor that is given, or so many floats in the room for as long as they are needed."""

    floats: int = 0
    given: int | None = None
    part: tuple[Value, Tensor] | None = None  # what it is where it is not zero, and how that part of it lies


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of a step: where it lies, and a tensor without numbers that says how."""

    buffer: Buffer
    like: Tensor

    @property
    def shape(self) -> torch.Size:
        """Its shape."""
        return self.like.shape

    @property
    def at(self) -> tuple[Buffer, int]:
        """Where its first number is."""
        return self.buffer, int(self.like.storage_offset())


@dataclass(frozen=True, eq=False)
class Same:
    """As many times the same number."""

    number: float
    like: Tensor


@dataclass(frozen=True, eq=False)
class Chances:
    """The logarithms of chances, of logits; and what comes of them, as far as they are the loss's."""

    logits: Value
    like: Tensor
    weights: Same | None = None  # of examples, behind the loss's own gradient


Known: TypeAlias = "Value | Same | Chances | list[Known] | None"
Where: TypeAlias = "tuple[Buffer, int] | None"
_Call: TypeAlias = "tuple[Kind, list[Where], list[int]]"


class NativeSteps:
    """Takes steps of one client by one call."""

    def __init__(self, sheet: _Sheet) -> None:
        self._calls, self._floats = sheet.written()
        self._constants, self._places = sheet.constants, [*sheet.places.items()]
        self._ends = ((_LABELS, sheet.classes), *((_FEATURES, rows) for rows in sheet.tables))
        self._room = torch.empty(0)

    def descend(
        self, parameters: Sequence[Tensor], features: Tensor, labels: Tensor, rows: Tensor, rate: float, total: Tensor
    ) -> bool:
        """Take a step with every line of rows, ``(S, 1, B)``; return whether all could be taken.

        Args:
            parameters: moved in place.
            features: what the rows point to.
            labels: the same.
            rows: of the examples.
            rate: the learning rate.
            total: the losses of all examples are added to it.
        """
        tensors = (features, labels, rows, total, *parameters)
        if not all(own.is_contiguous() for own in tensors) or total.dtype != torch.float32:
            return False
        step = torch.tensor([rate], dtype=torch.float32, device="cpu")
        if len(self._room) < self._floats:
            self._room = torch.empty(self._floats, dtype=torch.float32, device="cpu")
        given = [self._room, features, labels, rows, total, step, *parameters, *self._constants]
        chosen = rows.flatten()
        for number, end in self._ends:
            least, most = torch.aminmax(given[number].index_select(0, chosen))
            if int(least) < 0 or int(most) >= end:  # torch says what is wrong
                return False
        for number, end in self._places:  # a buffer's numbers may have changed since
            least, most = torch.aminmax(self._constants[number])
            if int(least) < 0 or int(most) >= end:
                return False
        threads = torch.get_num_threads()
        for some in torch.split(rows, _STEPS):
            given[_ROWS] = some
            self._calls.run(given, times=len(some), threads=threads)
        return True


def native_steps(graph: fx.GraphModule, example: Sequence[Tensor]) -> Callable[[], NativeSteps] | None:
    """Return what makes a list of native calls of a followed step, for a worker of its own; None if nothing can.

    Args:
        graph: the step of one client, of parameters, features, labels and keys.
        example: what it was followed with.
    """
    *parameters, features, labels, _ = example
    kinds = labels.dtype, labels.dim(), len(labels)
    if not available() or kinds != (torch.int64, 2, 1) or features.dtype not in (torch.int64, torch.float32):
        return None
    if any(own.dtype != torch.float32 for own in parameters):
        return None
    graph.graph.eliminate_dead_code()
    try:
        _Sheet(graph, example)
    except NoRule:
        return None
    return lambda: NativeSteps(_Sheet(graph, example))


class _Sheet:
    """Goes through a step and writes down its calls."""

    def __init__(self, graph: fx.GraphModule, example: Sequence[Tensor]) -> None:
        self._graph = graph
        self._example = example
        self.batch, self._parameters = example[-3].shape[1], len(example) - 3
        self.numbers = math.prod(example[-3].shape[2:])  # of an example
        self.constants: list[Tensor] = []
        self.classes = 0
        self.tables: list[int] = []  # rows of those that features point to
        self.places: dict[int, int] = {}  # rows of the smallest that a constant points to
        self._calls: list[_Call] = []
        self._gradients = self._followed()

    def _followed(self) -> list[Value]:
        """Return each parameter's gradient."""
        known: dict[fx.Node, Known] = {}
        inputs = iter(self._inputs())
        for node in self._graph.graph.nodes:
            if node.op == "placeholder":
                known[node] = next(inputs)
            elif node.op == "get_attr":
                known[node] = self.constant(getattr(self._graph, node.target))
            elif node.op == "output":
                results = [known[own] for own in node.args[0]]
            else:
                known[node] = self._computed(node, known)
        if not self.classes:
            raise NoRule("no cross-entropy")
        gradients = [own for own in results[1:] if isinstance(own, Value)]
        if len(gradients) < self._parameters:
            raise NoRule("a gradient is no tensor of numbers")
        return [*map(self.in_order, gradients)]

    def written(self) -> tuple[Calls, int]:
        """Return the list, with arrays where there is room as long as they are needed, and how much room it takes."""
        calls = _needed(self._calls, self._gradients)
        for number, gradient in enumerate(self._gradients):
            arrays = gradient.at, (Buffer(given=_RATE), 0), (Buffer(given=_FIRST + number), 0)
            calls.append((Kind.STEP, list(arrays), [gradient.like.numel()]))
        last: dict[Buffer, int] = {}
        for number, (_, own, _) in enumerate(calls):
            last |= {at[0]: number for at in own if at is not None}
        room, listed = Room(_ROOM), Calls()
        places: dict[Buffer, Place] = {}
        for number, (kind, arrays_of, sizes) in enumerate(calls):
            for at in arrays_of:
                if at is not None and at[0] not in places:
                    given = at[0].given
                    places[at[0]] = room.take(at[0].floats) if given is None else place(given)
            listed.add(kind, [None if at is None else places[at[0]] + at[1] for at in arrays_of], sizes)
            for buffer in {at[0] for at in arrays_of if at is not None}:
                if last[buffer] == number and buffer.given is None:
                    room.give_back(places[buffer])
        return listed, room.floats

    def _inputs(self) -> list[Known]:
        parts = enumerate(self._example[:-3])
        found: list[Known] = [Value(Buffer(given=_FIRST + number), _like(own)) for number, own in parts]
        if any(not own.is_contiguous() for own in self._example):
            raise NoRule("a tensor that does not lie in order")
        features, labels = self._example[-3:-1]
        if features.dtype == torch.float32:
            x = self.new(*features.shape)
            rows = (Buffer(given=_FEATURES), 0), (Buffer(given=_ROWS), 0), x.at
            self.add(Kind.GATHER, rows, [labels.shape[1], 1, self.numbers])
        else:
            x = Value(Buffer(given=_FEATURES), _like(features))
        return [*found, x, Value(Buffer(given=_LABELS), _like(labels)), None]

    def constant(self, own: Tensor) -> Value:
        """Return a tensor that is the same in every step."""
        self.constants.append(own)  # itself, as somebody may write to it
        return Value(Buffer(given=_FIRST + self._parameters + len(self.constants) - 1), _like(self.constants[-1]))

    def _computed(self, node: fx.Node, known: Mapping[fx.Node, Known]) -> Known:
        def of(value: Any) -> Any:
            found: Any = known
            return fx.map_arg(value, lambda own: found[own])

        args, named = [of(own) for own in node.args], {name: of(own) for name, own in node.kwargs.items()}
        if node.target is operator.getitem:
            found: Known = args[0][args[1]]
            return found
        rule = _RULES.get(node.target)
        if rule is not None:
            result: Known = rule(self, *args, **named)
            return result
        if not isinstance(args[0], Value | Same | Chances) or not _views(node.target):
            raise NoRule(str(node.target))
        operation: Any = node.target
        views = operation(args[0].like, *args[1:], **named)
        return [_seen(args[0], own) for own in views] if isinstance(views, list | tuple) else _seen(args[0], views)

    def points(self, index: Value, table: int) -> None:
        """Say that a constant points to the rows of a table; refuse what is no constant."""
        given = index.buffer.given
        if given is None or given < _FIRST + self._parameters:
            raise NoRule("numbers that are computed")
        number = given - _FIRST - self._parameters
        self.places[number] = min(table, self.places.get(number, table))

    def add(self, kind: Kind, arrays: Sequence[Where], sizes: Sequence[int]) -> None:
        """Write a call down."""
        self._calls.append((kind, list(arrays), list(sizes)))

    def new(self, *shape: int) -> Value:
        """Return a new tensor."""
        return Value(Buffer(floats=math.prod(shape)), torch.empty(shape, device="meta"))

    def copied(self, own: Value, to: Value, factor: float = 1.0, turned: Sequence[int] = ()) -> Value:
        """Copy numbers, times a factor, to where ``to`` lies; along axes that are turned the last come first."""
        shape: list[int] = []
        apart: list[int] = []
        there: list[int] = []
        buffer, first = own.at
        for axis, (size, step, other) in enumerate(zip(own.shape, own.like.stride(), to.like.stride(), strict=True)):
            if size == 1:
                continue
            one = step
            if axis in turned:
                one, first = -step, first + (size - 1) * step
            if shape and apart[-1] == size * one and there[-1] == size * other:
                shape[-1], apart[-1], there[-1] = shape[-1] * size, one, other
            else:
                shape, apart, there = [*shape, size], [*apart, one], [*there, other]
        if len(shape) > _AXES and turned:
            raise NoRule("too many axes")
        if len(shape) > _AXES:
            axis = min(range(own.like.dim()), key=lambda number: (own.shape[number] == 1, own.shape[number]))
            for parts in zip(own.like.unbind(axis), to.like.unbind(axis), strict=True):
                self.copied(Value(own.buffer, parts[0]), Value(to.buffer, parts[1]), factor)
            return to
        empty = _AXES - len(shape)
        sizes = [*[1] * empty, *shape, *[0] * empty, *apart, *[0] * empty, *there]
        if not shape:  # one number
            sizes[7] = sizes[11] = 1
        self.add(Kind.SCATTER, [(buffer, first), to.at], [*sizes, _bits(factor)])
        return to

    def _in_order(self, own: Value) -> Value:
        return own if own.like.is_contiguous() else self.copied(own, self.new(*own.shape))

    def in_order(self, own: Known) -> Value:
        """Return a tensor whose numbers lie one behind the other."""
        return self._in_order(_numbers(own))


def _needed(calls: Sequence[_Call], results: Sequence[Value]) -> list[_Call]:
    """Return calls without those that zero or copy numbers for nobody."""
    read, found = {own.buffer for own in results}, []
    for call in reversed(calls):
        kind, arrays, _ = call
        moves = kind in (Kind.ZERO, Kind.SCATTER)
        if moves and arrays[-1] is not None and arrays[-1][0] not in read and arrays[-1][0].given is None:
            continue
        read |= {at[0] for at in (arrays[:-1] if moves else arrays) if at is not None}
        found.append(call)
    return found[::-1]


def _like(own: Tensor) -> Tensor:
    return torch.empty_strided(own.shape, own.stride(), dtype=own.dtype, device="meta")


def _seen(own: Value | Same | Chances, like: Tensor) -> Known:
    if isinstance(own, Value):
        return Value(own.buffer, like)
    return Same(own.number, like) if isinstance(own, Same) else Chances(own.logits, like, own.weights)


def _numbers(own: Known) -> Value:
    if not isinstance(own, Value) or own.like.dtype != torch.float32 or own.buffer.given in (_FEATURES, _LABELS):
        raise NoRule("what is no tensor of numbers")
    return own


def _bits(number: float) -> int:
    found: int = struct.unpack("q", struct.pack("d", number))[0]
    return found


def _views(operation: Any) -> bool:
    return operation.is_view or operation in {_ATEN._unsafe_view.default, _ATEN.detach.default, _ATEN.alias.default}


def _matrix(sheet: _Sheet, own: Known, *, rows: bool) -> Value:
    """Return a matrix; with ``rows`` one whose rows lie in order, turned where its columns do."""
    found = _numbers(own)
    if rows and found.like.stride(1) != 1 and found.shape[1] > 1:
        if found.like.stride(0) != 1:
            return sheet.copied(found, sheet.new(*found.shape))
        count, columns = found.shape
        wide = -(-columns // LANES) * LANES
        turned = sheet.new(count, wide)
        sheet.add(Kind.UPRIGHT, [found.at, turned.at], [columns, count, found.like.stride(1), wide])
        return Value(turned.buffer, turned.like[:, :columns])
    return found


def _layer(sheet: _Sheet, x: Known, weight: Known, bias: Known) -> Known:
    own, matrix = sheet.in_order(x), _numbers(weight)
    rows = Value(own.buffer, own.like.view(-1, own.shape[-1]))
    out = _product(sheet, rows, Value(matrix.buffer, matrix.like.t()), None if bias is None else sheet.in_order(bias))
    return Value(out.buffer, out.like.view(*own.shape[:-1], out.shape[1]))


def _layer_back(sheet: _Sheet, grad: Known, x: Known, weight: Known, wanted: Sequence[bool]) -> Known:
    own, slope = sheet.in_order(x), sheet.in_order(grad)
    rows = Value(own.buffer, own.like.view(-1, own.shape[-1]))
    slopes = Value(slope.buffer, slope.like.view(-1, slope.shape[-1]))
    below = _product(sheet, slopes, weight) if wanted[0] else None
    return [
        None if below is None else Value(below.buffer, below.like.view(own.shape)),
        _product(sheet, Value(slopes.buffer, slopes.like.t()), rows) if wanted[1] else None,
        _sum(sheet, slopes, [0]) if wanted[2] else None,
    ]


def _product(sheet: _Sheet, x: Known, w: Known, init: Value | None = None) -> Value:
    left, right = _matrix(sheet, x, rows=False), _matrix(sheet, w, rows=True)
    (rows, count), columns = left.shape, right.shape[1]
    out = sheet.new(rows, columns)
    strides = *left.like.stride(), right.like.stride(0), 0, columns
    sheet.add(
        Kind.PRODUCT, [left.at, right.at, None if init is None else init.at, out.at], [rows, columns, count, *strides]
    )
    return out


def _add_product(sheet: _Sheet, bias: Known, x: Known, w: Known) -> Known:
    own = _numbers(bias)
    if own.like.dim() != 1 or not own.like.is_contiguous() or len(own.like) != _numbers(w).shape[1]:
        raise NoRule("a bias of another shape")
    return _product(sheet, x, w, own)


def _add(sheet: _Sheet, a: Known, b: Known) -> Known:
    first, second = sheet.in_order(a), sheet.in_order(b)
    if first.like.numel() < second.like.numel():
        first, second = second, first
    size, most = second.like.numel(), len(first.shape)
    if second.shape != first.shape[most - second.like.dim() :]:
        raise NoRule("a sum of other shapes")
    out = sheet.new(*first.shape)
    if size == first.like.numel():
        sheet.add(Kind.ADD, [first.at, second.at, out.at], [size])
    else:
        sheet.add(Kind.ADD_ROW, [first.at, second.at, out.at], [first.like.numel() // size, size])
    return out


def _multiply(sheet: _Sheet, a: Known, b: Known) -> Known:
    first, second = sheet.in_order(a), sheet.in_order(b)
    if first.shape != second.shape:
        raise NoRule("a product of other shapes")
    out = sheet.new(*first.shape)
    sheet.add(Kind.TIMES, [first.at, second.at, out.at], [first.like.numel()])
    return out


def _divide(sheet: _Sheet, a: Known, by: Any) -> Known:
    if isinstance(a, Same):
        return Same(a.number / by, a.like)
    own = _numbers(a)
    return sheet.copied(own, sheet.new(*own.shape), 1.0 / by)


def _sum(sheet: _Sheet, a: Known, axes: Sequence[int], keep: bool = False) -> Known:
    own = sheet.in_order(a)
    summed = {axis % own.like.dim() for axis in axes} or {*range(own.like.dim())}
    if math.prod(size for axis, size in enumerate(own.shape[: max(summed)]) if axis not in summed) != 1:
        raise NoRule("a sum over other axes")
    out = sheet.new(*(size for axis, size in enumerate(own.shape) if axis not in summed))
    rows = math.prod(own.shape[axis] for axis in summed)
    sheet.add(Kind.SUM_ROWS, [own.at, out.at], [rows, out.like.numel(), out.like.numel()])
    shape = [1 if axis in summed else size for axis, size in enumerate(own.shape)]
    return Value(out.buffer, out.like.view(shape)) if keep else out


def _mean(sheet: _Sheet, a: Known, axes: Sequence[int], keep: bool = False) -> Known:
    if isinstance(a, Chances):  # of the losses, which a list adds up by itself
        return Chances(a.logits, a.like.mean(list(axes), keep))
    own = sheet.in_order(a)
    if list(axes) not in ([1], [-2]) or own.like.dim() != 3 or own.shape[2] % LANES:
        raise NoRule("a mean over other axes")
    n, places, width = own.shape
    out = sheet.new(n, width)
    sheet.add(Kind.MEAN, [own.at, out.at], [n, places, width])
    return Value(out.buffer, out.like[:, None]) if keep else out


def _normalise(sheet: _Sheet, x: Known, shape: Sequence[int], weight: Known, bias: Known, epsilon: float) -> Known:
    own, width = sheet.in_order(x), math.prod(shape)
    if width % LANES:
        raise NoRule("a norm of another width")
    rows = own.like.numel() // width
    out, means, slopes = sheet.new(*own.shape), sheet.new(rows), sheet.new(rows)
    held = [None if part is None else sheet.in_order(part).at for part in (weight, bias)]
    sheet.add(Kind.LAYER_NORM, [own.at, *held, out.at, means.at, slopes.at], [rows, width, _bits(epsilon)])
    return [out, means, slopes]


def _normalise_back(
    sheet: _Sheet,
    grad: Known,
    x: Known,
    shape: Sequence[int],
    means: Known,
    slopes: Known,
    weight: Known,
    _: Known,
    wanted: Sequence[bool],
) -> Known:
    own, width = sheet.in_order(x), math.prod(shape)
    outs = [sheet.new(*size) if asked else None for size, asked in zip((own.shape, shape, shape), wanted, strict=True)]
    held = None if weight is None else sheet.in_order(weight).at
    arrays = [sheet.in_order(grad).at, own.at, _numbers(means).at, _numbers(slopes).at, held]
    arrays += [None if part is None else part.at for part in outs]
    sheet.add(Kind.LAYER_NORM_BACK, arrays, [own.like.numel() // width, width])
    return list(outs)


def _look_up_of(sheet: _Sheet, index: Known, table: int) -> tuple[list[Where], torch.Size, tuple[int, int]]:
    """Return where numbers of a batch are, examples and places, and how they lie among all."""
    if not isinstance(index, Value) or index.like.dim() != 2 or index.like.dtype != torch.int64:
        raise NoRule("numbers that are no texts")
    n, places = index.shape
    across, along = index.like.stride()
    given = index.buffer.given
    if along != 1 and places > 1:
        raise NoRule("numbers that lie apart")
    if given == _FEATURES:
        total = sheet.numbers
        if n != sheet.batch or (across != total and n > 1) or index.at[1] + places > total:
            raise NoRule("numbers of other examples")
        sheet.tables.append(table)
        return [(index.buffer, 0), (Buffer(given=_ROWS), 0)], index.shape, (total, index.at[1])
    if across != 0:
        raise NoRule("numbers that are not the same for all examples")
    sheet.points(index, table)
    return [(index.buffer, 0), None], index.shape, (0, index.at[1])


def _look_up(sheet: _Sheet, table: Known, index: Known, *_: Any) -> Known:
    own = sheet.in_order(table)
    arrays, (n, places), behind = _look_up_of(sheet, index, own.shape[0])
    out = sheet.new(n, places, own.shape[1])
    sheet.add(Kind.LOOK_UP, [own.at, *arrays, out.at], [n, places, own.shape[1], *behind])
    return out


def _look_up_back(sheet: _Sheet, grad: Known, index: Known, count: int, padding: int, scaled: bool) -> Known:
    own = sheet.in_order(grad)
    arrays, (n, places), behind = _look_up_of(sheet, index, count)
    if scaled:
        raise NoRule("a table whose gradient is scaled")
    out = sheet.new(count, own.shape[-1])
    sheet.add(Kind.LOOK_UP_BACK, [own.at, *arrays, out.at], [n, places, own.shape[-1], *behind, count, padding])
    return out


def _arange(sheet: _Sheet, end: Any, **_: Any) -> Known:
    return sheet.constant(torch.arange(end, dtype=torch.int64))


def _rectify(sheet: _Sheet, x: Known) -> Known:
    own = sheet.in_order(x)
    out = sheet.new(*own.shape)
    sheet.add(Kind.RECTIFY, [own.at, out.at], [own.like.numel()])
    return out


def _rectify_back(sheet: _Sheet, grad: Known, made: Known, threshold: float) -> Known:
    own, result = sheet.in_order(grad), sheet.in_order(made)
    if threshold:
        raise NoRule("another threshold")
    out = sheet.new(*own.shape)
    sheet.add(Kind.RECTIFY_BACK, [own.at, result.at, out.at], [own.like.numel()])
    return out


def _bend(sheet: _Sheet, x: Known, curve: bool) -> Known:
    own = sheet.in_order(x)
    out, slope = sheet.new(*own.shape), sheet.new(*own.shape)
    sheet.add(Kind.GELU, [own.at, out.at, slope.at], [own.like.numel(), int(curve)])
    return [out, slope]


def _heads(sheet: _Sheet, *values: Known) -> list[Value]:
    """Return tensors (texts, heads, places, width) whose last numbers lie side by side."""
    found = [_numbers(own) for own in values]
    return [own if own.like.stride(3) == 1 else sheet.copied(own, sheet.new(*own.shape)) for own in found]


def _by_places(sheet: _Sheet, shape: Sequence[int]) -> Value:
    """Return a new tensor (texts, heads, places, width) that lies as (texts, places, heads, width)."""
    batch, heads, places, width = shape
    out = sheet.new(batch, places, heads, width)
    return Value(out.buffer, out.like.transpose(1, 2))


def _attend(sheet: _Sheet, query: Known, key: Known, value: Known, mask: Known, causal: bool, scale: float) -> Known:
    q, k, v = _heads(sheet, query, key, value)
    batch, heads, queries, width = q.shape
    keys = k.shape[2]
    out = _by_places(sheet, q.shape)
    weights = sheet.new(batch, heads, keys, -(-queries // LANES) * LANES)
    masks: Where = None
    between: tuple[int, ...] = (0, 0, 0, 0)
    if mask is not None:
        own = _numbers(mask)
        masks, between = own.at, own.like.expand(batch, heads, queries, keys).stride()
    apart = [step for own in (q, k, v, out) for step in own.like.stride()[:3]]
    sizes = [batch, heads, queries, keys, width, int(causal), *apart, *between, _bits(scale)]
    sheet.add(Kind.ATTEND, [q.at, k.at, v.at, masks, out.at, weights.at], sizes)
    return [out, weights]


def _attend_back(
    sheet: _Sheet, grad: Known, query: Known, key: Known, value: Known, weights: Known, causal: bool, scale: float
) -> Known:
    g, q, k, v = _heads(sheet, grad, query, key, value)
    batch, heads, queries, width = q.shape
    found = [_by_places(sheet, own.shape) for own in (q, k, v)]
    apart = [step for own in (q, k, v, g) for step in own.like.stride()[:3]]
    sizes = [batch, heads, queries, k.shape[2], width, int(causal), *apart, 0, 0, 0, 0, _bits(scale)]
    arrays = [own.at for own in (g, q, k, v, _numbers(weights), *found)]
    sheet.add(Kind.ATTEND_BACK, arrays, sizes)
    return list(found)


def _recur(sheet: _Sheet, *given: Any) -> Known:
    gru = bool(given[7])
    x, *own = (sheet.in_order(part) for part in given[:7])
    clients, batch, steps, inputs = x.shape
    size = own[2].shape[2]
    if clients != 1:
        raise NoRule("layers of several clients")
    out, last = sheet.new(1, batch, steps, size), sheet.new(1, batch, size)
    kept = sheet.new(1, steps, batch, (5 if gru else 6) * size)
    arrays = [part.at for part in (x, *own, out, kept, last)]
    sheet.add(Kind.RECUR, arrays, [batch, steps, inputs, size, int(gru)])
    return [out, last, kept]


def _recur_back(sheet: _Sheet, grad: Known, last: Known, *given: Any) -> Known:
    *parts, gru, wanted = given
    x, weight_ih, weight_hh, hidden, _ = own = [sheet.in_order(part) for part in parts]
    _, batch, steps, inputs = x.shape
    size, gates = weight_hh.shape[2], weight_ih.shape[1]
    slope, alone = None if grad is None else _numbers(grad), False
    if slope is not None and slope.buffer.part is not None:  # of texts of which the last place is looked at
        part, lies = slope.buffer.part
        end = slope.like[0].select(1, steps - 1)
        alone = (end.shape, end.stride(), end.storage_offset()) == (lies.shape, lies.stride(), lies.storage_offset())
        slope = part if alone else slope
    shapes = (x.shape, weight_ih.shape, (1, gates), weight_hh.shape, (1, gates), hidden.shape, hidden.shape)
    outs = [sheet.new(*shape) if number or wanted else None for number, shape in enumerate(shapes)]
    arrays: list[Where] = [None if slope is None else sheet.in_order(slope).at]
    arrays += [None if last is None or gru else sheet.in_order(last).at, *(part.at for part in own)]
    arrays += [None if part is None else part.at for part in outs]
    sheet.add(Kind.RECUR_BACK, arrays, [batch, steps, inputs, size, int(gru), int(alone)])
    return [*outs[:6], last if gru else outs[6]]


def _flip(sheet: _Sheet, own: Known, axes: Sequence[int]) -> Known:
    found = _numbers(own)
    return sheet.copied(found, sheet.new(*found.shape), turned=[axis % found.like.dim() for axis in axes])


def _zeros(sheet: _Sheet, shape: Sequence[int], dtype: torch.dtype | None = None, **_: Any) -> Known:
    return sheet.constant(torch.zeros(shape, dtype=dtype, device="cpu"))


def _new_zeros(sheet: _Sheet, own: Known, shape: Sequence[int], dtype: torch.dtype | None = None, **_: Any) -> Known:
    return _zeros(sheet, shape, dtype or _numbers(own).like.dtype)


def _join(sheet: _Sheet, parts: Sequence[Known], axis: int = 0, *, stack: bool = False) -> Known:
    own = [_numbers(part) for part in parts]
    if stack:
        own = [Value(part.buffer, part.like.unsqueeze(axis)) for part in own]
    axis %= own[0].like.dim()
    shape = list(own[0].shape)
    shape[axis] = sum(part.shape[axis] for part in own)
    out, first = sheet.new(*shape), 0
    for part in own:
        sheet.copied(part, Value(out.buffer, out.like.narrow(axis, first, part.shape[axis])))
        first += part.shape[axis]
    return out


def _stack(sheet: _Sheet, parts: Sequence[Known], axis: int = 0) -> Known:
    return _join(sheet, parts, axis, stack=True)


def _copy(sheet: _Sheet, own: Known, **_: Any) -> Known:
    return sheet.in_order(own)  # nothing of a step is written twice


def _reshape(sheet: _Sheet, own: Known, shape: Sequence[int]) -> Known:
    if not isinstance(own, Value):
        raise NoRule("what is no tensor of numbers")
    try:
        return Value(own.buffer, own.like.view(shape))
    except RuntimeError:
        moved = sheet.in_order(own)
        return Value(moved.buffer, moved.like.view(shape))


def _part_back(sheet: _Sheet, grad: Known, sizes: Sequence[int], view: Callable[[Tensor], Tensor]) -> Known:
    """Return a gradient of all zeros but for a part."""
    own, out = _numbers(grad), sheet.new(*sizes)
    sheet.add(Kind.ZERO, [out.at], [out.like.numel()])
    out.buffer.part = own, view(out.like)
    sheet.copied(own, Value(out.buffer, view(out.like)))
    return out


def _select_back(sheet: _Sheet, grad: Known, sizes: Sequence[int], axis: int, index: int) -> Known:
    return _part_back(sheet, grad, sizes, lambda whole: whole.select(axis, index))


def _slice_back(sheet: _Sheet, grad: Known, sizes: Sequence[int], axis: int, first: int, end: int, step: int) -> Known:
    return _part_back(sheet, grad, sizes, lambda whole: _ATEN.slice.Tensor(whole, axis, first, end, step))


def _log_softmax(sheet: _Sheet, logits: Known, axis: int, half: bool) -> Known:
    own = sheet.in_order(logits)
    if own.like.dim() != 2 or axis not in (1, -1) or half:
        raise NoRule("a softmax over other axes")
    return Chances(own, own.like)


def _losses(_: _Sheet, chances: Known, labels: Known, weights: Known, reduction: int, left_out: int) -> Known:
    if not isinstance(chances, Chances) or not isinstance(labels, Value) or labels.buffer.given != _LABELS:
        raise NoRule("another loss")
    if weights is not None or reduction or left_out >= 0 or labels.like.dim() != 1:
        raise NoRule("another loss")
    return [Chances(chances.logits, labels.like.to(torch.float32)), None]


def _losses_back(_: _Sheet, grad: Known, chances: Known, *__: Any) -> Known:
    if not isinstance(grad, Same) or not isinstance(chances, Chances):
        raise NoRule("another loss")
    return Chances(chances.logits, chances.like, grad)


def _log_softmax_back(sheet: _Sheet, grad: Known, chances: Known, *_: Any) -> Known:
    if not isinstance(grad, Chances) or grad.weights is None or not isinstance(chances, Chances):
        raise NoRule("another loss")
    n, classes = grad.logits.shape
    if grad.logits is not chances.logits or not math.isclose(grad.weights.number * n, 1.0) or sheet.classes:
        raise NoRule("another loss")
    sheet.classes = classes
    out = sheet.new(n, classes)
    arrays = grad.logits.at, (Buffer(given=_LABELS), 0), (Buffer(given=_ROWS), 0), out.at, (Buffer(given=_TOTAL), 0)
    sheet.add(Kind.ENTROPY, arrays, [n, classes])
    return out


def _ones(_: _Sheet, like: Known, **__: Any) -> Known:
    if not isinstance(like, Value | Same | Chances):
        raise NoRule("what is no tensor of numbers")
    return Same(1.0, like.like)


_RULES: dict[Any, Callable[..., Known]] = {
    _ATEN.mm.default: _product,
    _ATEN.addmm.default: _add_product,
    _ATEN.add.Tensor: _add,
    _ATEN.mul.Tensor: _multiply,
    _ATEN.div.Scalar: _divide,
    _ATEN.sum.dim_IntList: _sum,
    _ATEN.mean.dim: _mean,
    _ATEN.native_layer_norm.default: _normalise,
    _ATEN.native_layer_norm_backward.default: _normalise_back,
    _ATEN.embedding.default: _look_up,
    _ATEN.embedding_dense_backward.default: _look_up_back,
    _ATEN.arange.default: _arange,
    _ATEN.relu.default: _rectify,
    _ATEN.threshold_backward.default: _rectify_back,
    _ATEN.cat.default: _join,
    _ATEN.stack.default: _stack,
    _ATEN.clone.default: _copy,
    _ATEN.reshape.default: _reshape,
    _ATEN.select_backward.default: _select_back,
    _ATEN.slice_backward.default: _slice_back,
    _ATEN._log_softmax.default: _log_softmax,
    _ATEN.nll_loss_forward.default: _losses,
    _ATEN.nll_loss_backward.default: _losses_back,
    _ATEN._log_softmax_backward_data.default: _log_softmax_back,
    _ATEN.ones_like.default: _ones,
    _ATEN.flip.default: _flip,
    _ATEN.zeros.default: _zeros,
    _ATEN.new_zeros.default: _new_zeros,
    ATTEND: _attend,
    ATTEND_BACK: _attend_back,
    GELU: _bend,
    LINEAR: _layer,
    LINEAR_BACK: _layer_back,
    RECUR: _recur,
    RECUR_BACK: _recur_back,
}
