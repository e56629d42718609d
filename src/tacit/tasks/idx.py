"""The IDX format, in which MNIST and its relatives are published: a magic number, the dimensions, the values.

The magic number is two zero bytes, a type code and the number of dimensions; each dimension is a big-endian
32-bit integer, and the values follow in row-major order, big-endian too (LeCun et al. 1998, the MNIST page).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tacit.errors import DataError

_TYPES: dict[int, np.dtype[np.generic]] = {0x08: np.dtype(np.uint8), 0x0C: np.dtype(">i4")}


def parse_idx(content: bytes, *, file: str, dimensions: int) -> NDArray[np.generic]:
    """Return the array in ``content`` without a copy; a wrong or truncated file is refused, never half-read.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), file="labels", dimensions=1).tolist()
    [7, 9]
    """
    header = 4 + 4 * dimensions
    if len(content) < header or content[:2] != b"\0\0":
        raise _damaged(file, f"it starts with {content[:4].hex() or 'nothing'}, not with an IDX magic number")
    code, found = content[2], content[3]
    if code not in _TYPES:
        raise _damaged(file, f"its type code is 0x{code:02x}, not one of {', '.join(f'0x{key:02x}' for key in _TYPES)}")
    if found != dimensions:
        raise _damaged(file, f"it has {found} dimensions where {dimensions} were expected")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", count=dimensions, offset=4))
    kind = _TYPES[code]
    expected = header + math.prod(shape) * kind.itemsize
    if len(content) != expected:
        raise _damaged(file, f"it is {len(content)} bytes long where shape {shape} needs {expected}")
    return np.frombuffer(content, kind, offset=header).reshape(shape)


def _damaged(file: str, reason: str) -> DataError:
    return DataError(f"{file} is no valid IDX file: {reason}. Delete it and get it again with `tacit data get`.")
