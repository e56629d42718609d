"""What training asks of the processor: how many cores there are, and to keep freed memory between steps."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_MMAP_THRESHOLD = 32 << 20  # glibc's own upper limit


def keep_pages() -> bool:
    """Tell glibc not to hand large freed blocks back to the system; return whether that was possible.

    A training step allocates and frees tensors of a few megabytes. By default glibc maps and unmaps each of
    them, and the page faults of the next step cost up to a third of it. Elsewhere this does nothing.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD) and mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
