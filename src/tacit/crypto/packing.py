r"""Packing: many small numbers side by side in the bits of a few large ones, by NumPy alone.

A large number holds ``slots`` small ones of ``bits`` bits each, :math:`\sum_j u_j 2^{bits \cdot j}`. Adding large
numbers adds their slots, as long as no slot's sum needs more than ``bits`` bits; :mod:`tacit.crypto.layout` sees to it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.crypto.rows import Rows

_WORD = 64


def pack(numbers: NDArray[np.uint64], bits: int, width: int) -> Rows:
    """Return one row of ``width`` bytes for every row of ``numbers``, each below 2**bits with bits <= 64.

    >>> pack(np.array([[1, 2]], np.uint64), 8, 3).tolist()
    [[0, 2, 1]]
    """
    count, slots = numbers.shape
    words = -(-slots * bits // _WORD)
    columns = np.ascontiguousarray(numbers.T)
    packed = np.zeros((words + 1, count), np.uint64)
    for slot in range(slots):  # a slot of all rows at once
        word, shift = divmod(slot * bits, _WORD)
        packed[word] |= columns[slot] << np.uint64(shift)
        if shift + bits > _WORD:
            packed[word + 1] |= columns[slot] >> np.uint64(_WORD - shift)
    little = np.ascontiguousarray(packed[:words].T).astype("<u8").view(np.uint8)
    rows = np.zeros((count, width), np.uint8)
    used = min(width, little.shape[1])  # what is cut off is zero: the caller's slots fit the width
    rows[:, width - used :] = little[:, :used][:, ::-1]
    return rows


def unpack(rows: Rows, bits: int, slots: int) -> NDArray[np.uint64]:
    """Return the ``slots`` numbers of every row.

    >>> unpack(np.array([[0, 2, 1]], np.uint8), 8, 2).tolist()
    [[1, 2]]
    """
    count, width = rows.shape
    words = -(-slots * bits // _WORD) + 1
    little = np.zeros((count, 8 * words), np.uint8)
    used = min(width, 8 * words)
    little[:, :used] = rows[:, width - used :][:, ::-1]
    columns = np.ascontiguousarray(little.view("<u8").T)
    mask = np.uint64((1 << bits) - 1)
    numbers = np.empty((slots, count), np.uint64)
    for slot in range(slots):
        word, shift = divmod(slot * bits, _WORD)
        value = columns[word] >> np.uint64(shift)
        if shift + bits > _WORD:
            value |= columns[word + 1] << np.uint64(_WORD - shift)
        numbers[slot] = value & mask
    return np.ascontiguousarray(numbers.T)


def spill(rows: Rows, bits: int, slots: int) -> NDArray[np.intp]:
    """Return the places of the rows that have a bit set above their slots."""
    free = 8 * rows.shape[1] - slots * bits
    whole, part = divmod(max(free, 0), 8)
    above = rows[:, :whole].any(axis=1)
    if part:
        above |= rows[:, whole] >> (8 - part) > 0
    return np.nonzero(above)[0]
