"""Steps of models that look at one place of a text compute what is asked for at that place only.

A model that guesses the next word takes the last place of its last layer, and one with a token for the class the first:
``norm(values)[:, -1]``. Everything that acts on each place alone behind the last attention is computed for all places
all the same, and their gradients, which are zero everywhere else, are multiplied too. In a step that was followed
(:mod:`tacit.training.straight`), :func:`narrowed` leaves that out:

* of what is only looked at in one place, that place is computed, as far up as operations act on each place alone;
* of a gradient that is zero elsewhere, that place is handed on, as far as operations map zeros to zeros, or add up.

Each operation has a rule, or is left as it is. The numbers are the same up to the order of sums, where those that
nobody looks at are numbers: an infinity in a place that nobody looks at no longer spoils the gradient of all.
"""

from __future__ import annotations

import copy
import math
import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from tacit.training.native.attention import ATTEND, ATTEND_BACK, GELU
from tacit.training.native.linear import LINEAR, LINEAR_BACK

_ATEN: Any = torch.ops.aten
_DEPTH = 64  # operations above a place that is looked at; a layer has some twenty
_VIEWS = {_ATEN.view.default, _ATEN._unsafe_view.default, _ATEN.unsqueeze.default, _ATEN.squeeze.dim}
_TURNS = {_ATEN.t.default, _ATEN.transpose.int, _ATEN.permute.default}
_COPIES = {_ATEN.clone.default, _ATEN.detach.default, _ATEN.alias.default}
_SUMS = {_ATEN.add.Tensor, _ATEN.sub.Tensor}
# Of each number alone, or of numbers at the same place.
_POINTWISE = (
    _SUMS
    | _COPIES
    | {own.default for own in (_ATEN.relu, _ATEN.gelu, _ATEN.silu, _ATEN.tanh, _ATEN.sigmoid, _ATEN.neg, _ATEN.exp)}
)
_POINTWISE |= {_ATEN.mul.Tensor, _ATEN.div.Tensor, _ATEN.mul.Scalar, _ATEN.div.Scalar}
# The same, zero where their first input is.
_SCALES = _COPIES | {_ATEN.neg.default, _ATEN.mul.Scalar, _ATEN.div.Scalar, _ATEN.div.Tensor, _ATEN.mul.Tensor}
_SCALES |= {_ATEN.threshold_backward.default, _ATEN.gelu_backward.default, _ATEN.silu_backward.default}
_SCALES |= {_ATEN.tanh_backward.default, _ATEN.sigmoid_backward.default}

_ROWS = {_ATEN.mm.default: 0, _ATEN.addmm.default: 1, LINEAR: 0}  # products, and which operand's rows are theirs


