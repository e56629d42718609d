"""Fewer operations for a graph of torch's own, with the same numbers bit for bit.

What vmap and autograd write down says some things twice and others at length: what is computed of the same is computed
once, what depends on shapes alone is kept, and a sum over axes of length one is what it was taken of.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

_ATEN = torch.ops.aten
_OF_SHAPES = {_ATEN.ones_like.default, _ATEN.zeros_like.default, _ATEN.full_like.default}
_OF_SHAPES |= {_ATEN.scalar_tensor.default, _ATEN.arange.default, _ATEN.arange.start, _ATEN.arange.start_step}
_OF_SHAPES |= {_ATEN.full.default, _ATEN.zeros.default, _ATEN.ones.default}
_KEPT = 1 << 12  # numbers of a tensor that is read instead of written


def simplify(module: fx.GraphModule, example: Sequence[Tensor]) -> None:
    """Leave operations of a graph out whose results are known; one that changes tensors in place stays as it is.

    Args:
        module: the graph, which is changed.
        example: its inputs, which stay as they are.
    """
    called = (node for node in module.graph.nodes if node.op == "call_function")
    nodes = [node for node in called if node.target is not operator.getitem]
    if any(not hasattr(node.target, "_schema") or node.target._schema.is_mutable for node in nodes):
        return
    seen = _Seen(module)
    with torch.no_grad():
        seen.run(*(part.detach().clone() for part in example))
    results = _sharing(seen.values, module.graph.output_node().all_input_nodes)
    _keep_known(module, nodes, seen.values, results)
    _join(nodes, results)
    _leave_sums(module, nodes, seen.values, results)
    module.graph.eliminate_dead_code()
    module.recompile()


def _sharing(values: dict[fx.Node, Any], results: Sequence[fx.Node]) -> set[fx.Node]:
    """Return what lies in the memory of results."""
    memory = {place for node in results for place in _memory(values[node])}
    return {node for node, value in values.items() if not memory.isdisjoint(_memory(value))}


def _memory(value: Any) -> list[int]:
    parts = value if isinstance(value, (list, tuple)) else [value]
    return [part.untyped_storage().data_ptr() for part in parts if isinstance(part, Tensor) and part.numel()]


class _Seen(fx.Interpreter):
    """Remembers what the nodes of a graph have computed."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.values: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        self.values[n] = found = super().run_node(n)
        return found


def _is_fixed(node: fx.Node) -> bool:
    """Return whether an operation computes the same of the same, and makes one tensor."""
    target: Any = node.target
    one = len(target._schema.returns) == 1 and isinstance(target._schema.returns[0].type, torch._C.TensorType)
    return one and torch.Tag.nondeterministic_seeded not in target.tags


def _keep_known(
    module: fx.GraphModule, nodes: Sequence[fx.Node], values: dict[fx.Node, Any], results: set[fx.Node]
) -> None:
    """Put constants in the place of what depends on shapes alone."""
    known: set[fx.Node] = set()
    for node in nodes:
        beside = node.all_input_nodes
        if _is_fixed(node) and (node.target in _OF_SHAPES or (beside and known.issuperset(beside))):
            known.add(node)
    if known & results:  # whoever gets it may write to it
        return
    for number, node in enumerate(known):
        value = values[node]
        if known.issuperset(node.users) or value.numel() > _KEPT:
            continue
        name = f"_known{number}"
        module.register_buffer(name, value.detach(), persistent=False)
        with module.graph.inserting_before(node):
            constant = module.graph.get_attr(name)
        values[constant] = value
        node.replace_all_uses_with(constant)


def _join(nodes: Sequence[fx.Node], results: set[fx.Node]) -> None:
    """Compute once what is computed twice; results keep memory of their own."""
    first: dict[str, fx.Node] = {}
    for node in nodes:
        if node in results or not _is_fixed(node):
            continue
        other = first.setdefault(f"{node.target} {node.args!r} {node.kwargs!r}", node)
        if other is not node:
            node.replace_all_uses_with(other)


def _leave_sums(
    module: fx.GraphModule, nodes: Sequence[fx.Node], values: dict[fx.Node, Any], results: set[fx.Node]
) -> None:
    """Add zero in the place of sums over axes of length one, which is what they do: a zero has no sign afterwards."""
    for node in nodes:
        if node.target is not _ATEN.sum.dim_IntList or node.kwargs or node in results:
            continue
        given: Any = node.args
        of, axes, *keeps = given
        before, after = values[of], values[node]
        if not (before.dim() and axes and before.is_floating_point()) or any(before.shape[axis] != 1 for axis in axes):
            continue
        if before.dtype != after.dtype or _lies(before) != _lies(after):
            continue
        with module.graph.inserting_before(node):
            own = of if keeps and keeps[0] else module.graph.call_function(_ATEN.squeeze.dims, (of, axes))
            node.replace_all_uses_with(module.graph.call_function(_ATEN.add.Scalar, (own, 0.0)))


def _lies(tensor: Tensor) -> list[tuple[int, int]]:
    """Return lengths and strides of the axes that are longer than one."""
    return [(length, step) for length, step in zip(tensor.shape, tensor.stride(), strict=True) if length > 1]
