"""Norms and clipped sums of all layers of a tiny model in one native call each.

Such layers have a few thousand numbers per batch, and calling operations for each of them takes longer than the
arithmetic. What is computed is what :mod:`~tacit.training.private.ghost_norms` has for layers that meet one position
per example: squares, products and sums in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tacit.training.private import double

_KINDS = {"formed": 0, "outer": 1, "table": 2}
_WORTH_THREADS = 1 << 20  # products, some hundred microseconds


class Block(NamedTuple):
    """The gradients of one parameter, and which tensors they are made of.

    ===========  ===========================  =========================  ===========================
    kind         left                         right                      an example's gradient
    ===========  ===========================  =========================  ===========================
    ``formed``   gradients, ``width`` each    the same                   its row
    ``outer``    inputs, ``width`` each       gradients of outputs       outer product of the two
    ``table``    numbers of rows, int64       gradients of rows          one row of ``width``
    ===========  ===========================  =========================  ===========================
    """

    unit: int  # whose norms it counts in
    kind: Literal["formed", "outer", "table"]
    left: int
    right: int
    width: int
    height: int  # numbers of a right row
    place: int  # of the parameter


class Joint:
    """How the gradients of all units of a model are read from tensors of certain shapes.

    Args:
        blocks: one for each parameter.
        like: tensors of those shapes, examples first.
    """

    def __init__(self, blocks: Sequence[Block], like: Sequence[Tensor]) -> None:
        self._examples = examples = len(like[0])
        self._units = 1 + max(block.unit for block in blocks)
        ordered = sorted(blocks, key=lambda block: block.place)
        if [block.place for block in ordered] != list(range(len(ordered))):
            raise ValueError(f"expected one block for each parameter, got {[block.place for block in ordered]}")
        for block in blocks:
            left = (torch.int64, 1) if block.kind == "table" else (torch.float32, block.width)
            for place, (kind, width) in ((block.left, left), (block.right, (torch.float32, block.height))):
                own = like[place]
                if own.dtype != kind or own.numel() != examples * width or not own.is_cpu or not in_rows(own):
                    raise ValueError(f"expected {examples} rows of {width} {kind} on a CPU for {block}")
        sizes_of = [block.width * (1 if block.kind == "formed" else block.height) for block in ordered]
        begins = [0, *accumulate(sizes_of)]
        self._numbers = begins[-1]
        steps = [own.stride(0) for own in like]
        self._blocks = [
            (left, right, steps[left], steps[right], unit, _KINDS[kind], width, height, begins[place])
            for unit, kind, left, right, width, height, place in blocks
        ]
        work = examples * sum(size for size, block in zip(sizes_of, ordered, strict=True) if block.kind != "table")
        self._threads = torch.get_num_threads() if work >= _WORTH_THREADS else 1

    def clipped(self, tensors: Sequence[Tensor], factors: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the sums of clipped gradients, those of all parameters side by side.

        Args:
            tensors: of the shapes, types and strides that it was made for.
            factors: returns what gradients are multiplied with, given their squared norms, ``(units, examples)`` both,
                which are not finite where a gradient is not. With a factor of 0 a gradient takes no part, whatever it
                holds.
        """
        at = self._of(tensors)
        shape = self._units, self._examples
        squares, total = torch.zeros(shape, dtype=torch.float64), torch.zeros(self._numbers, dtype=torch.float64)
        double.native.squares_of(self._examples, squares.data_ptr(), self._threads, *at)
        chosen = factors(squares).contiguous()
        if chosen.dtype != torch.float64 or chosen.shape != shape:  # a kernel would read past their end
            raise ValueError(f"expected factors {shape} of float64, got {tuple(chosen.shape)} of {chosen.dtype}")
        double.native.combine_of(self._examples, chosen.data_ptr(), total.data_ptr(), self._threads, *at)
        return total

    def _of(self, tensors: Sequence[Tensor]) -> list[int]:
        at = [own.data_ptr() for own in tensors]
        found: list[int] = []
        for left, right, *others in self._blocks:
            found += (at[left], at[right], *others)
        return found


class Joints:
    """What there is of :class:`Joint` for tensors that came before, by their shapes."""

    _MOST = 64

    def __init__(self) -> None:
        self._known: dict[object, Joint | None] = {}

    def of(self, tensors: Sequence[Tensor], more: object, blocks: Callable[[], Sequence[Block] | None]) -> Joint | None:
        """Return how tensors are read, given ``blocks`` of such shapes; None where they are not read so."""
        if double.native is None or not all(own.is_cpu for own in tensors):
            return None
        key = more, *((own.shape, own.stride(), own.dtype) for own in tensors)
        if key not in self._known:
            if len(self._known) >= self._MOST:
                return None
            found = blocks()
            self._known[key] = None if found is None else Joint(found, tensors)
        return self._known[key]


def in_rows(values: Tensor) -> bool:
    """Return whether the numbers of each example lie side by side, wherever those of the next one begin."""
    return values.is_contiguous() or (len(values) > 0 and values[0].is_contiguous())


def vector_of(parts: Sequence[Tensor]) -> Tensor | None:
    """Return the vector that was :func:`unflattened` into parts; None where they are no parts of one on a CPU.

    >>> total = torch.arange(6.0)
    >>> vector_of(unflattened(total, [torch.empty(2, 2), torch.empty(2)])) is total
    True
    >>> vector_of([torch.ones(2), torch.ones(2)]) is vector_of([total[:2], total[4:]]) is None
    True
    """
    total = parts[0]._base
    if total is None or total.dim() != 1 or not total.is_cpu:
        return None
    at, size = total.data_ptr(), total.element_size()
    for part in parts:
        if part._base is not total or part.data_ptr() != at or not part.is_contiguous():
            return None
        at += size * part.numel()
    return total if at == total.data_ptr() + size * len(total) else None


def unflattened(total: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return the parts of a vector, in the shapes of other tensors: views, by one call."""
    parts = torch._C._nn.unflatten_dense_tensors(total, list(like))
    # Of no numbers torch makes a tensor of one axis.
    return [part if part.numel() else part.view(own.shape) for part, own in zip(parts, like, strict=True)]
