"""Lists of calls of the native kernels for images, written once for given shapes and run by one call each.

A step of a small batch is some fifty calls of a few dozen microseconds. Python between them would take a quarter of the
step, and threads beside it would wait for Python's lock at every one. A list says for each call which kernel it is,
where its arrays are, and its sizes (``_kernels.c`` has the same numbers). An array is a place: the number of a tensor
that is given when the list runs, and how many floats of it come before.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from enum import IntEnum
from typing import TypeAlias

from torch import Tensor

from tacit.training import native

Place: TypeAlias = int

_PLACE_BITS = 40
_LINE = 16  # floats of a line of the cache
_NOWHERE: Place = -1


class Kind(IntEnum):
    """The kernels."""

    CONVOLVE = 0  # x, weight, bias, out; n, h, w, c, o, pad, floats between a kernel's inputs, outputs, turned, add
    KERNEL = 1  # x, grad, grad_weight; n, h, w, c, o, pad
    SLIDE = 2  # x, weight, bias, out; n, h, w, c, o, kh, kw, sh, sw, ph, pw
    SLIDE_BACK = 3  # grad, weight, grad_x; as SLIDE, add
    SLIDE_KERNEL = 4  # x, grad, grad_weight; as SLIDE
    NORM = 5  # x, added, weight, bias, out, moments; n, pixels, c, groups, relu (2 up to 6), the bits of epsilon
    NORM_BACK = 6  # grad, x, out, weight, bias, moments, grad_x, grad_added, grad_weight, grad_bias; as NORM to relu
    TOTAL = 7  # x, out; n, pixels, c
    ADD = 8  # a, b, out; floats
    GATHER = 9  # all features, rows, out; n, c, pixels
    MEAN = 10  # x, out; n, pixels, c
    MEAN_BACK = 11  # grad, grad_x; n, pixels, c, add
    LINEAR = 12  # x, weight, bias, out; n, inputs, outputs
    LINEAR_BACK = 13  # grad, x, weight, grad_x, grad_weight, grad_bias; n, inputs, outputs, add
    ENTROPY = 14  # logits, all labels, rows, grad, total; n, classes
    STEP = 15  # gradient, rate, parameter; floats
    APART = 16  # as SLIDE,
    APART_BACK = 17  # SLIDE_BACK
    APART_KERNEL = 18  # and SLIDE_KERNEL, each channel for itself
    PRODUCT = 19  # x, w, init, out; rows, columns, products of each; floats between x's rows and numbers, w's rows,
    #               init's rows and out's rows
    UPRIGHT = 20  # x, out; rows, columns, floats between x's rows and out's, the latter a multiple of 16
    SUM_ROWS = 21  # x, out; rows, columns, floats between rows
    ADD_ROW = 22  # a, b, out; rows, columns
    TIMES = 23  # a, b, out; floats
    RECTIFY = 24  # x, out; floats
    RECTIFY_BACK = 25  # grad, what came out, grad_x; floats
    GELU = 26  # x, out, slope; floats, curve
    LAYER_NORM = 27  # x, weight, bias, out, means, slopes; rows, width, the bits of epsilon
    LAYER_NORM_BACK = 28  # grad, x, means, slopes, weight, grad_x, grad_weight, grad_bias; rows, width
    LOOK_UP = 29  # table, all numbers, rows, out; n, places, width, numbers of an example, those before the first
    LOOK_UP_BACK = 30  # grad, all numbers, rows, grad_table; as LOOK_UP, rows of the table, that of padding
    SCATTER = 31  # x, out; four sizes, four floats between those of x and of out, the bits of a factor
    ZERO = 32  # out; floats
    ATTEND = 33  # q, k, v, mask, out, weights; texts, heads, queries, keys, width, causal, floats between texts, heads
    #              and places of q, k, v and out, four of the mask, the bits of the scale
    ATTEND_BACK = 34  # grad, q, k, v, weights, grad_q, grad_k, grad_v; the same, of grad in the place of out
    RECUR = 35  # x, four weights and biases, hidden, cell, out, kept, last; batch, steps, inputs, size, gru
    RECUR_BACK = (
        36  # grad, grad_last, x, two weights, hidden, kept, and gradients of x, four weights and biases, hidden
    )
    #                  and cell; the same, whether grad is the last step's alone


def place(tensor: int, floats: int = 0) -> Place:
    """Return the place so many floats behind the beginning of a tensor."""
    return tensor << _PLACE_BITS | floats


def tensor_of(at: Place) -> int:
    """Return which tensor a place is in."""
    return at >> _PLACE_BITS


def floats_before(at: Place) -> int:
    """Return how many floats of its tensor come before a place."""
    return at & ((1 << _PLACE_BITS) - 1)


class Calls:
    """A list of calls; :meth:`run` runs it."""

    def __init__(self) -> None:
        self._list = array("q")

    def add(self, kind: Kind, arrays: Sequence[Place | None], sizes: Sequence[int]) -> None:
        """Write one call down, behind the others."""
        self._list.extend([kind, *(_NOWHERE if at is None else at for at in arrays), *sizes])

    def run(self, tensors: Sequence[Tensor], times: int = 1, threads: int = 1) -> None:
        """Make all calls, given the tensors that the places name; each time they read the rows of the next batch.

        Several threads share products and attention alone, and change no number.
        """
        address, length = self._list.buffer_info()
        native.kernels.perform(address, length, times, threads, *[tensor.data_ptr() for tensor in tensors])


class Room:
    """A tensor of which places are handed out when a list is written; one that was given back is handed out again."""

    def __init__(self, tensor: int) -> None:
        self.tensor = tensor
        self.floats = 0  # that the tensor has to have
        self._free: list[tuple[int, Place]] = []
        self._held: dict[Place, int] = {}

    def take(self, floats: int) -> Place:
        """Return a place for so many floats: the smallest that is free, or a new one."""
        size = -(-floats // _LINE) * _LINE + _LINE  # arrays that are used side by side don't share sets of the cache
        fitting = min((own for own in self._free if own[0] >= size), default=None)
        if fitting is not None:
            self._free.remove(fitting)
            size, at = fitting
        else:
            at = place(self.tensor, self.floats)
            self.floats += size
        self._held[at] = size
        return at

    def give_back(self, at: Place) -> None:
        """Let a place be handed out again."""
        self._free.append((self._held.pop(at), at))
