"""Dropout whose mask is a function of a key, so that every form of training drops the same elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tacit.randomness import borrowed_generators, generator_states
from tacit.training.batches import keep_mask

_PER_CHANNEL = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


class KeyedDropout(nn.Module):
    """Stands in for :class:`~torch.nn.Dropout` and its per-channel kin while a client trains.

    The mask of element ``i`` of the batch is a function of (client, step, site, ``i``); the site tells the dropout
    layers of a model apart. The key is a buffer, so that ``vmap`` can give every client its own.
    """

    key: Tensor

    def __init__(self, *, probability: float, per_channel: bool, site: int, inplace: bool = False) -> None:
        super().__init__()
        self.probability = probability
        self.p, self.inplace = probability, inplace  # as those layers have; attention of Hugging Face's models reads p
        self.per_channel = per_channel
        self.site = site
        self.register_buffer("key", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name that torch's layers give it
        """Drop elements (or whole channels) and scale the rest by 1/(1-p)."""
        if not self.training or self.probability == 0.0:
            return input
        shape = input.shape[:2] + (1,) * (input.dim() - 2) if self.per_channel else input.shape
        index = torch.arange(shape.numel(), device=input.device).view(shape)
        mask = scaled_mask(self.key, index, self.site, self.probability)
        return input.mul_(mask) if self.inplace else input * mask


def scaled_mask(key: Tensor, index: Tensor, site: int, probability: float) -> Tensor:
    """Return 0 where an element is dropped and 1/(1-p) elsewhere."""
    if probability >= 1.0:
        return torch.zeros_like(index, dtype=torch.float32)
    own = key + (site << 34)  # in the key's upper half: added to the lower one it would shift the mask by one element
    return keep_mask(own, index, probability).float() * (1.0 / (1.0 - probability))


def use_keys(module: nn.Module) -> None:
    """Replace every dropout layer below ``module`` by a keyed one, in place."""
    site = 0
    for parent in list(module.modules()):
        for name, child in list(parent._modules.items()):  # a layer under two names is listed twice here
            if isinstance(child, (nn.Dropout, *_PER_CHANNEL)):
                per_channel = isinstance(child, _PER_CHANNEL)
                keyed = KeyedDropout(probability=child.p, per_channel=per_channel, site=site, inplace=child.inplace)
                setattr(parent, name, keyed)
                site += 1


@contextmanager
def watched_generators(device: torch.device) -> Iterator[Callable[[], bool]]:
    """Yield what says whether anybody has drawn from torch's, NumPy's or Python's generators; all are put back."""
    cuda = [device] if device.type == "cuda" else []

    def state() -> list[bytes]:
        torchs = [torch.get_rng_state(), *(torch.cuda.get_rng_state(own) for own in cuda)]
        return [*(own.numpy().tobytes() for own in torchs), generator_states()]

    with torch.random.fork_rng(cuda), borrowed_generators(0):
        before = state()
        yield lambda: state() != before
