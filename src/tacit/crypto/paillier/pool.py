"""Noise made beforehand, so that encrypting is one multiplication a ciphertext."""

from __future__ import annotations

import os
import threading
import weakref
from typing import ClassVar

import numpy as np

from tacit.crypto.paillier.public import Noise
from tacit.crypto.rows import Rows
from tacit.errors import ConfigError

_CHUNK = 32


class NoisePool:
    """Encryptions of zero, filled in the background while a client trains and used once each.

    What is taken is removed before it is used. A pool that was copied into a forked process is empty there, so no two
    processes ever use the same noise; where a pool runs short, the rest is drawn on the spot.
    """

    _alive: ClassVar[weakref.WeakSet[NoisePool]] = weakref.WeakSet()

    def __init__(self, source: Noise) -> None:
        self._source = source
        self._empty()
        self._alive.add(self)

    def _empty(self) -> None:
        """Start from nothing; after a fork with a new lock too, as the old one may be held by a thread left behind."""
        self._lock = threading.Lock()
        self._chunks: list[Rows] = []
        self._wanted = 0
        self._filler: threading.Thread | None = None

    def __len__(self) -> int:
        with self._lock:
            return self._held()

    @property
    def wanted(self) -> int:
        """How many it was asked to hold, less those that were taken since."""
        with self._lock:
            return self._wanted

    def fill(self, count: int, *, wait: bool = False) -> None:
        """Make sure that ``count`` are held, in a thread of its own; with ``wait`` return when they are."""
        if count < 0:
            raise ConfigError(f"Expected count={count} >= 0.")
        with self._lock:
            self._wanted = count
            if self._filler is None or not self._filler.is_alive():
                self._filler = threading.Thread(target=self._run, name="tacit-noise", daemon=True)
                self._filler.start()
            filler = self._filler
        if wait:
            filler.join()

    def take(self, count: int, *, workers: int | None = None, aside: bool = False) -> Rows:
        """Return ``count`` and forget them; what the pool lacks is drawn now."""
        taken: list[Rows] = []
        with self._lock:
            missing = count
            while missing and self._chunks:
                chunk = self._chunks.pop()
                taken.append(chunk[:missing])
                if len(chunk) > missing:
                    self._chunks.append(chunk[missing:])
                missing -= len(taken[-1])
            self._wanted = max(0, self._wanted - count)
        if missing or not taken:
            taken.append(self._source.take(missing, workers=workers, aside=aside))
        return np.concatenate(taken) if len(taken) != 1 else taken[0]

    def _held(self) -> int:
        return sum(len(chunk) for chunk in self._chunks)

    def _run(self) -> None:
        while True:
            with self._lock:
                missing = self._wanted - self._held()
                if missing <= 0:
                    self._filler = None
                    return
            chunk = self._source.take(min(_CHUNK, missing), workers=1, aside=True)
            with self._lock:
                self._chunks.append(chunk)


def _after_fork() -> None:
    """Forget in the child what the parent will use."""
    for pool in NoisePool._alive:
        pool._empty()


if hasattr(os, "register_at_fork"):  # where processes fork at all
    os.register_at_fork(after_in_child=_after_fork)
