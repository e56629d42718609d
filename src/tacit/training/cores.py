"""How many cores this process may use."""

from __future__ import annotations

import os


def cores() -> int:
    """Return the number of cores that the scheduler gives this process, or of the machine where it does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
