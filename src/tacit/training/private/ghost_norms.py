r"""The rules of book-keeping: norms of a layer's per-example gradients, and their weighted sum, without the gradients.

For a layer whose weight meets inputs :math:`a_{it}` at positions t and whose outputs have gradients :math:`b_{it}`, the
gradient of example i is :math:`g_i = \sum_t b_{it} a_{it}^T`. It is never needed on its own (Goodfellow 2015; Bu et al.
2022, 2023): the norm is

.. math:: \lVert g_i \rVert^2 = \sum_{t,s} (a_{it}^T a_{is}) (b_{it}^T b_{is}),

for one position :math:`\lVert a_i \rVert^2 \lVert b_i \rVert^2`, and the clipped sum is one matrix product with
:math:`b_{it}` scaled by the example's factor. Where positions are many and the weight is small (a convolution's first
layers), forming :math:`g_i` costs less than the two Gram matrices, and that is done instead.

No norm that is found is below that of the gradient that is summed. A gradient that was formed is summed as it was
formed. The Gram sum is in double precision, and what it can be wrong by is added to it; with
:math:`\kappa_i = \sum_t \lVert a_{it} \rVert \lVert b_{it} \rVert` that is at most
:math:`(d + p + T^2 + 1)\, 2^{-53} \kappa_i^2`. Where positions cancel so far that
:math:`\kappa_i > 2^8 \lVert g_i \rVert`, the example's gradient is formed after all: what rounding adds to the sum
is thus at most :math:`2^8 n 2^{-53}` times the bound for each example, n being the positions of a batch.

Every rule takes all calls of its layer in a forward pass: their positions are put side by side, so that a layer that is
used twice is clipped by the gradient of both uses. A weight that several layers share (:func:`shared`: a table of words
that is the output layer too) is clipped by the gradient of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from tacit.training.private import double, fused
from tacit.training.recurrence import Hidden

_CANCELS = 2.0**16  # the square of how much larger than a gradient the sum of its positions' norms may be
_READ = 24  # products that could be computed while a number is read, squared and added up
_ROOM = 2  # how much larger than a layer's inputs and output gradients the gradient of an example may be
_AT_ONCE = 1 << 24  # numbers of gradients that are formed at a time, and of positions on a GPU
_FITS_A_CACHE = 1 << 20  # numbers of positions on a CPU
_QUARTERS = 4  # parts of a batch that does not fit a cache, on a GPU

Call = tuple[Tensor, Tensor]  # a layer's input and the gradient of its output, both with the examples first


class LayerGradients(Protocol):
    """What is known of a layer's per-example gradients."""

    @property
    def squares(self) -> Tensor:
        """Their squared norms, ``(examples,)``, in double precision; not finite where the gradient is not."""
        ...

    @property
    def doubtful(self) -> Tensor | None:
        """Where nobody may look, whether what is known can't be trusted, and all is to be computed plainly."""
        ...

    def weighted(self, factors: Tensor) -> list[Tensor]:
        """Return their sum, each times its factor, in double precision: one tensor for each parameter that trains.

        An example with the factor 0 takes no part, whatever its rows hold.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Formed:
    """Per-example gradients that were formed, one ``(examples, ...)`` tensor per parameter.

    ``shapes`` are the parameters' own; a weight's gradient may come with its second axis last (``channels_last``).
    """

    gradients: tuple[Tensor, ...]
    shapes: tuple[torch.Size, ...]
    channels_last: bool = False
    doubtful: None = None

    @property
    def squares(self) -> Tensor:
        """Their squared norms."""
        return torch.stack([double.squares(gradient) for gradient in self.gradients]).sum(0)

    def weighted(self, factors: Tensor) -> list[Tensor]:
        """Return their weighted sums."""
        sums = [double.combined(factors, gradient) for gradient in self.gradients]
        if self.channels_last:
            sums[0] = sums[0].view(self.gradients[0].shape[1:]).movedim(-1, 1).contiguous()
        return [total.view(shape) for total, shape in zip(sums, self.shapes, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Nothing:
    """Gradients of layers that a pass leaves out: zeros."""

    examples: int
    parameters: Sequence[nn.Parameter]
    doubtful: None = None

    @property
    def squares(self) -> Tensor:
        """Their squared norms."""
        return torch.zeros(self.examples, dtype=torch.float64, device=self.parameters[0].device)

    def weighted(self, factors: Tensor) -> list[Tensor]:
        """Return their weighted sums, whatever the factors."""
        del factors
        return [torch.zeros_like(parameter, dtype=torch.float64) for parameter in self.parameters]


@dataclass(frozen=True, kw_only=True)
class Outer:
    """Gradients of a matrix at one position, outer products that were not formed: ``(B, d)`` and ``(B, p)``."""

    inputs: Tensor
    gradients: Tensor
    weight: bool
    bias: bool
    doubtful: None = None

    @property
    def squares(self) -> Tensor:
        """The squared norms: products of the squared norms of the two vectors."""
        b = double.squares(self.gradients)
        weight = b * double.squares(self.inputs) if self.weight else torch.zeros_like(b)
        return weight + b if self.bias else weight

    def weighted(self, factors: Tensor) -> list[Tensor]:
        """Return the weighted sums: one matrix product over all examples, or over some at a time."""
        if fused.reads_positions(self.inputs, self.gradients):
            matrix = [fused.outer(factors, self.inputs[:, None], self.gradients[:, None])] if self.weight else []
            return [*matrix, double.combined(factors, self.gradients)] if self.bias else matrix
        totals: list[Tensor] = []
        for part in parts(len(factors), _FITS_A_CACHE, scarce=True) if double.scarce(factors) else [slice(None)]:
            own = factors[part]
            scaled = double.cleared(self.gradients[part], own).double().mul_(own[:, None])
            sums = [scaled.t() @ double.cleared(self.inputs[part], own).double()] if self.weight else []
            sums = [*sums, scaled.sum(0)] if self.bias else sums
            totals = [total.add_(more) for total, more in zip(totals, sums, strict=True)] if totals else sums
        return totals


class Grams(Protocol):
    """What computes norms by Gram matrices."""

    def gram(self) -> tuple[Tensor, Tensor]:
        """Return the sums of products of the two Gram matrices, and the squares of what all positions reach."""
        ...


class Positions(Protocol):
    """What a matrix meets: inputs ``(B, T, d)`` and gradients of its outputs ``(B, T, p)``, some examples at a time."""

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """B, T, d and p."""
        ...

    @property
    def scarce(self) -> bool:
        """Whether memory is scarcer than time where they lie."""
        ...

    def of(self, rows: slice | Tensor, factors: Tensor | None = None) -> Call:
        """Return inputs and output gradients of some examples in double precision; zeros where a factor is zero."""
        ...

    def formed(self, rows: slice | Tensor) -> Tensor:
        """Return the gradients of some examples, ``(examples, p, d)``."""
        ...

    def grams(self) -> Grams | None:
        """Return what computes norms by Gram matrices, or None where nothing does."""
        ...

    def combined(self, factors: Tensor) -> Tensor | None:
        """Return the sum of gradients times factors by a kernel, ``(p, d)``, or None where there is none."""
        ...

    def shaped(self, total: Tensor) -> Tensor:
        """Return a ``(p, d)`` matrix in the shape of the weight."""
        ...


class Gram:
    """Gradients of a matrix at several positions.

    Attributes:
        squares: the squared norms, by Gram matrices, never below the truth.
        doubtful: where nobody may look, whether positions cancel in any example: see :func:`_listed`.
    """

    def __init__(self, *, at: Positions, bias: Tensor | None) -> None:
        """Compute the norms, and form the gradients of examples whose positions cancel.

        Args:
            at: what the matrix meets.
            bias: each example's gradient of the bias, where one trains.
        """
        self._at, self._bias = at, bias
        _, positions, width, height = at.sizes
        own = at.grams()
        found, reach = self._products() if own is None else own.gram()
        # The reach is kappa squared. Twice what rounding can do.
        self.squares = found.clamp(min=0.0) + 2.0 * (width + height + positions * positions + 1) * 2.0**-53 * reach
        self._cancelling, self.doubtful = _listed(reach > _CANCELS * self.squares)
        for rows in self._few():
            self.squares[rows] = double.squares(at.formed(rows))
        if bias is not None:
            self.squares = self.squares + double.squares(bias)

    def weighted(self, factors: Tensor) -> list[Tensor]:
        """Return the weighted sums: one matrix product over all examples and positions."""
        _, _, width, height = self._at.sizes
        whole = factors.index_fill(0, self._cancelling, 0.0)
        total = self._at.combined(whole)
        if total is None:
            total = factors.new_zeros(height, width)
            for part in self._parts():
                own = whole[part]
                a, b = self._at.of(part, own)
                total.addmm_((b * own[:, None, None]).flatten(0, 1).t(), a.flatten(0, 1))
        for rows in self._few():
            total += double.combined(factors[rows], self._at.formed(rows)).view_as(total)
        sums = [self._at.shaped(total)]
        return sums if self._bias is None else [*sums, double.combined(factors, self._bias)]

    def _products(self) -> tuple[Tensor, Tensor]:
        """Return the sums of products of the two Gram matrices, and the squares of what all positions reach."""
        found, reached = [], []
        for part in self._parts():
            a, b = (torch.bmm(value, value.mT) for value in self._at.of(part))
            found.append((a * b).sum((1, 2)))
            lengths = a.diagonal(dim1=1, dim2=2) * b.diagonal(dim1=1, dim2=2)
            reached.append(lengths.sqrt().sum(1).square())
        return torch.cat(found), torch.cat(reached)

    def _parts(self) -> list[slice]:
        """Return all examples, as many at a time as a cache or the memory bears."""
        examples, positions, width, height = self._at.sizes
        # In double precision, and with what is made of it: three times the numbers.
        return parts(examples, positions * (width + height) * (3 if self._at.scarce else 1), scarce=self._at.scarce)

    def _few(self) -> tuple[Tensor, ...]:
        """Return the examples whose gradients are formed, as many at a time as memory bears."""
        _, _, width, height = self._at.sizes
        return torch.split(self._cancelling, max(1, _AT_ONCE // (width * height))) if len(self._cancelling) else ()


class Twice:
    """Gradients of a matrix at several positions, formed for their norms and once more for their sum, not kept.

    On a GPU two products take less time than it has memory for the gradients of a batch. The same product of the same
    numbers is the same to the bit there, as cuBLAS promises for one stream: what is summed is what was measured.
    Where there is room beside what a step holds anyhow, :meth:`keep` has them formed once.
    """

    doubtful = None

    def __init__(self, *, at: Positions, bias: Tensor | None) -> None:
        """Form nothing yet; arguments are those of :class:`Gram`."""
        self._at, self._bias = at, bias
        self._kept: list[Tensor] | None = None

    @property
    def numbers(self) -> int:
        """How many numbers the weight's gradients are."""
        examples, _, width, height = self._at.sizes
        return examples * width * height

    @property
    def positions(self) -> int:
        """At how many positions the matrix is met: what forming one of those numbers costs."""
        return self._at.sizes[1]

    def keep(self) -> None:
        """Form the gradients now and hold them."""
        self._kept = list(self._formed())

    @cached_property
    def squares(self) -> Tensor:
        """Their squared norms."""
        own = torch.cat([double.squares(gradients) for gradients in self._formed()])
        return own if self._bias is None else own + double.squares(self._bias)

    def weighted(self, factors: Tensor) -> list[Tensor]:
        """Return the weighted sums."""
        _, _, width, height = self._at.sizes
        total = factors.new_zeros(height * width)
        for part, gradients in zip(self._parts(), self._formed(), strict=True):
            total += double.combined(factors[part], gradients)
        sums = [self._at.shaped(total.view(height, width))]
        return sums if self._bias is None else [*sums, double.combined(factors, self._bias)]

    def _formed(self) -> Iterable[Tensor]:
        return (self._at.formed(part) for part in self._parts()) if self._kept is None else self._kept

    def _parts(self) -> list[slice]:
        examples, positions, width, height = self._at.sizes
        return parts(examples, positions * (width + height) + width * height, scarce=self._at.scarce)


