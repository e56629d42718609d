"""What PyTorch computes slowly for one model on a CPU, by native kernels: images' layers, recurrent ones, attention.

``images.h``, ``recurrence.h`` and ``attention.h`` have the loops and say how they save time; the modules of these names
are what calls them. The kernels release the GIL and use one thread each, so that one thread per core scales. They are
optional: :func:`available` says whether they are there.
"""

from __future__ import annotations

import importlib
from typing import Any

from torch import Tensor

LANES = 16  # channels and states come in multiples of so many

kernels: Any
try:
    kernels = importlib.import_module("tacit.training.native._kernels")
except ImportError:  # built without a C compiler
    kernels = None


def available() -> bool:
    """Whether the kernels were built for this installation, and this CPU has the registers that make them fast."""
    return kernels is not None and len(kernels.levels()) > 0


def addresses(*values: Tensor | None) -> list[int]:
    """Return where tensors begin, 0 for None."""
    return [0 if value is None else value.data_ptr() for value in values]
