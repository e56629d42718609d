"""The only source of randomness: the operating system's, or seeded for simulation, and which of the two it was.

Two kinds of draw are kept apart by name:

* :meth:`Randomness.stream` is reproducible. It makes what may be known: the split of a data set, a model's first
  weights, the order of batches. Every stream is named by its purpose (``stream("batches", round, client)``), so
  no draw depends on how many others came before it, on the number of workers, or on a restart.
* :meth:`Randomness.secret` makes what must not be guessed: cohorts, noise. In a real run each call starts from
  fresh system entropy and can't be repeated; in a simulation (a seed was given) it is a stream like any other,
  and every report says so.
"""

from __future__ import annotations

import hashlib
import importlib
import math
import random
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError
from tacit.limits import cores

_KEY_BYTES = 16
_COIN_BITS = 192
_BLOCK = 1 << 20  # numbers that one stream of a simulation gives
_SHARE = 1 << 18  # numbers of the system's bits that are worth a core of their own
_IN_CACHE = 1 << 14  # numbers of them that are made at a time

_native: Any  # optional: bits and normal numbers at three times the speed
try:
    _native = importlib.import_module("tacit._noise")
except ImportError:
    _native = None


def system_bytes(count: int) -> bytes:
    """Return ``count`` bytes of the operating system's generator: for keys and for encryption, in simulations too."""
    return secrets.token_bytes(count)


def system_below(bound: int) -> int:
    """Return a uniform integer in [0, bound) from the operating system's generator."""
    return secrets.randbelow(bound)


@contextmanager
def borrowed_generators(seed: int) -> Iterator[None]:
    """Put Python's and NumPy's own generators, which other people's code may draw from, at a seed for a while."""
    pythons, numpys = random.getstate(), np.random.get_state()  # noqa: NPY002 - the global state that others draw from
    try:
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - the global state that others draw from
        yield
    finally:
        random.setstate(pythons)
        np.random.set_state(numpys)  # noqa: NPY002 - the global state that others draw from


def generator_states() -> bytes:
    """Return where Python's and NumPy's own generators stand, to see whether anybody has drawn from them."""
    numpys: Any = np.random.get_state(legacy=False)  # noqa: NPY002 - the global state that others draw from
    key = numpys["state"].pop("key", None)  # 624 numbers, whose names as text would take a hundred times as long
    return repr((random.getstate(), numpys)).encode() + (b"" if key is None else key.tobytes())


