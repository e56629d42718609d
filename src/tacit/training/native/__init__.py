"""What PyTorch computes slowly for one model on a CPU, by native kernels: images' layers, recurrent ones, attention.

``images.h``, ``recurrence.h``, ``attention.h`` and ``linear.h`` have the loops and say how they save time; the modules
of these names are what calls them. The kernels release the GIL and use one thread each, so that one thread per core
scales. They are optional: :func:`available` says whether they are there.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

LANES = 16  # channels and states come in multiples of so many

kernels: Any
try:
    kernels = importlib.import_module("tacit.training.native._kernels")
except ImportError:  # built without a C compiler
    kernels = None
_LEVELS = 0 if kernels is None else len(kernels.levels())  # asked once: operations ask whether there are any


def available() -> bool:
    """Whether the kernels were built for this installation, and this CPU has the registers that make them fast."""
    return kernels is not None and _LEVELS > 0


def addresses(*values: Tensor | None) -> list[int]:
    """Return where tensors begin, 0 for None."""
    return [0 if value is None else value.data_ptr() for value in values]


def plain(*values: Tensor) -> bool:
    """Return whether the kernels can read tensors: numbers of 32 bits on a CPU, and nothing that stands for others."""
    return available() and all(
        type(value) in (Tensor, torch.nn.Parameter)
        and value.dtype == torch.float32
        and value.is_cpu
        and value.layout == torch.strided
        and not torch._C._functorch.is_functorch_wrapped_tensor(value)  # vmap's, or grad's, inside of the model
        and value.numel() > 0
        for value in values
    )


def readable(*values: Tensor | None) -> bool:
    """Return whether the kernels can read tensors that an operation for CPUs was given; None is left out."""
    return available() and all(own is None or (own.dtype is torch.float32 and own.is_cpu) for own in values)
