"""Kernels for NVIDIA GPUs that read what they are given once, and square it or add it up in double precision.

They are written in Triton, which comes with PyTorch for NVIDIA GPUs and needs a C compiler; where either is missing,
operations of torch's do the same in several passes. Numbers are added in an order that shapes alone decide, so that the
same numbers have the same sums to the bit.
"""

# ruff: noqa: N803 - names in capitals are what a kernel is compiled for, as Triton's users write them

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

triton: Any  # optional
tl: Any
try:
    triton, tl = importlib.import_module("triton"), importlib.import_module("triton.language")
except ImportError:
    triton = tl = None

Pair = tuple[int, int]

_KINDS = (torch.float32, torch.bfloat16, torch.float16)
_PROGRAMS = 1024  # blocks of threads that keep a GPU busy; an H200 has 132 processors
_SINCE = (8, 0)  # GPUs have products in TF32 and double precision
_MEASURE, _ADD, _HOLD = range(3)  # tasks of the kernel that forms gradients
_TILES = 528  # blocks of threads that each hold a tile of gradients, four for a processor
_OUT, _IN, _AT = 32, 64, 16  # such a tile's sides, and examples at a time, where products are in double precision
_LONGEST = 16  # times that many examples, for which one block of threads is quick enough
MOST_POSITIONS = 64  # whose Gram matrices a block of threads holds
_WIDEST = 1 << 30  # numbers of an example, which are counted in 32 bits


def jit(*runtime: str) -> Callable[[Any], Any]:
    """Compile a kernel once for all values of the arguments ``runtime``, others by whether 16 divides them, say."""
    return lambda function: function if triton is None else triton.jit(function, do_not_specialize=list(runtime))


@jit("each")
def _squares(
    rows: tl.tensor, found: tl.tensor, step: tl.tensor, width: tl.tensor, each: tl.tensor, BLOCK: tl.constexpr
) -> None:
    row = tl.program_id(0)
    part = tl.program_id(1)
    begin = rows + row.to(tl.int64) * step
    total = tl.zeros([BLOCK], tl.float64)
    for at in range(0, each * BLOCK, BLOCK):
        places = part * each * BLOCK + at + tl.arange(0, BLOCK)
        own = tl.load(begin + places, mask=places < width, other=0.0).to(tl.float64)
        total += own * own
    tl.store(found + row.to(tl.int64) * tl.num_programs(1) + part, tl.sum(total))


@jit("count", "each")
def _combined(
    factors: tl.tensor,
    rows: tl.tensor,
    found: tl.tensor,
    count: tl.tensor,
    step: tl.tensor,
    width: tl.tensor,
    each: tl.tensor,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
) -> None:
    part = tl.program_id(1)
    across = tl.program_id(0) * ACROSS + tl.arange(0, ACROSS)
    inside = across < width
    total = tl.zeros([DOWN, ACROSS], tl.float64)
    for at in range(0, each * DOWN, DOWN):
        down = part * each * DOWN + at + tl.arange(0, DOWN)
        own = tl.load(factors + down, mask=down < count, other=0.0)
        takes = (own != 0.0)[:, None] & inside[None, :]
        values = tl.load(rows + down.to(tl.int64)[:, None] * step + across[None, :], mask=takes, other=0.0)
        total += values.to(tl.float64) * own[:, None]
    tl.store(found + part.to(tl.int64) * width + across, tl.sum(total, 0), mask=inside)


