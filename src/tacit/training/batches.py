"""Who holds which examples, and in which batches: one table for all forms of training.

:class:`Holdings` are the clients' examples. A :class:`Schedule` says for each step which of them are in each client's
batch, so that a client's result does not depend on who trains beside it. Orders of batches and masks of dropout come
from a counter-based generator (:func:`random_bits`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import DataError
from tacit.shares import Rows, Shares

Whole = TypeVar("Whole", Tensor, NDArray[np.int64])

_ORDER, _DROPOUT = 0, 1  # what a client's key is used for
_LOW, _HALF = 0xFFFFFFFF, 1 << 31
_BEHIND, _PLACE_BITS = 1 << 33, 29  # padding comes behind all that is drawn; both fit 63 bits
_ONE = np.array(1, np.uint64)  # arrays wrap around silently, scalars warn
_GOLDEN = np.array(0x9E3779B97F4A7C15, np.uint64)


@dataclass(frozen=True, kw_only=True)
class Holdings:
    """The examples of all clients, on the device that trains."""

    features: Tensor
    labels: Tensor
    rows: Sequence[Rows]  # of each client
    shares: Shares = field(init=False)  # the same as one index
    sizes: NDArray[np.int64] = field(init=False)  # how many examples each client holds

    def __post_init__(self) -> None:
        shares = Shares.of(self.rows)
        sizes = shares.sizes
        if not sizes.all():
            raise DataError(
                f"Client {int(np.argmin(sizes))} holds no example. Use fewer clients or another split, "
                "such as data.split=iid, or leave empty clients out."
            )
        for name, value in (("rows", shares), ("shares", shares), ("sizes", sizes)):
            object.__setattr__(self, name, value)

    def padded_rows(self, clients: Sequence[int], longest: int) -> Tensor:
        """Return the rows of ``clients``, one client per line, padded with the client's own first row.

        Padding has no weight in a loss, and yet a gradient of 0 times infinity is NaN: with somebody else's example for
        padding, what that holds could spoil a client's update.
        """
        table, shares = np.empty((len(clients), longest), np.int64), self.shares
        for line, client in enumerate(clients):
            own = shares.order[shares.starts[client] : shares.ends[client]]
            table[line, : len(own)], table[line, len(own) :] = own, own[0]
        return torch.from_numpy(table).to(self.features.device)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """S steps of K clients in batches of B.

    A client with fewer examples than the largest has steps with fewer than B, or no, examples: ``counts`` says how
    many of the B rows are real; the others are padding.
    """

    rows: Tensor  # (S, K, B)
    counts: NDArray[np.int64]  # (S, K)
    steps_per_epoch: int
    own_keys: NDArray[np.int64]  # (K,): of the clients in this round

    @functools.cached_property
    def keys(self) -> Tensor:
        """Keys of the dropout masks, (S, K)."""
        numbers = np.arange(len(self.rows))[:, None]
        places = numbers // self.steps_per_epoch, numbers % self.steps_per_epoch
        return torch.from_numpy(derive_keys(self.own_keys, _DROPOUT, *places)).to(self.rows.device)

    @property
    def live(self) -> NDArray[np.int64]:
        """The first so many clients hold all examples of each step; the fewest where clients come by size."""
        live: NDArray[np.int64] = self.counts.shape[1] - (self.counts[:, ::-1] > 0).argmax(1)
        return live

    @property
    def ragged(self) -> bool:
        """Whether any batch has padding."""
        return bool((self.counts != self.rows.shape[2]).any())


def schedule(
    holdings: Holdings,
    clients: Sequence[int],
    keys: NDArray[np.int64],
    *,
    epochs: int,
    batch_size: int,
) -> Schedule:
    """Lay out ``epochs`` passes, each in a new random order, for ``clients`` with their keys of the round."""
    device = holdings.features.device
    sizes = holdings.sizes[np.asarray(clients)]
    width = min(batch_size, int(sizes.max()))
    steps = -(-int(sizes.max()) // width)
    longest = steps * width
    table = holdings.padded_rows(clients, longest)
    size_tensor = torch.from_numpy(sizes).to(device)
    passes = []
    for epoch in range(epochs):
        order_keys = torch.from_numpy(derive_keys(keys, _ORDER, epoch)).to(device)
        shuffled = table.gather(1, shuffled_positions(order_keys, size_tensor, longest))
        passes.append(shuffled.view(len(clients), steps, width).transpose(0, 1))
    starts = (np.arange(epochs * steps)[:, None] % steps) * width
    return Schedule(
        rows=torch.cat(passes).contiguous(),
        counts=(sizes[None, :] - starts).clip(0, width),
        steps_per_epoch=steps,
        own_keys=keys,
    )


def random_bits(key: Whole, index: Whole) -> Whole:
    """Return 32 random bits (as int64) for each pair of ``key`` and ``index`` (int64, broadcast together).

    A generator with a state gives different numbers on a CPU and on a GPU, and its numbers depend on how many were
    drawn before. A counter-based one (Salmon et al. 2011) has no state: the order of a client's batches and its dropout
    masks are functions of the client's key for the round, so that training gives the same result one client at a time,
    a hundred at once, over any number of workers, and on a GPU. It is for training only; nothing that protects anybody
    comes from here. Two rounds of MurmurHash3's finaliser, the halves of the key entering before each.

    >>> random_bits(torch.tensor(5), torch.arange(3)).tolist() == random_bits(torch.tensor(5), torch.arange(3)).tolist()
    True
    """
    mixed = _mix((index + (key & _LOW)) & _LOW)
    return _mix(mixed ^ ((key >> 32) & _LOW))


def _mix(x: Whole) -> Whole:
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & _LOW
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & _LOW
    return x ^ (x >> 16)


def derive_keys(keys: NDArray[np.int64], *path: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a new 62-bit key for every key and the given path (SplitMix64's finaliser, once per step).

    >>> derive_keys(np.array([1, 2]), np.arange(3)[:, None], 7).shape
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


def keep_mask(key: Tensor, index: Tensor, drop_probability: float) -> Tensor:
    """Return the dropout mask: True where an element stays."""
    dropped = round(drop_probability * 2**32)
    if index.is_cuda or dropped > _LOW:
        return random_bits(key, index) >= dropped
    # The same bits by numbers of 32 bits, which a CPU multiplies several times as fast.
    low, high = key.to(torch.int32), (key >> 32).to(torch.int32)
    mixed = _mix_halves(index.to(torch.int32) + low)
    return (_mix_halves(mixed ^ high) ^ -_HALF) >= dropped - _HALF


def _mix_halves(x: Tensor) -> Tensor:
    """Return what :func:`_mix` returns, as numbers with a sign."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * (0x85EBCA6B - 2 * _HALF)
    x = (x ^ ((x >> 13) & 0x7FFFF)) * (0xC2B2AE35 - 2 * _HALF)
    return x ^ ((x >> 16) & 0xFFFF)


def shuffled_positions(key: Tensor, sizes: Tensor, longest: int) -> Tensor:
    """Return, for each client, its positions in random order, and then the padding.

    Args:
        key: one key per client, shape (K,).
        sizes: how many examples each client has, shape (K,).
        longest: the width of the result; a client with fewer examples has its padding at the end.
    """
    if not key.is_cuda:  # NumPy is called in a fifth of the time, which a client of a few steps would wait for
        places = np.arange(longest)
        mixed = random_bits(key.numpy()[:, None], places[None, :])
        mixed = np.where(places < sizes.numpy()[:, None], mixed, _BEHIND) << _PLACE_BITS | places
        mixed.sort(axis=1)
        return torch.from_numpy(mixed & ((1 << _PLACE_BITS) - 1))
    positions = torch.arange(longest, device=key.device)
    drawn = random_bits(key[:, None], positions[None, :])
    drawn = torch.where(positions[None, :] < sizes[:, None], drawn, _BEHIND)
    return drawn.sort(dim=1, stable=True).indices