@dataclass(frozen=True, kw_only=True)
class Randomness:
    """A root key from which named streams are derived with BLAKE2b.

    >>> a = Randomness.of(seed=7)
    >>> bool(a.stream("split").integers(100) == Randomness.of(seed=7).stream("split").integers(100))
    True
    >>> a.simulation, Randomness.of(seed=None).simulation
    (True, False)
    """

    key: bytes
    simulation: bool

    def __post_init__(self) -> None:
        if len(self.key) != _KEY_BYTES:
            raise ConfigError(f"Expected a root key of {_KEY_BYTES} bytes, got {len(self.key)}.")

    @classmethod
    def of(cls, *, seed: int | None) -> Randomness:
        """Derive the root key from ``seed``, or draw it from the operating system where none is given."""
        if seed is None:
            return cls(key=secrets.token_bytes(_KEY_BYTES), simulation=False)
        if seed < 0:
            raise ConfigError(f"Expected seed={seed} >= 0. Leave it out to use the system's randomness.")
        digest = hashlib.blake2b(b"tacit seed %d" % seed, digest_size=_KEY_BYTES).digest()
        return cls(key=digest, simulation=True)

    def within(self, *purpose: str | int) -> Randomness:
        """Return the randomness of one part of a run, such as one client in one round."""
        return Randomness(key=self._digest(purpose)[:_KEY_BYTES], simulation=self.simulation)

    def number(self, *purpose: str | int) -> int:
        """Return 63 reproducible bits for ``purpose``, such as the key of a counter-based generator."""
        return int.from_bytes(self._digest(purpose)[:8], "big") >> 1

    def stream(self, *purpose: str | int) -> np.random.Generator:
        """Return a reproducible generator for ``purpose``."""
        return np.random.Generator(np.random.PCG64(int.from_bytes(self._digest(purpose), "big")))

    def secret(self, *purpose: str | int) -> np.random.Generator:
        """Return a generator nobody can predict, or the reproducible one in a simulation."""
        if self.simulation:
            return self.stream("secret", *purpose)
        return np.random.Generator(np.random.PCG64(secrets.randbits(256)))

    def normal(self, count: int, *purpose: str | int) -> NDArray[np.float64]:
        """Return standard normal noise that nobody can predict, or reproducible noise in a simulation.

        In a real run every bit comes from the operating system's generator, through the Box-Muller transform; no other
        generator stretches a seed. A seeded generator's noise could be subtracted by whoever learns the seed.
        """
        noise = np.empty(count)

        def keep(start: int, part: NDArray[np.float64]) -> None:
            noise[start : start + len(part)] = part

        self.normals(count, *purpose, use=keep)
        return noise

    def normals(self, count: int, *purpose: str | int, use: Callable[[int, NDArray[np.float64]], object]) -> None:
        """Hand such noise to ``use`` part by part, each with where it begins, while a cache holds it.

        Parts may be written over and are not to be kept. Long vectors are drawn on all cores, and several parts are
        used at the same time; in a simulation blocks of a million numbers have a purpose of their own each.
        """

        def draw(start: int, stop: int) -> None:
            if self.simulation:
                own = purpose if count <= _BLOCK else (*purpose, "block", start // _BLOCK)
                use(start, self.stream("secret", *own).standard_normal(stop - start))
                return
            room = np.empty(min(_IN_CACHE, stop - start))
            for begin in range(start, stop, _IN_CACHE):
                part = room[: stop - begin]
                _fill_normal(part)
                use(begin, part)

        _on_all_cores(count, _BLOCK if self.simulation else _SHARE, draw)

    def on_grid(
        self,
        numbers: NDArray[np.float64],
        *purpose: str | int,
        std: float,
        step: float,
        alone: bool = False,
        over: float = 1.0,
        into: NDArray[np.float32] | None = None,
        threads: int | None = None,
    ) -> None:
        """Add such noise of a standard deviation to numbers in place, both rounded to multiples of ``step``.

        Args:
            numbers: what the noise is added to, or written over.
            purpose: the name of the draw.
            std: the standard deviation of the noise.
            step: a power of two; see :mod:`tacit.grid`.
            alone: write the noise alone.
            over: a divisor for
            into: where what comes out goes too, divided, while a cache holds it.
            threads: how many draw at the same time, where a vector is long; one per core if None.
        """
        if _native is not None and not self.simulation:
            # A core takes longer for a share than a thread takes to begin.
            most = min(threads or cores(), -(-len(numbers) // _SHARE))
            _native.on_grid(numbers, std, step, alone, over, into, max(1, most))
            return

        def use(start: int, part: NDArray[np.float64]) -> None:
            own = numbers[start : start + len(part)]
            noise = np.rint(part * std / step) * step
            own[:] = noise if alone else np.rint(own / step) * step + noise
            if into is not None:
                into[start : start + len(part)] = own / over

        self.normals(len(numbers), *purpose, use=use)

    def uniform(self, count: int, *purpose: str | int) -> NDArray[np.float64]:
        """Return uniform numbers in (0, 1) that nobody can predict, or reproducible ones in a simulation.

        They are the odd multiples of 2^-53: each is exact, neither 0 nor 1 is ever among them, and one half is the
        middle of them. In a real run every bit is the operating system's, as with :meth:`normal`.
        """
        found = np.empty(count)
        start = 0
        for part in self.uniforms(count, *purpose):
            found[start : start + len(part)] = part
            start += len(part)
        return found

    def uniforms(self, count: int, *purpose: str | int) -> Iterator[NDArray[np.float64]]:
        """Yield what :meth:`uniform` returns in blocks, for vectors of which there is no room for another copy."""
        generator = self.stream("secret", *purpose) if self.simulation else None
        for start in range(0, count, _BLOCK):
            size = min(_BLOCK, count - start)
            if generator is not None:
                bits = generator.integers(2**64, size=size, dtype=np.uint64)
            else:
                bits = _system_bits(size)
            yield ((bits >> np.uint64(11)) | np.uint64(1)).astype(np.float64) * 2.0**-53

    def integers(self, below: int, count: int, *purpose: str | int) -> NDArray[np.int64]:
        """Return uniform integers in [0, below) that nobody can predict, or reproducible ones in a simulation.

        In a real run the bits are the operating system's; those that would favour small numbers are drawn anew.
        """
        if not 0 < below < 2**62:
            raise ConfigError(f"Expected a bound from 1 to 2^62, got below={below}.")
        if self.simulation:
            return self.stream("secret", *purpose).integers(below, size=count)
        fair = 2**64 // below * below  # the largest multiple of the bound
        found = np.empty(0, np.uint64)
        while len(found) < count:
            drawn = _system_bits(count - len(found))
            found = np.concatenate([found, drawn[drawn <= fair - 1] % np.uint64(below)])
        return found.astype(np.int64)

    def below(self, bound: int, *purpose: str | int) -> int:
        """Return one uniform integer in [0, bound) of any size that nobody can predict, or a reproducible one.

        >>> Randomness.of(seed=1).below(10**80, "a set") < 10**80
        True
        """
        if bound < 1:
            raise ConfigError(f"Expected a bound of 1 or more, got {bound}.")
        if not self.simulation:
            return secrets.randbelow(bound)
        generator, bits = self.stream("secret", *purpose), (bound - 1).bit_length()
        while True:  # fewer than two tries on average
            drawn = int.from_bytes(generator.bytes((bits + 7) // 8), "big") >> (-bits % 8)
            if drawn < bound:
                return drawn

    def chance(self, probability: float, *purpose: str | int) -> bool:
        """Return True with ``probability``, by a secret coin that knows probabilities down to 2^-192.

        It is rounded up to a multiple of that, so that what may happen rarely never becomes impossible.
        """
        if not 0.0 <= probability <= 1.0:
            raise ConfigError(f"Expected a probability from 0 to 1, got {probability}.")
        if probability in (0.0, 1.0):
            return probability == 1.0
        if self.simulation:
            drawn = int.from_bytes(self.stream("secret", *purpose).bytes(_COIN_BITS // 8), "big")
        else:
            drawn = secrets.randbits(_COIN_BITS)
        return drawn <= int(math.ldexp(probability, _COIN_BITS))

    def _digest(self, purpose: tuple[str | int, ...]) -> bytes:
        return hashlib.blake2b(repr(purpose).encode(), key=self.key, digest_size=32).digest()


def _system_bits(count: int) -> NDArray[np.uint64]:
    """Return so many times 64 bits of the operating system's generator."""
    if _native is None:
        return np.frombuffer(secrets.token_bytes(8 * count), np.uint64)
    bits = np.empty(count, np.uint64)
    _native.random(bits)
    return bits


def _fill_normal(out: NDArray[np.float64]) -> None:
    """Fill a vector with normal numbers made of the operating system's bits."""
    if _native is None:
        out[:] = _of_bits(_system_bits(2 * ((len(out) + 1) // 2)))[: len(out)]
    else:
        _native.normal(out)


def _of_bits(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return as many normal numbers by the transform of Box and Muller: cosines, then sines."""
    uniform = ((bits.reshape(2, -1) >> np.uint64(11)) + 0.5) * 2.0**-53  # above 0, and at most 1
    radius, angle = np.sqrt(-2.0 * np.log(uniform[0])), 2.0 * np.pi * uniform[1]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])


def _on_all_cores(count: int, share: int, work: Callable[[int, int], object]) -> None:
    """Do work on shares of a vector, from one number up to another, side by side where there are several."""
    starts = range(0, count, share)
    if len(starts) < 2:
        for start in starts:
            work(start, count)
        return
    with ThreadPoolExecutor(min(len(starts), cores())) as pool:
        list(pool.map(lambda start: work(start, min(start + share, count)), starts))
