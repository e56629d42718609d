"""What training asks of the processor: how many cores there are, and to keep freed memory between steps."""

from __future__ import annotations

import ctypes
import sys

import torch
from torch import Tensor

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGEST_MMAP_THRESHOLD = 32 << 20  # glibc's own upper limit
_FEW = 8  # threads that may share one arena without waiting for each other


def innermost(features: Tensor) -> Tensor:
    """Return images on a CPU with their channels innermost; one channel is another name for the same memory.

    PyTorch's convolutions and poolings are fastest so, and its group norms take four times as long.

    >>> innermost(torch.zeros(2, 3, 4, 5)).stride(), innermost(torch.zeros(2, 1, 4, 5)).stride()
    ((60, 1, 15, 3), (20, 1, 5, 1))
    """
    if features.dim() != 4 or features.is_cuda:
        return features
    if features.shape[1] > 1:
        return features.contiguous(memory_format=torch.channels_last)
    return features.reshape(len(features), *features.shape[2:], 1).permute(0, 3, 1, 2)


def keep_pages(workers: int = 1) -> bool:
    """Tell glibc not to hand large freed blocks back to the system; return whether that was possible.

    A training step allocates and frees tensors of a few megabytes. By default glibc maps and unmaps each of
    them, and the page faults of the next step cost up to a third of it. Elsewhere this does nothing.

    Args:
        workers: how many threads will train. Each would have an arena of its own, which gives 64 MB at a time back
            whatever it was told; few of them are better off in one.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    if workers <= _FEW:
        mallopt(_M_ARENA_MAX, 1)
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD) and mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
