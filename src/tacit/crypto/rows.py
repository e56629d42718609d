"""Rows: many large numbers as one contiguous array of big-endian bytes, one number a row.

Ciphertexts travel and rest in this form. No Python object a number exists outside a backend's inner loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from tacit.randomness import system_bytes

Rows = NDArray[np.uint8]  # (count, width)


BLOCK = 1 << 14  # rows handled at once, so that a long vector needs little beyond itself on the way


def in_blocks(count: int, compute: Callable[[slice], Rows]) -> Rows:
    """Return what ``compute`` gives for all of ``count`` rows, asked for a block at a time.

    >>> in_blocks(3, lambda part: from_integers(range(3), 1)[part]).tolist()
    [[0], [1], [2]]
    """
    if count <= BLOCK:
        return compute(slice(0, count))
    first = compute(slice(0, BLOCK))
    rows = np.empty((count, first.shape[1]), np.uint8)
    rows[:BLOCK] = first
    for start in range(BLOCK, count, BLOCK):
        part = slice(start, min(start + BLOCK, count))
        rows[part] = compute(part)
    return rows


def width_of(modulus: int) -> int:
    """Return how many bytes ``modulus`` has, and so every number below it."""
    return (modulus.bit_length() + 7) // 8


def from_integers(numbers: Iterable[int], width: int) -> Rows:
    """Return non-negative integers as rows of ``width`` bytes.

    >>> from_integers([1, 258], 2).tolist()
    [[0, 1], [1, 2]]
    """
    raw = b"".join([int(number).to_bytes(width, "big") for number in numbers])
    return np.frombuffer(raw, np.uint8).reshape(-1, width)


def to_integers(rows: Rows) -> list[int]:
    """Return the rows as integers."""
    raw, width = rows.tobytes(), rows.shape[1]
    return [int.from_bytes(raw[start : start + width], "big") for start in range(0, len(raw), width)]


def widened(rows: Rows, width: int) -> Rows:
    """Return the same numbers in rows of at least as many bytes."""
    if rows.shape[1] == width:
        return rows
    wide = np.zeros((len(rows), width), np.uint8)
    wide[:, width - rows.shape[1] :] = rows
    return wide


def random_below(bound: int, count: int) -> Rows:
    """Return ``count`` uniform numbers in [0, bound) from the operating system, in rows as wide as the largest.

    Candidates of as many bits as the largest are drawn, and those that are not below the bound are drawn again.
    """
    width, spare = width_of(bound - 1), -(bound - 1).bit_length() % 8
    rows = np.empty((count, width), np.uint8)
    missing = np.arange(count)
    while len(missing):
        drawn = np.frombuffer(system_bytes(len(missing) * width), np.uint8).reshape(-1, width).copy()
        drawn[:, 0] >>= spare
        rows[missing] = drawn
        missing = missing[not_below(drawn, bound)]
    return rows


def not_below(rows: Rows, bound: int) -> NDArray[np.intp]:
    """Return the places of the rows that are not below ``bound``.

    >>> not_below(from_integers([0, 6, 7, 255], 1), 7).tolist()
    [2, 3]
    """
    count, width = rows.shape
    if bound >> (8 * width):
        return np.empty(0, np.intp)
    edge = np.frombuffer(bound.to_bytes(width, "big"), np.uint8)
    undecided = np.arange(count)
    outside = []
    for column in range(width):  # ends after a column or two: equal bytes are rare
        if not len(undecided):
            break
        byte = rows[undecided, column]
        outside.append(undecided[byte > edge[column]])
        undecided = undecided[byte == edge[column]]
    outside.append(undecided)  # equal to the bound
    return np.sort(np.concatenate(outside))


def zeros(rows: Rows) -> NDArray[np.intp]:
    """Return the places of the rows that are zero."""
    return np.nonzero(~rows.any(axis=1))[0]