def squares(rows: Tensor) -> Tensor:
    """Return the squared norm of each row."""
    count, width = rows.shape
    block, warps = (256, 1) if width <= 256 else (2048, 8)
    blocks = -(-width // block)
    each = max(1, -(-blocks // max(1, min(-(-blocks // 4), _PROGRAMS // max(count, 1)))))
    found = rows.new_empty((count, max(1, -(-blocks // each))), dtype=torch.float64)
    if count:
        with torch.cuda.device(rows.device):
            _squares[tuple(found.shape)](rows, found, rows.stride(0), width, each, BLOCK=block, num_warps=warps)
    return found[:, 0] if found.shape[1] == 1 else found.sum(1)


def combined(factors: Tensor, rows: Tensor) -> Tensor:
    """Return the sum of rows times factors; rows with the factor zero are not read."""
    count, width = rows.shape
    down, across = (32, 64) if width <= 64 else (4, 512)
    blocks, pieces = -(-width // across), -(-count // down)
    each = max(1, -(-pieces // max(1, min(-(-pieces // 4), _PROGRAMS // max(blocks, 1)))))
    found = factors.new_empty(max(1, -(-pieces // each)), width)
    if width:
        with torch.cuda.device(rows.device):
            _combined[blocks, len(found)](
                factors.contiguous(), rows, found, count, rows.stride(0), width, each, DOWN=down, ACROSS=across
            )
    return found[0] if len(found) == 1 else found.sum(0)


@jit("count", "positions", "each")
def _outer(
    factors: tl.tensor,
    a: tl.tensor,
    b: tl.tensor,
    found: tl.tensor,
    count: tl.tensor,
    positions: tl.tensor,
    each: tl.tensor,
    a_step: tl.tensor,
    b_step: tl.tensor,
    width: tl.tensor,
    height: tl.tensor,
    OUT: tl.constexpr,
    IN: tl.constexpr,
    AT: tl.constexpr,
) -> None:
    d = tl.program_id(0) * IN + tl.arange(0, IN)
    p = tl.program_id(1) * OUT + tl.arange(0, OUT)
    part = tl.program_id(2)
    total = tl.zeros([OUT, IN], tl.float64)
    for at in range(0, each * AT, AT):
        rows = part * each * AT + at + tl.arange(0, AT)
        own = tl.load(factors + rows // positions, mask=rows < count, other=0.0)
        takes = (own != 0.0)[:, None]
        down = rows.to(tl.int64)[:, None]
        met = tl.load(a + down * a_step + d[None, :], mask=takes & (d < width)[None, :], other=0.0)
        got = tl.load(b + down * b_step + p[None, :], mask=takes & (p < height)[None, :], other=0.0)
        scaled = got.to(tl.float64) * own[:, None]
        total = tl.dot(tl.trans(scaled), met.to(tl.float64), total, out_dtype=tl.float64)
    place = (part.to(tl.int64) * height + p[:, None]) * width + d[None, :]
    tl.store(found + place, total, mask=(p < height)[:, None] & (d < width)[None, :])


def outer(factors: Tensor, inputs: Tensor, gradients: Tensor) -> Tensor:
    """Return the sum over examples and positions of outer products times the example's factor, ``(p, d)``.

    Args:
        factors: one per example; with zero it is not read.
        inputs: ``(B, T, d)``.
        gradients: ``(B, T, p)``.
    """
    positions, width, height = inputs.shape[1], inputs.shape[2], gradients.shape[2]
    a, b = (own.reshape(-1, own.shape[2]) for own in (inputs, gradients))
    a, b = (own if own.stride(1) == 1 else own.contiguous() for own in (a, b))
    across, down, pieces = -(-width // _IN), -(-height // _OUT), -(-len(a) // _AT)
    parts = max(1, min(pieces // _LONGEST, _TILES // max(across * down, 1)))
    found = factors.new_empty(parts, height, width)
    if found.numel():
        with torch.cuda.device(a.device):
            _outer[across, down, parts](
                factors.contiguous(), a, b, found, len(a), positions, -(-pieces // parts), a.stride(0), b.stride(0),
                width, height, OUT=_OUT, IN=_IN, AT=_AT,
            )  # fmt: skip
    return found[0] if parts == 1 else found.sum(0)


@jit()
def _of_numbers(
    d: tl.tensor, a_channel: tl.tensor, in_row: tl.tensor, in_column: tl.tensor, size: tl.tensor, columns: tl.tensor
) -> tl.tensor:
    """Return where the numbers of a window lie, which are counted by channels, rows and columns."""
    return d // size * a_channel + d % size // columns * in_row + d % columns * in_column


@jit("task", "examples", "each")
def _formed(
    a: tl.tensor,
    b: tl.tensor,
    factors: tl.tensor,
    found: tl.tensor,
    task: tl.tensor,
    examples: tl.tensor,
    each: tl.tensor,
    a_example: tl.tensor,
    a_channel: tl.tensor,
    in_row: tl.tensor,
    in_column: tl.tensor,
    size: tl.tensor,
    columns: tl.tensor,
    at_row: tl.tensor,
    at_column: tl.tensor,
    across: tl.tensor,
    b_example: tl.tensor,
    b_output: tl.tensor,
    b_position: tl.tensor,
    positions: tl.tensor,
    height: tl.tensor,
    width: tl.tensor,
    HOLD: tl.constexpr,
    OUT: tl.constexpr,
    IN: tl.constexpr,
    AT: tl.constexpr,
) -> None:
    tile = tl.program_id(0)
    group = tl.program_id(1)
    p = tile // tl.cdiv(width, IN) * OUT + tl.arange(0, OUT)
    d = tile % tl.cdiv(width, IN) * IN + tl.arange(0, IN)
    of_number = _of_numbers(d, a_channel, in_row, in_column, size, columns)
    place = p.to(tl.int64)[:, None] * width + d[None, :]
    inside = (p < height)[:, None] & (d < width)[None, :]
    total = tl.zeros([OUT, IN], tl.float64)
    for number in range(group * each, tl.minimum(group * each + each, examples)):
        example = tl.cast(number, tl.int64)
        formed = tl.zeros([OUT, IN], tl.float32)
        for first in range(0, positions, AT):
            t = first + tl.arange(0, AT)
            of_position = t // across * at_row + t % across * at_column
            met = tl.load(
                a + example * a_example + of_position[:, None] + of_number[None, :],
                mask=(t < positions)[:, None] & (d < width)[None, :],
                other=0.0,
            )
            own = tl.load(
                b + example * b_example + p[:, None] * b_output + t[None, :] * b_position,
                mask=(p < height)[:, None] & (t < positions)[None, :],
                other=0.0,
            )
            formed = tl.dot(own, met, formed, input_precision="tf32")
        if HOLD:
            tl.store(found + example * height * width + place, formed, mask=inside)
        else:
            values = formed.to(tl.float64)
            if task == 0:
                tl.store(found + example * tl.num_programs(0) + tile, tl.sum(values * values))
            else:
                factor = tl.load(factors + example)
                if factor != 0.0:
                    total += values * factor
    if task == 1:
        tl.store(found + group.to(tl.int64) * height * width + place, total, mask=inside)


@jit()
def _gram(
    a: tl.tensor,
    b: tl.tensor,
    found: tl.tensor,
    reached: tl.tensor,
    a_example: tl.tensor,
    a_channel: tl.tensor,
    in_row: tl.tensor,
    in_column: tl.tensor,
    size: tl.tensor,
    columns: tl.tensor,
    at_row: tl.tensor,
    at_column: tl.tensor,
    across: tl.tensor,
    b_example: tl.tensor,
    b_output: tl.tensor,
    b_position: tl.tensor,
    positions: tl.tensor,
    height: tl.tensor,
    width: tl.tensor,
    IN: tl.constexpr,
    AT: tl.constexpr,
) -> None:
    example = tl.program_id(0).to(tl.int64)
    t = tl.arange(0, AT)
    of_position = t // across * at_row + t % across * at_column
    left = tl.zeros([AT, AT], tl.float64)
    for first in range(0, width, IN):
        d = first + tl.arange(0, IN)
        at = of_position[:, None] + _of_numbers(d, a_channel, in_row, in_column, size, columns)[None, :]
        inside = (t < positions)[:, None] & (d < width)[None, :]
        met = tl.load(a + example * a_example + at, mask=inside, other=0.0).to(tl.float64)
        left = tl.dot(met, tl.trans(met), left, out_dtype=tl.float64)
    right = tl.zeros([AT, AT], tl.float64)
    for first in range(0, height, IN):
        p = first + tl.arange(0, IN)
        at = t[:, None] * b_position + p[None, :] * b_output
        inside = (t < positions)[:, None] & (p < height)[None, :]
        own = tl.load(b + example * b_example + at, mask=inside, other=0.0).to(tl.float64)
        right = tl.dot(own, tl.trans(own), right, out_dtype=tl.float64)
    products = left * right
    lengths = tl.sum(tl.where(t[:, None] == t[None, :], products, 0.0), 1)
    reach = tl.sum(tl.sqrt(lengths))
    tl.store(found + example, tl.sum(products))
    tl.store(reached + example, reach * reach)


@dataclass(frozen=True, kw_only=True)
class Images:
    """What a matrix meets at positions of images, read where it lies; a sequence is an image of one row.

    Attributes:
        inputs: returns the images, ``(B, channels, height, width)``; a padded copy is there while it is read.
        gradients: of the outputs, ``(B, p, height, width)``.
        width: how many numbers a window has, d.
        kernel: rows and columns of a window.
        stride: from a window to the next.
        dilation: from a number of a window to the next.
    """

    inputs: Callable[[], Tensor]
    gradients: Tensor
    width: int
    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)

    def gram(self) -> tuple[Tensor, Tensor]:
        """Return the sums of products of the two Gram matrices, and the squares of what all positions reach."""
        found, reached = self.gradients.new_empty((2, len(self.gradients)), dtype=torch.float64)
        with torch.cuda.device(found.device):
            a, b, numbers = self._read()
            at = max(16, triton.next_power_of_2(b.shape[2]))
            _gram[(len(b),)](a, b, found, reached, *numbers, IN=32, AT=at)
        return found, reached

    def squares(self) -> Tensor:
        """Return the squared norms of the gradients that :meth:`combined` adds up.

        They are formed in registers both times, in TF32, for which float32 numbers are cut off, and never written
        anywhere. One compiled kernel does both: the instructions that form them are the same, and so are the gradients
        to the bit.
        """
        found = self.gradients.new_empty((len(self.gradients), self._tiles), dtype=torch.float64)
        self._form(_MEASURE, found, found)
        return found.sum(1)

    def combined(self, factors: Tensor) -> Tensor:
        """Return the sum of gradients times factors, ``(p, d)``; with the factor zero one takes no part."""
        found = factors.new_empty(-(-len(factors) // self._each), self.gradients.shape[1], self.width)
        # A copy lies as what else is allocated does: for memory that lies otherwise a kernel would be compiled anew.
        self._form(_ADD, factors.clone(), found)
        return found[0] if len(found) == 1 else found.sum(0)

    def held(self) -> Tensor:
        """Return the gradients, ``(B, p, d)``, formed in TF32."""
        found = self.gradients.new_empty(*self.gradients.shape[:2], self.width)
        self._form(_HOLD, found, found)
        return found

    @property
    def _blocks(self) -> dict[str, int]:
        """How much a block of threads holds: outputs, numbers of a window, and positions at a time."""
        outputs = min(128, max(16, triton.next_power_of_2(self.gradients.shape[1])))
        at = 16 if self.gradients.shape[2:].numel() <= 16 else 32
        return {"OUT": outputs, "IN": 64, "AT": at, "num_warps": 8 if outputs == 128 else 4}

    @property
    def _tiles(self) -> int:
        blocks = self._blocks
        return -(-self.gradients.shape[1] // blocks["OUT"]) * -(-self.width // blocks["IN"])

    @property
    def _each(self) -> int:
        """How many examples a block of threads takes one after the other."""
        examples = len(self.gradients)
        return -(-examples // max(1, min(examples, _TILES // self._tiles)))

    def _form(self, task: int, factors: Tensor, found: Tensor) -> None:
        with torch.cuda.device(found.device):
            a, b, numbers = self._read()
            _formed[self._tiles, -(-len(b) // self._each)](
                a, b, factors, found, task, len(b), self._each, *numbers, HOLD=task == _HOLD, **self._blocks
            )

    def _read(self) -> tuple[Tensor, Tensor, list[int]]:
        """Return inputs, gradients of outputs ``(B, p, T)``, and the numbers that say where what lies."""
        a, b = self.inputs(), self.gradients.flatten(2)
        example, channel, row, column = a.stride()
        inside = [self.dilation[0] * row, self.dilation[1] * column, self.kernel[0] * self.kernel[1], self.kernel[1]]
        at = [self.stride[0] * row, self.stride[1] * column, self.gradients.shape[3]]
        return a, b, [example, channel, *inside, *at, *b.stride(), b.shape[2], b.shape[1], self.width]


def reads_rows(rows: Tensor) -> bool:
    """Return whether kernels square and add up rows that lie so."""
    return (
        rows.is_cuda
        and rows.dtype in _KINDS
        and rows.stride(1) == 1
        and rows.shape[1] < _WIDEST
        and _works(rows.device)
    )


def reads_positions(inputs: Tensor, gradients: Tensor) -> bool:
    """Return whether kernels read what a matrix meets: such inputs, and gradients of outputs."""
    kinds = inputs.dtype == gradients.dtype == torch.float32
    if not (kinds and inputs.is_cuda and inputs.numel() and gradients.numel() and inputs[0].numel() < _WIDEST):
        return False
    return torch.cuda.get_device_capability(inputs.device) >= _SINCE and _works(inputs.device)


@cache
def _works(device: torch.device) -> bool:
    """Return whether kernels can be built here, and give what they should."""
    if triton is None:
        return False
    rows = torch.ones(2, 3, dtype=torch.float32, device=device)  # whatever torch's default type is
    factors = torch.ones(2, dtype=torch.float64, device=device)
    try:
        right = bool((squares(rows) == 3.0).all()) and bool((combined(factors, rows) == 2.0).all())
        if right and torch.cuda.get_device_capability(device) >= _SINCE:
            images = Images(inputs=lambda: rows[:, :, None, None], gradients=rows[:, :, None, None], width=3)
            right = bool((outer(factors, rows[:, None], rows[:, None]) == images.combined(factors)).all())
    except Exception:  # whatever is missing, in whatever words Triton says so
        return False
    return right
