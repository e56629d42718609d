"""Which implementation computes: chosen once, the fastest that this machine and installation allow."""

from __future__ import annotations

import functools

from tacit.crypto.gmp import GmpBackend
from tacit.crypto.ring import Backend


@functools.cache
def backend() -> Backend:
    """Return the backend of this process."""
    return GmpBackend()
