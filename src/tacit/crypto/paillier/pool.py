"""Noise made beforehand, so that encrypting is one multiplication a ciphertext."""

from __future__ import annotations

import os
import threading

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

    def __init__(self, source: Noise) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._chunks: list[Rows] = []
        self._wanted = 0
        self._filler: threading.Thread | None = None
        self._process = os.getpid()

    def __len__(self) -> int:
        with self._lock:
            return self._held()

    def fill(self, count: int, *, wait: bool = False) -> None:
        """Make sure that ``count`` are held, in a thread of its own; with ``wait`` return when they are."""
        if count < 0:
            raise ConfigError(f"Expected count={count} >= 0.")
        with self._lock:
            self._held()
            self._wanted = count
            if self._filler is None or not self._filler.is_alive():
                self._filler = threading.Thread(target=self._run, name="tacit-noise", daemon=True)
                self._filler.start()
            filler = self._filler
        if wait:
            filler.join()

    def take(self, count: int, *, workers: int | None = None) -> Rows:
        """Return ``count`` and forget them; what the pool lacks is drawn now."""
        taken: list[Rows] = []
        with self._lock:
            self._held()
            missing = count
            while missing and self._chunks:
                chunk = self._chunks.pop()
                taken.append(chunk[:missing])
                if len(chunk) > missing:
                    self._chunks.append(chunk[missing:])
                missing -= len(taken[-1])
            self._wanted = max(0, self._wanted - count)
        if missing:
            taken.append(self._source.take(missing, workers=workers))
        return np.concatenate(taken) if len(taken) != 1 else taken[0]

    def _held(self) -> int:
        if os.getpid() != self._process:  # a fork copied what the parent will use
            self._chunks, self._filler, self._process = [], None, os.getpid()
        return sum(len(chunk) for chunk in self._chunks)

    def _run(self) -> None:
        while True:
            with self._lock:
                missing = self._wanted - self._held()
                if missing <= 0:
                    self._filler = None
                    return
            chunk = self._source.take(min(_CHUNK, missing), workers=1)
            with self._lock:
                self._chunks.append(chunk)