@dataclass(frozen=True)
class _Place:
    """Where a tensor is looked at: at ``first``, ``first + every`` and so on along an axis, ``count`` times.

    ``(B, T, D)`` is looked at once along its second axis, and as ``(B * T, D)`` B times along its first.
    """

    axis: int
    first: int
    every: int
    count: int

    def seen_as(self, before: Sequence[int], after: Sequence[int]) -> _Place | None:
        """Return the place in a tensor of one shape when it is seen as one of another, or None where it is none."""
        numbers, times = math.prod(before[self.axis + 1 :]), math.prod(before[: self.axis]) * self.count
        for axis, size in enumerate(after):
            fits = math.prod(after[axis + 1 :]) == numbers and size % self.every == 0
            if fits and math.prod(after[:axis]) * (size // self.every) == times:
                return replace(self, axis=axis, count=size // self.every)
        return None

    def shape(self, whole: Sequence[int]) -> list[int]:
        """Return the shape of what is seen of a tensor."""
        return [self.count if axis == self.axis else size for axis, size in enumerate(whole)]


def narrowed(module: fx.GraphModule, given: Sequence[Tensor]) -> fx.GraphModule | None:
    """Return a step's graph that computes a place where only that is looked at, or None where nothing is saved.

    Args:
        module: the graph, of torch's own operations.
        given: an example of its inputs, of which the graph knows its tensors' shapes.
    """
    if any(_writes(node) for node in module.graph.nodes):
        return None  # what is computed elsewhere might be written over in between
    own = copy.deepcopy(module)
    with torch.no_grad():
        _Recorder(own).run(*given)
        before = _products(own.graph)
        _Narrower(own.graph).run()
        saves = _products(own.graph) < before
    for node in own.graph.nodes:
        node.meta.clear()
    own.recompile()
    return own if saves else None


class _Recorder(fx.Interpreter):
    """Writes down what each node is."""

    def run_node(self, n: fx.Node) -> Any:
        """Compute a node."""
        n.meta["val"] = found = super().run_node(n)
        return found


def _writes(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _products(graph: fx.Graph) -> int:
    """Return how many multiplications there are in matrix products."""
    total = 0
    for node in graph.nodes:
        if node.target in (_ATEN.mm.default, _ATEN.addmm.default):
            total += math.prod(_shape(_args(node)[-2])) * _shape(_args(node)[-1])[1]
        elif node.target is LINEAR:
            total += math.prod(_shape(_args(node)[0])) * _shape(_args(node)[1])[0]
        elif node.target is LINEAR_BACK:
            total += math.prod(_shape(_args(node)[1])) * _shape(_args(node)[2])[0] * sum(_args(node)[3][:2])
    return total


def _shape(value: Any) -> list[int]:
    return list(value.meta["val"].shape)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, fx.Node) and isinstance(value.meta.get("val"), Tensor)


class _Narrower:
    """Rewrites one graph.

    Attributes:
        known: what was made of a node at a place.
        zero_but: nodes that are zero but at a place, and what they are there.
    """

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._filled: dict[fx.Node, fx.Node] = {}  # what is zero but at a place, as a whole tensor
        self._seen: set[tuple[tuple[int, ...], int, int]] = set()  # shapes, axes and places that a model looks at
        self.known: dict[tuple[fx.Node, _Place], fx.Node] = {}
        self.zero_but: dict[fx.Node, tuple[fx.Node, _Place]] = {}

    def run(self) -> None:
        """Go through the graph, and leave out what nobody needs any more."""
        for node in list(self._graph.nodes):
            if node.op != "call_function":
                self._whole(node)
                continue
            with self._graph.inserting_before(node):
                if node.target is _ATEN.select.int:
                    self._look(node)
                elif not self._handed_on(node):
                    self._whole(node)
        self._graph.eliminate_dead_code()
        for (whole, place), part in reversed(list(self.known.items())):
            # What is there for all places anyway is not computed again.
            if _is_tensor(whole) and whole.users and part.users and part.target is not _ATEN.slice.Tensor:
                with self._graph.inserting_before(part):
                    part.replace_all_uses_with(self._sliced(whole, place))
                self._graph.eliminate_dead_code()

    def _make(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """Add an operation, and say of which shape its result is."""
        node = self._graph.call_function(target, args, kwargs)
        values = fx.node.map_arg((args, kwargs), lambda own: own.meta["val"])
        node.meta["val"] = target(*values[0], **values[1])
        return node

    def _sliced(self, node: fx.Node, place: _Place) -> fx.Node:
        return self._make(_ATEN.slice.Tensor, node, place.axis, place.first, sys.maxsize, place.every)

    def _whole(self, node: fx.Node) -> None:
        """Give a node without a rule whole tensors, zeros and all."""
        for given in node.all_input_nodes:
            if given not in self.zero_but:
                continue
            if given not in self._filled:
                value, place = self.zero_but[given]
                where = place.axis, place.first, sys.maxsize, place.every
                with self._graph.inserting_before(node):
                    self._filled[given] = self._make(_ATEN.slice_backward.default, value, _shape(given), *where)
            node.replace_input_with(given, self._filled[given])

    # What is looked at in one place.

    def _look(self, node: fx.Node) -> None:
        """Compute what is selected, and no more, where it can be."""
        self._whole(node)
        given, axis, index = _args(node)
        shape = _shape(given)
        axis, index = axis % len(shape), index % shape[axis]
        if len(shape) < 3 or shape[axis] < 2:
            return
        part = self._at(given, _Place(axis, index, shape[axis], 1))
        if part.target is _ATEN.slice.Tensor:
            return
        self._seen.add((tuple(shape), axis, index))
        node.replace_all_uses_with(self._make(_ATEN.select.int, part, axis, 0))

    def _at(self, node: fx.Node, place: _Place, depth: int = 0) -> fx.Node:
        """Return what a node is at a place."""
        if node in self.zero_but and self.zero_but[node][1] == place:
            return self.zero_but[node][0]
        if (node, place) not in self.known:
            part = self._part(node, place, depth + 1) if depth < _DEPTH and node.op == "call_function" else None
            self.known[node, place] = self._sliced(node, place) if part is None else part
        return self.known[node, place]

    def _part(self, node: fx.Node, place: _Place, depth: int) -> fx.Node | None:
        """Return what a node is at a place of what it is computed of, or None where it has no rule."""
        target, args = node.target, _args(node)
        if target in _VIEWS or target in _TURNS:
            given = args[0]
            above = self._above(node, place)
            return None if above is None else self._reshaped(node, self._at(given, above, depth), place)
        if target is operator.getitem:
            source = args[0]
            several = None if source.target is ATTEND and args[1] else self._several(source, place, depth)
            return None if several is None else self._make(operator.getitem, several, args[1])
        if target in _POINTWISE:
            return self._make(target, *(self._beside(own, node, place, depth) for own in args), **_kept(node))
        number = _ROWS.get(target)
        if number is None or place.axis == len(_shape(node)) - 1 or (number and len(_shape(args[0])) > 1):
            return None
        args[number] = self._at(args[number], place, depth)
        return self._make(target, *args, **node.kwargs)

    def _several(self, node: fx.Node, place: _Place, depth: int) -> fx.Node | None:
        """The same of a node with several results."""
        if (node, place) in self.known:
            return self.known[node, place]
        target, args, made = node.target, _args(node), None
        first: Any = args[0] if args else None
        if target is GELU:
            made = self._make(target, self._at(first, place, depth), args[1])
        elif target is _ATEN.native_layer_norm.default:
            if place.axis < len(_shape(first)) - len(args[1]):
                made = self._make(target, self._at(first, place, depth), *args[1:])
        elif target is ATTEND:
            made = self._attended(node, place, depth)
        if made is not None:
            self.known[node, place] = made
        return made

    def _attended(self, node: fx.Node, place: _Place, depth: int) -> fx.Node | None:
        """The same of attention: of one query, that may look at all keys."""
        query, key, value, mask, causal, scale = _args(node)
        last = place.first == place.every - 1 and _shape(key)[2] == place.every
        if place.axis != 2 or place.count != 1 or (causal and not last):
            return None
        if mask is not None:
            shape = _shape(mask)
            if len(shape) > 1 and shape[-2] > 1:
                mask = self._sliced(mask, replace(place, axis=len(shape) - 2))
        return self._make(ATTEND, self._at(query, place, depth), key, value, mask, False, scale)

    def _beside(self, value: Any, node: fx.Node, place: _Place, depth: int) -> Any:
        """Return an operand of a pointwise node at a place: all of it where it is the same at all places."""
        if not _is_tensor(value):
            return value
        own, whole = _shape(value), _shape(node)
        axis = place.axis - (len(whole) - len(own))
        if axis < 0 or (own[axis] == 1 and whole[place.axis] > 1):
            return value
        return self._at(value, replace(place, axis=axis), depth)

    def _above(self, node: fx.Node, place: _Place) -> _Place | None:
        """Return the place in what a view or a turn is of."""
        given = _args(node)[0]
        if node.target in _VIEWS:
            return place.seen_as(_shape(node), _shape(given))
        return replace(place, axis=_order(node)[place.axis])

    def _reshaped(self, node: fx.Node, part: fx.Node, place: _Place) -> fx.Node:
        """Return a part of what a view or a turn is of as its own."""
        if node.target in _VIEWS:
            return self._make(_ATEN.reshape.default, part, place.shape(_shape(node)))
        return self._make(node.target, part, *_args(node)[1:])

    # What is zero but at one place.

    def _handed_on(self, node: fx.Node) -> bool:
        """Hand on what is not zero; return whether the node has a rule for it."""
        target, args = node.target, _args(node)
        if target is _ATEN.select_backward.default:
            return self._begin(node)
        if not any(given in self.zero_but for given in node.all_input_nodes):
            return True
        rule: Callable[[fx.Node], bool] | None = None
        if target in _VIEWS or target in _TURNS:
            rule = self._seen_otherwise
        elif target in _SUMS:
            rule = self._added
        elif target in _SCALES:
            rule = self._scaled
        elif target is _ATEN.mm.default:
            rule = self._multiplied
        elif target is _ATEN.sum.dim_IntList:
            rule = self._summed
        elif target is _ATEN.native_layer_norm_backward.default:
            rule = self._normed
        elif target is ATTEND_BACK:
            rule = self._attended_to
        elif target is LINEAR_BACK:
            rule = self._layered
        elif target is operator.getitem:
            return args[0] not in self.zero_but
        return rule is not None and rule(node)

    def _begin(self, node: fx.Node) -> bool:
        gradient, sizes, axis, index = _args(node)
        axis = axis % len(sizes)
        size = sizes[axis]
        if gradient in self.zero_but or (tuple(sizes), axis, index % size) not in self._seen:
            return False
        place = _Place(axis, index % size, size, 1)
        self.zero_but[node] = self._make(_ATEN.unsqueeze.default, gradient, axis), place
        return True

    def _seen_otherwise(self, node: fx.Node) -> bool:
        given = _args(node)[0]
        part, place = self.zero_but[given]
        if node.target in _VIEWS:
            own = place.seen_as(_shape(given), _shape(node))
        else:
            own = replace(place, axis=_order(node).index(place.axis))
        if own is None:
            return False
        self.zero_but[node] = self._reshaped(node, part, own), own
        return True

    def _added(self, node: fx.Node) -> bool:
        one, other = _args(node)[:2]
        if one not in self.zero_but or other not in self.zero_but:
            return False
        (part, place), (beside, another) = self.zero_but[one], self.zero_but[other]
        if place != another or _shape(one) != _shape(other):
            return False
        self.zero_but[node] = self._make(node.target, part, beside, **node.kwargs), place
        return True

    def _scaled(self, node: fx.Node) -> bool:
        first = _args(node)[0]
        order = [0, 1] if first in self.zero_but or node.target is not _ATEN.mul.Tensor else [1, 0]
        given = _args(node)[order[0]]
        if given not in self.zero_but or _shape(given) != _shape(node):
            return False
        part, place = self.zero_but[given]
        if any(own in self.zero_but and self.zero_but[own][1] != place for own in node.all_input_nodes):
            return False
        others = [own if own is given else self._beside(own, node, place, 0) for own in _args(node)]
        parts = [part if own is given else own for own in others]
        self.zero_but[node] = self._make(node.target, *parts, **_kept(node)), place
        return True

    def _multiplied(self, node: fx.Node) -> bool:
        """A product of rows that are zero but a few, or over them."""
        one, other = _args(node)
        for given, beside, across in ((one, other, 1), (other, one, 0)):
            if given not in self.zero_but:
                continue
            part, place = self.zero_but[given]
            if place.axis == across:  # it is summed over
                near = self._at(beside, replace(place, axis=1 - across))
                pair = (part, near) if given is one else (near, part)
                node.replace_all_uses_with(self._make(_ATEN.mm.default, *pair))
                return True
            if beside not in self.zero_but:
                pair = (part, beside) if given is one else (beside, part)
                self.zero_but[node] = self._make(_ATEN.mm.default, *pair), place
                return True
        return False

    def _summed(self, node: fx.Node) -> bool:
        given, axes = _args(node)[:2]
        part, place = self.zero_but[given]
        if place.axis not in [axis % len(_shape(given)) for axis in axes]:
            return False
        node.replace_all_uses_with(self._make(node.target, part, *_args(node)[1:], **node.kwargs))
        return True

    def _normed(self, node: fx.Node) -> bool:
        gradient, x, sizes, mean, spread, *others = _args(node)
        if gradient not in self.zero_but or any(own in self.zero_but for own in (x, mean, spread, *others[:2])):
            return False
        part, place = self.zero_but[gradient]
        if place.axis >= len(_shape(gradient)) - len(sizes):
            return False
        near = [self._at(own, place) for own in (x, mean, spread)]
        made = self._make(node.target, part, near[0], sizes, near[1], near[2], *others)
        self._take(node, made, place, zero=(0,))
        return True

    def _layered(self, node: fx.Node) -> bool:
        gradient, x, weight, wanted = _args(node)
        if gradient not in self.zero_but or x in self.zero_but or weight in self.zero_but:
            return False
        part, place = self.zero_but[gradient]
        if place.axis == len(_shape(gradient)) - 1:
            return False
        made = self._make(node.target, part, self._at(x, place), weight, wanted)
        self._take(node, made, place, zero=(0,))
        return True

    def _attended_to(self, node: fx.Node) -> bool:
        gradient, query, key, value, weights, _, scale = _args(node)
        if gradient not in self.zero_but or any(own in self.zero_but for own in (query, key, value, weights)):
            return False
        part, place = self.zero_but[gradient]
        source = _args(weights)[0] if weights.target is operator.getitem else None
        if source is None or source.target is not ATTEND or _args(source)[:3] != [query, key, value]:
            return False
        ahead = self._several(source, place, 0)
        if ahead is None:
            return False
        near = self._make(operator.getitem, ahead, 1)
        made = self._make(node.target, part, self._at(query, place), key, value, near, False, scale)
        self._take(node, made, place, zero=(0,))
        return True

    def _take(self, node: fx.Node, made: fx.Node, place: _Place, *, zero: Sequence[int]) -> None:
        """Put results in the place of another node's; some of them are zero but at a place."""
        for user in list(node.users):
            with self._graph.inserting_before(user):
                own = self._make(operator.getitem, made, _args(user)[1])
            if _args(user)[1] in zero:
                self.zero_but[user] = own, place
            else:
                user.replace_all_uses_with(own)


def _args(node: fx.Node) -> list[Any]:
    return list(node.args)


def _order(node: fx.Node) -> list[int]:
    """Return which axis of what it is of each axis of a turned node is."""
    axes = list(range(len(_shape(node))))
    if node.target is _ATEN.permute.default:
        return [axis % len(axes) for axis in _args(node)[1]]
    one, other = (0, 1) if node.target is _ATEN.t.default else _args(node)[1:3]
    if len(axes) > 1:
        axes[one], axes[other] = axes[other], axes[one]
    return axes


def _kept(node: fx.Node) -> dict[str, Any]:
    """Return a node's options, but how a copy is to lie in memory, which is for all of it."""
    return {name: value for name, value in node.kwargs.items() if name != "memory_format"}
