"""Which implementation computes: chosen once, the fastest that this machine and installation allow.

``TACIT_CRYPTO_BACKEND=gmpy2`` or ``native`` forces one. Both give the same numbers, bit for bit.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tacit.crypto import native
from tacit.crypto.gmp import GmpBackend
from tacit.crypto.native import NativeBackend
from tacit.crypto.ring import Backend
from tacit.errors import ConfigError

VARIABLE = "TACIT_CRYPTO_BACKEND"
_BACKENDS: dict[str, Callable[[], Backend]] = {"gmpy2": GmpBackend, "native": NativeBackend}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A backend and why it was chosen."""

    backend: Backend
    reason: str


def choose(settings: Mapping[str, str], *, obstacle: str | None) -> Choice:
    """Return the backend for an environment.

    Args:
        settings: The environment's variables.
        obstacle: Why the native backend can't run here, or None where it can.
    """
    forced = settings.get(VARIABLE, "").strip()
    if forced and forced not in _BACKENDS:
        raise ConfigError(f"{VARIABLE} is {forced!r}, expected {' or '.join(_BACKENDS)}, or no value for the faster.")
    if forced == "native" and obstacle:
        raise ConfigError(f"{VARIABLE}=native can't run: {obstacle}. Unset it to use gmpy2.")
    if forced:
        return Choice(backend=_BACKENDS[forced](), reason=f"{VARIABLE} asks for it")
    if obstacle:
        return Choice(backend=GmpBackend(), reason=f"the native backend can't run: {obstacle}")
    return Choice(backend=NativeBackend(), reason="this CPU has AVX-512 IFMA")


@functools.cache
def describe() -> Choice:
    """Return the backend of this process and why it is this one."""
    return choose(os.environ, obstacle=native.why_not())


def backend() -> Backend:
    """Return the backend of this process."""
    return describe().backend
