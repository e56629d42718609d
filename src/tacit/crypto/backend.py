"""Which implementation computes: chosen once, the fastest that this machine and installation allow.

``TACIT_CRYPTO_BACKEND=gmpy2`` or ``native`` forces one. Both give the same numbers, bit for bit.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tacit.crypto import native
from tacit.crypto.gmp import GmpBackend
from tacit.crypto.native import NativeBackend
from tacit.crypto.ring import Backend, Rows, from_integers, random_below, to_integers
from tacit.errors import ConfigError, DeviceError
from tacit.randomness import system_below

VARIABLE = "TACIT_CRYPTO_BACKEND"
_ROWS = 19  # more than two registers, and not a multiple of one
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


def verify(found: Backend) -> int:
    """Have a backend compute with random numbers, compare with Python's integers, and return how many results agreed.

    A tenth of a second; for an installation on a machine that nobody has tried yet.

    Raises:
        DeviceError: where one result is wrong.
    """
    agreed = 0
    for bits in (64, 521, 1024, 2048):
        n = (system_below(1 << (bits - 1)) << 1) | (1 << (bits - 1)) | 1
        for modulus in (n, n * n):  # powers modulo a square have a way of their own
            for what, given, expected in _results(found, modulus):
                if to_integers(given) != expected:
                    raise DeviceError(
                        f"The {found.name} backend computes wrongly here ({what} modulo {modulus.bit_length()} bits). "
                        f"Don't use it: set {VARIABLE}=gmpy2, and report this with the name of your CPU."
                    )
                agreed += len(expected)
    return agreed


def _results(found: Backend, modulus: int) -> Iterator[tuple[str, Rows, list[int]]]:
    """Yield what was computed, by the backend and by Python."""
    ring = found.ring(modulus)
    a, b = random_below(modulus, _ROWS), random_below(modulus, _ROWS)
    x, y = to_integers(a), to_integers(b)
    e, k = system_below(1 << 256), system_below(modulus)
    yield "products", ring.multiply(a, b), [u * v % modulus for u, v in zip(x, y, strict=True)]
    yield "sums", ring.affine([(a, k)], 1, times=b), [(u * k + 1) * v % modulus for u, v in zip(x, y, strict=True)]
    for secret in (True, False):
        yield "powers", ring.power(a, e, secret=secret), [pow(u, e, modulus) for u in x]
    exponents = random_below(1 << 256, _ROWS)
    yield "table", ring.table(x[0], bits=256).powers(exponents), [pow(x[0], v, modulus) for v in to_integers(exponents)]
    wide = from_integers([u * modulus for u in x], 2 * ring.width)
    yield "quotients", found.quotient(wide, modulus), x