def doubles(values: Tensor, factors: Tensor | None) -> Tensor:
    """Return examples' values in double precision, zeros where a factor is zero."""
    return (values if factors is None else double.cleared(values, factors)).double()


def parts(examples: int, each: int, *, scarce: bool) -> list[slice]:
    """Return all examples, as many of ``each`` numbers at a time as a cache bears, or the memory where that is scarce.

    There a batch of more than a million numbers goes in up to four parts though there is room: what is in between is
    then small beside what the layers themselves keep.
    """
    if not scarce:
        at_once = _FITS_A_CACHE // each or 1
    else:
        fewest = min(_QUARTERS, -(-examples * each // _FITS_A_CACHE))
        at_once = min(_AT_ONCE // each or 1, -(-examples // max(fewest, 1)))
    return [slice(start, min(start + at_once, examples)) for start in range(0, examples, max(at_once, 1))]


def _listed(cancels: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return which examples' positions cancel.

    While a graph is captured nobody may look: then none is listed, and whether there is any is
    returned beside. Whoever repeats it has to look at that, and to compute plainly where it is true.
    """
    if not double.may_look():
        return torch.empty(0, dtype=torch.int64, device=cancels.device), cancels.any()
    return cancels.nonzero()[:, 0], None


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """Positions that lie ready."""

    inputs: Tensor
    gradients: Tensor

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """B, T, d and p."""
        examples, positions, width = self.inputs.shape
        return examples, positions, width, self.gradients.shape[2]

    @property
    def scarce(self) -> bool:
        """Whether memory is scarcer than time where they lie."""
        return double.scarce(self.inputs)

    def of(self, rows: slice | Tensor, factors: Tensor | None = None) -> Call:
        """Return inputs and output gradients of some examples in double precision; zeros where a factor is zero."""
        return doubles(self.inputs[rows], factors), doubles(self.gradients[rows], factors)

    def formed(self, rows: slice | Tensor) -> Tensor:
        """Return the gradients of some examples."""
        return torch.bmm(self.gradients[rows].mT, self.inputs[rows])

    def grams(self) -> Grams | None:
        """Return what computes norms by Gram matrices, or None where nothing does."""
        if self.inputs.shape[1] > fused.MOST_POSITIONS or not fused.reads_positions(self.inputs, self.gradients):
            return None
        a, b = (own.mT[:, :, None] for own in (self.inputs, self.gradients))
        return fused.Images(inputs=lambda: a, gradients=b, width=a.shape[1])

    def combined(self, factors: Tensor) -> Tensor | None:
        """Return the sum of gradients times factors by a kernel, or None where there is none."""
        reads = fused.reads_positions(self.inputs, self.gradients)
        return fused.outer(factors, self.inputs, self.gradients) if reads else None

    def shaped(self, total: Tensor) -> Tensor:
        """Return the matrix: it has the weight's shape."""
        return total


def linear(layer: nn.Linear | Hidden, calls: Sequence[Call]) -> LayerGradients:
    """Return the gradients of an affine map of the last axis: of inputs, or of a recurrent layer's states."""
    a = side_by_side([_positions(value) for value, _ in calls])
    b = side_by_side([_positions(value) for _, value in calls])
    weight, bias = trains(layer)
    positions, width, height = a.shape[1], a.shape[2], b.shape[2]
    if positions == 1:
        return Outer(inputs=a[:, 0], gradients=b[:, 0], weight=weight, bias=bias)
    if weight and gram_pays(positions, width, height):
        return Gram(at=Sequences(inputs=a, gradients=b), bias=b.sum(1) if bias else None)
    if weight and double.scarce(a):
        return Twice(at=Sequences(inputs=a, gradients=b), bias=b.sum(1) if bias else None)
    formed = (torch.bmm(b.mT, a),) if weight else ()
    return Formed(gradients=(*formed, b.sum(1)) if bias else formed, shapes=shapes(layer))


def gram_pays(positions: int, width: int, height: int, *, held: bool = True) -> bool:
    """Return whether two Gram matrices cost less than forming the gradient: in products of single precision.

    Gram matrices and the weighted sum by positions are in double precision, twice the cost; of a formed gradient every
    number is read twice more, to square and to add it up, which costs as much as some products. A gradient that takes
    much more memory than the layer's values and their gradients is never formed where it would be ``held``: that of a
    large vocabulary, say.
    """
    size = width * height
    if held and size > _ROOM * positions * (width + height):
        return True
    return 2 * (positions * positions * (width + height) + positions * size) < (positions + _READ) * size


def embedding(layer: nn.Embedding, calls: Sequence[Call]) -> LayerGradients:
    """Return the gradients of a table: words that occur twice in an example share a row of its gradient."""
    rows, own = _words(layer, calls)
    return _Rows(rows=rows, gradients=own, table=len(layer.weight))


def _words(layer: nn.Embedding, calls: Sequence[Call]) -> tuple[Tensor, Tensor]:
    """Return which rows of a table an example uses, and the whole gradient of each where it comes first."""
    rows = side_by_side([index.reshape(len(index), -1, 1) for index, _ in calls])[:, :, 0]
    b = side_by_side([value.reshape(len(value), -1, value.shape[-1]) for _, value in calls])
    if layer.padding_idx is not None:
        b = b.masked_fill((rows == layer.padding_idx)[:, :, None], 0.0)
    if rows.shape[1] == 1:
        return rows, b
    # Words that are alike lie side by side once sorted; all their gradients are added up at one of their positions.
    ordered, order = rows.sort(1)
    begins = torch.cat([torch.ones_like(ordered[:, :1], dtype=torch.bool), ordered[:, 1:] != ordered[:, :-1]], 1)
    starts = torch.where(begins, torch.arange(rows.shape[1], device=rows.device), 0).cummax(1).values
    first = torch.empty_like(order).scatter_(1, order, order.gather(1, starts))
    return rows, torch.zeros_like(b).scatter_add_(1, first[:, :, None].expand_as(b), b)


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """Gradients of a table: which rows ``(B, T)``, and their gradients where a row comes first ``(B, T, p)``."""

    rows: Tensor
    gradients: Tensor
    table: int
    doubtful: None = None

    @property
    def squares(self) -> Tensor:
        return double.squares(self.gradients)

    def weighted(self, factors: Tensor) -> list[Tensor]:
        scaled = double.cleared(self.gradients, factors).double() * factors[:, None, None]
        table = scaled.new_zeros(self.table, scaled.shape[2])
        return [table.index_add_(0, self.rows.flatten(), scaled.flatten(0, 1))]


class Shared:
    r"""Gradients of a weight that is a matrix in some layers and a table in others.

    A word w at a position is a row of the table that meets the unit vector :math:`e_w`: with that as :math:`b_{it}` the
    Gram sum of all positions and its error are those of :class:`Gram`. Products of unit vectors are 0 and 1, and
    :math:`b_{it}^T e_w` is a number of :math:`b_{it}`.

    Attributes:
        squares: the squared norms, never below the truth.
        doubtful: as that of :class:`Gram`.
    """

    def __init__(
        self, *, matrices: Sequence[Call], words: Sequence[Call], table: int, biases: Sequence[Tensor]
    ) -> None:
        """Compute the norms.

        Args:
            matrices: inputs ``(B, T, d)`` and output gradients ``(B, T, p)`` of linear layers.
            words: rows ``(B, T)`` and their gradients where a row comes first ``(B, T, d)``.
            table: how many rows the weight has, p.
            biases: the gradients of the layers' own biases.
        """
        self._inputs = torch.cat([a for a, _ in matrices], 1)
        self._gradients = torch.cat([b for _, b in matrices], 1)
        self._rows = torch.cat([rows for rows, _ in words], 1)
        self._own = torch.cat([own for _, own in words], 1)
        self._table, self._biases = table, biases
        b, rows = self._gradients.double(), self._rows
        met = b.gather(2, rows[:, None].expand(-1, b.shape[1], -1))
        same = (rows[:, :, None] == rows[:, None]).double()
        left = torch.cat([torch.cat([torch.bmm(b, b.mT), met], 2), torch.cat([met.mT, same], 2)], 1)
        right = torch.cat([self._inputs, self._own], 1).double()
        found = (left * torch.bmm(right, right.mT)).sum((1, 2)).clamp(min=0.0)
        lengths = left.diagonal(dim1=1, dim2=2) * right.square().sum(2)
        reach = lengths.sqrt().sum(1).square()
        positions, width = right.shape[1:]
        self.squares = found + 2.0 * (width + table + positions * positions + 1) * 2.0**-53 * reach
        self._cancelling, self.doubtful = _listed(reach > _CANCELS * self.squares)
        for few in self._few():
            self.squares[few] = double.squares(self._formed(few))
        for bias in biases:
            self.squares = self.squares + double.squares(bias)

    def weighted(self, factors: Tensor) -> list[Tensor]:
        """Return the weighted sums: one matrix product, and the words' rows."""
        whole = factors.index_fill(0, self._cancelling, 0.0)
        scaled = double.cleared(self._gradients, whole).double() * whole[:, None, None]
        total = scaled.flatten(0, 1).t() @ double.cleared(self._inputs, whole).double().flatten(0, 1)
        own = double.cleared(self._own, whole).double() * whole[:, None, None]
        total.index_add_(0, self._rows.flatten(), own.flatten(0, 1))
        for few in self._few():
            total += double.combined(factors[few], self._formed(few)).view_as(total)
        return [total, *(double.combined(factors, bias) for bias in self._biases)]

    def _few(self) -> tuple[Tensor, ...]:
        size = self._table * self._inputs.shape[2]
        return torch.split(self._cancelling, max(1, _AT_ONCE // size)) if len(self._cancelling) else ()

    def _formed(self, few: Tensor) -> Tensor:
        formed = torch.bmm(self._gradients[few].mT, self._inputs[few])
        rows, own = self._rows[few], self._own[few]
        # A row comes once with a gradient and else with zeros, so that the order of the sum does not matter.
        return formed.scatter_add_(1, rows[:, :, None].expand_as(own), own)


def shared(layers: Sequence[nn.Module], calls: Sequence[Sequence[Call]], examples: int) -> LayerGradients:
    """Return the gradients of a weight that linear layers and embeddings share; biases are the linear layers' own.

    Layers may be left out of the pass of so many examples, but not all of them.
    """
    matrices, words, biases = [], [], []
    for layer, own in zip(layers, calls, strict=True):
        if not own:
            biases += [trained(layer)[-1].new_zeros(examples, len(trained(layer)[-1]))] if trains(layer)[1] else []
            continue
        if isinstance(layer, nn.Embedding):
            words.append(_words(layer, own))
            continue
        a, b = (side_by_side([_positions(call[part]) for call in own]) for part in (0, 1))
        matrices.append((a, b))
        if trains(layer)[1]:
            biases.append(b.sum(1))
    weight: Any = layers[0].weight
    table, width = weight.shape
    if not matrices:
        nothing = words[0][1].new_zeros(len(words[0][0]), 0, 0)
        matrices = [(nothing.expand(-1, -1, width), nothing.expand(-1, -1, table))]
    if not words:
        nobody = matrices[0][0]
        words = [(nobody.new_zeros(len(nobody), 0, dtype=torch.int64), nobody[:, :0])]
    return Shared(matrices=matrices, words=words, table=table, biases=biases)


def trained(layer: nn.Module) -> list[nn.Parameter]:
    """Return weight and bias, as far as they train, in this order; a layer may hold them in the other one."""
    own = dict(layer.named_parameters(recurse=False))
    return [own[name] for name in ("weight", "bias") if name in own and own[name].requires_grad]


def trains(layer: nn.Module) -> tuple[bool, bool]:
    """Return whether the weight trains, and the bias."""
    own = {name for name, parameter in layer.named_parameters(recurse=False) if parameter.requires_grad}
    return "weight" in own, "bias" in own


def shapes(layer: nn.Module) -> tuple[torch.Size, ...]:
    """Return the shapes of what trains."""
    return tuple(parameter.shape for parameter in trained(layer))


def _positions(value: Tensor) -> Tensor:
    return value.reshape(len(value), -1, value.shape[-1])


def side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """Return the positions of several calls as one's."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=1)
