"""Random bits as a function of a key and an index, the same on every device.

A generator with a state gives different numbers on a CPU and on a GPU, and its numbers depend on how many were
drawn before. A counter-based one (Salmon et al. 2011) has no state: the order of a client's batches and its dropout
masks are functions of the client's key for the round, so that training gives the same result one client at a time,
a hundred at once, over any number of workers, and on a GPU. It is for training only; nothing that protects
anybody comes from here.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_LOW = 0xFFFFFFFF
_ONE = np.array(1, np.uint64)  # arrays wrap around silently, scalars warn
_GOLDEN = np.array(0x9E3779B97F4A7C15, np.uint64)


def bits(key: Tensor, index: Tensor) -> Tensor:
    """Return 32 random bits (as int64) for each pair of ``key`` and ``index`` (int64, broadcast together).

    Two rounds of MurmurHash3's finaliser, the halves of the key entering before each.

    >>> bits(torch.tensor(5), torch.arange(3)).tolist() == bits(torch.tensor(5), torch.arange(3)).tolist()
    True
    """
    mixed = _mix((index + (key & _LOW)) & _LOW)
    return _mix(mixed ^ ((key >> 32) & _LOW))


def _mix(x: Tensor) -> Tensor:
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & _LOW
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & _LOW
    return x ^ (x >> 16)


def derive(keys: NDArray[np.int64], *path: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a new 62-bit key for every key and the given path (SplitMix64's finaliser, once a step).

    >>> derive(np.array([1, 2]), np.arange(3)[:, None], 7).shape
    (3, 2)
    """
    state = np.asarray(keys).astype(np.uint64)
    for step in path:
        state = state + (np.asarray(step).astype(np.uint64) + _ONE) * _GOLDEN
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    derived: NDArray[np.int64] = (state >> np.uint64(2)).astype(np.int64)
    return derived


def keep(key: Tensor, index: Tensor, drop_probability: float) -> Tensor:
    """Return the dropout mask: True where an element stays."""
    return bits(key, index) >= round(drop_probability * 2**32)


def order(key: Tensor, sizes: Tensor, longest: int) -> Tensor:
    """Return, for each client, its positions in random order, and then the padding.

    Args:
        key: one key a client, shape (K,).
        sizes: how many examples each client has, shape (K,).
        longest: the width of the result; a client with fewer examples has its padding at the end.
    """
    positions = torch.arange(longest, device=key.device)
    drawn = bits(key[:, None], positions[None, :])
    drawn = torch.where(positions[None, :] < sizes[:, None], drawn, 1 << 33)
    return drawn.sort(dim=1, stable=True).indices
