"""Keys and ciphertexts that are the same in every process, so that an input found in one is an input of all."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np

from tacit import randomness
from tacit.crypto import elgamal, groups
from tacit.crypto.paillier import CiphertextVector
from tests.crypto.paillier.common import PRIVATE, PUBLIC
from tests.crypto.threshold.common import SMALL, Dealt, fresh

VALUES = np.linspace(-1.0, 1.0, 20)
GROUP = 0xD48FC000D2BB6CADAFADC273373188F7  # a safe prime of 128 bits


class _Drawn:
    """Stands in for the module ``secrets``."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def token_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def randbelow(self, bound: int) -> int:
        return self._random.randrange(bound)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._random, name)


@contextlib.contextmanager
def determined(seed: int = 1) -> Iterator[None]:
    """Draw what the system would from a seed."""
    with mock.patch.object(randomness, "secrets", _Drawn(seed)), mock.patch.object(randomness, "_native", None):
        yield


@functools.cache
def threshold_key() -> Dealt:
    """Return a key of 2 of 3."""
    with determined():
        return fresh(3, 2, SMALL)


@functools.cache
def elgamal_keys() -> tuple[elgamal.PublicKey, elgamal.PrivateKey]:
    """Return a key in a group of 128 bits."""
    with determined():
        return elgamal.generate(groups.own(GROUP, insecure_key_size=True), insecure_key_size=True)


@functools.cache
def encrypted(seed: int = 1, count: int = 20, *, shared: bool = False) -> CiphertextVector:
    """Return a vector under the fixed key, or under the threshold key."""
    key = threshold_key()[0].key if shared else PUBLIC
    with determined(seed):
        return key.encrypt(VALUES[:count])


__all__ = ["PRIVATE", "PUBLIC", "VALUES", "determined", "elgamal_keys", "encrypted", "threshold_key"]
