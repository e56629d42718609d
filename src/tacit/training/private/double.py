"""Norms and sums of per-example gradients in double precision: neither overflows, underflows nor forgets.

Squares and products of any two float32 numbers are doubles. A sum of n terms in any order is wrong by at most
``n 2^-53`` times the sum of their magnitudes: for batches of a million examples less than what
:data:`tacit.grid.SLACK` keeps back.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from tacit.training.private import fused

_FITS_A_CACHE = 1 << 18  # numbers; the rows of 5.6 million were squared in 3 ms so, and in 43 ms all at once
_BESIDE, _PARTS = 1 << 13, 4  # on a GPU more numbers are doubles in so many parts, for the memory

native: Any  # optional: rows are read once; it takes its threads from the OpenMP that torch has loaded
try:
    native = importlib.import_module("tacit.training.private._rows")
except ImportError:
    native = None

_looks = threading.local()


@contextmanager
def blind() -> Iterator[None]:
    """While it is on nothing in this thread is decided by numbers: a graph follows what is computed."""
    _looks.shut = True
    try:
        yield
    finally:
        _looks.shut = False


def may_look() -> bool:
    """Return whether numbers may decide what is computed."""
    return not getattr(_looks, "shut", False)


def scarce(value: Tensor) -> bool:
    """Return whether memory is scarcer than time where a tensor lies: on a GPU."""
    return value.is_cuda


def squares(rows: Tensor) -> Tensor:
    """Return the squared norm of each row; infinite or NaN where the row holds what is not finite."""
    rows = _flat(rows)
    if _has_kernel(rows):
        own = torch.empty(len(rows), dtype=torch.float64)
        native.squares(rows.data_ptr(), *rows.shape, own.data_ptr(), torch.get_num_threads())
        return own
    if fused.reads_rows(rows):
        return fused.squares(rows)
    found = [_as_double(part).square_().sum(1) for part in _parts(rows)]
    return found[0] if len(found) == 1 else torch.cat(found)


def combined(factors: Tensor, rows: Tensor) -> Tensor:
    """Return the sum of rows times factors; a row with the factor zero takes no part, whatever it holds."""
    rows = _flat(rows)
    if factors.dtype != torch.float64 or factors.shape != rows.shape[:1]:  # a kernel would read past their end
        given = f"{tuple(factors.shape)} of {factors.dtype}"
        raise ValueError(f"combined: expected {len(rows)} factors of float64, got {given}")
    if _has_kernel(rows):
        factors, total = factors.contiguous(), factors.new_zeros(rows.shape[1])
        native.combine(factors.data_ptr(), rows.data_ptr(), *rows.shape, total.data_ptr(), torch.get_num_threads())
        return total
    if fused.reads_rows(rows):
        return fused.combined(factors, rows)
    first, *others = _parts(cleared(rows, factors))
    total, start = factors[: len(first)] @ first.double(), len(first)
    for part in others:
        total += factors[start : start + len(part)] @ part.double()
        start += len(part)
    return total


def cleared(rows: Tensor, factors: Tensor) -> Tensor:
    """Return rows with zeros where the factor is zero: zero times infinity would be NaN, and a sum with it too."""
    if (
        may_look() and not factors.is_cuda and bool(factors.all())
    ):  # a GPU would wait for the answer longer than the copy takes
        return rows
    return torch.where((factors != 0.0).view(-1, *(1,) * (rows.dim() - 1)), rows, 0.0)


def _flat(rows: Tensor) -> Tensor:
    """Return one row of numbers per example; a parameter may be a single number."""
    return rows.flatten(1) if rows.dim() > 1 else rows[:, None]


def _as_double(rows: Tensor) -> Tensor:
    """Return a copy in double precision, which may be written over."""
    return rows.to(torch.float64, copy=True)


def _parts(rows: Tensor) -> Iterator[Tensor]:
    width = max(rows.shape[1], 1)
    at_once = max(_BESIDE // width, -(-len(rows) // _PARTS)) if scarce(rows) else _FITS_A_CACHE // width
    yield from (rows,) if at_once >= len(rows) else torch.split(rows, max(at_once, 1))


def _has_kernel(rows: Tensor) -> bool:
    """Return whether rows lie as the native kernels read them."""
    return native is not None and rows.dtype == torch.float32 and rows.is_cpu and rows.is_contiguous()
