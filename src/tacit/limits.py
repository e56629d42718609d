"""How large a number may be, beyond which it is a slip of the hand; how many cores there are, and how much memory.

Each limit is far beyond what anybody runs, and well within what a machine word, a 32-bit float and the accountants
carry.
"""

from __future__ import annotations

import os
from pathlib import Path

CLIENTS = 10_000_000
ROUNDS = 1_000_000
EXAMPLES = 1_000_000_000  # also of a batch, and weights that stand for examples
STEPS = 1_000_000_000
PASSES = 1_000_000
PARAMETERS = 100_000_000_000
WORKERS = 256
RETRIES = 1_000
GPUS = 1_023
SEED = 2**63 - 1
SEEDS = 1_000
KEY_BITS = 16_384
SECONDS = 10_000_000.0  # 115 days
DAYS = 36_500  # a century
TINY, HUGE = 1e-12, 1e9  # clips, steps and other scales
RATE = 1e6  # learning rates, penalties and factors
NOISE = 1e6  # noise multipliers
LEAST_EPSILON, EPSILON = 1e-6, 1e6
LEAST_DELTA = 1e-100
NAME = 500  # characters
PATH, FILE_NAME = 4_096, 255  # bytes
DESCRIPTOR = 2**31 - 1  # of an open file

_ALLOWED = Path("/sys/fs/cgroup/memory.max")  # of a container, on Linux


def cores() -> int:
    """Return how many cores the scheduler gives this process, or how many the machine has where it does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int | None:
    """Return the bytes that this process may have: a container's, or the machine's; None where the system is silent."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
    try:
        return min(machine, int(_ALLOWED.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit
        return machine
