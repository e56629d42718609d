"""The public key, and what whoever has it does: encrypt, add and re-randomise, with noise drawn now or before."""

from __future__ import annotations

import functools
import hashlib
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, get_args, overload

import gmpy2
import numpy as np
from numpy.typing import ArrayLike

from tacit.crypto.backend import backend
from tacit.crypto.paillier.vector import Beyond, CiphertextVector, Layout
from tacit.crypto.ring import Ring, Rows, Table, from_integers, in_blocks, random_below
from tacit.errors import CipherError, ConfigError, KeysError

Kind = Literal["standard", "subgroup"]
Exponents = Literal["half", "short"]

SECURITY = {1024: 80, 2048: 112, 3072: 128, 4096: 152}  # bits of security of a modulus (NIST SP 800-57)
SAFE_BITS = 2048
SMALLEST_BITS = 64  # below this even the tests' arithmetic makes no sense
LARGEST_BITS = 16384
_CHUNK = 32  # noise that a pool draws at once

ASSUMPTIONS = {
    ("standard", "half"): "decisional composite residuosity, and that powers h^s with s of half the key's length are "
    "indistinguishable from those with s of full length (Damgård, Jurik and Nielsen 2010)",
    ("standard", "short"): "decisional composite residuosity, and that discrete logarithms with exponents of only "
    "twice the security level are hard: stronger than usual, off by default",
    ("subgroup", "half"): "decisional composite residuosity in a secret subgroup of small order (Ma, Han and Lei "
    "2021): not a standard assumption",
}


class Noise(Protocol):
    """Whatever has noise to encrypt with: the key that draws it, or a pool that was filled before."""

    def take(self, count: int, *, workers: int | None = None, aside: bool = False) -> Rows:
        """Return ``count`` fresh encryptions of zero, each used once.

        With ``aside`` other threads of the process are not held up meanwhile.
        """
        ...


def exponent_bits(bits: int, kind: Kind, exponents: Exponents) -> int:
    """Return the length of the random exponent that a key of ``bits`` bits uses.

    >>> exponent_bits(2048, "standard", "half"), exponent_bits(3072, "subgroup", "half")
    (1024, 512)
    """
    if (kind, exponents) not in ASSUMPTIONS:
        raise ConfigError(
            f"Keys of kind {kind!r} with {exponents!r} exponents do not exist. Expected one of "
            f"{', '.join(f'{k}/{e}' for k, e in ASSUMPTIONS)}."
        )
    if kind == "standard" and exponents == "half":
        return (bits + 1) // 2
    if bits not in SECURITY:
        raise ConfigError(
            f"{'Subgroup keys' if kind == 'subgroup' else 'Short exponents'} are defined for "
            f"{', '.join(map(str, SECURITY))} bits, not for {bits}. Choose one of these, or the standard kind."
        )
    return {"subgroup": 4, "standard": 2}[kind] * SECURITY[bits] + (32 if kind == "standard" else 0)


@dataclass(frozen=True, kw_only=True)
class PublicKey:
    r"""Encrypts :math:`m` as :math:`(1 + mn)\, h^s \bmod n^2` with a fresh random :math:`s`.

    With :math:`g = n + 1` the message costs one multiplication, and with :math:`h = (-x^2)^n \bmod n^2` fixed by the
    key, the noise :math:`h^s` is a product of entries of a table, without squarings (Damgård, Jurik and Nielsen 2010).
    The table is made once per key and kept. Whoever has the private key encrypts faster: :class:`PrivateKey`.

    A key is only as good as the way it came: compare its :attr:`fingerprint` with the owner's over another channel.

    Attributes:
        n: the modulus, a product of two primes.
        h: the fixed n-th residue whose powers are the noise.
        kind: ``standard``, or ``subgroup`` for keys whose noise lies in a small secret subgroup.
        exponents: ``half`` the key's length, or ``short`` (twice the security level).
    """

    n: int
    h: int
    kind: Kind = "standard"
    exponents: Exponents = "half"

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind) or self.exponents not in get_args(Exponents):
            raise KeysError(f"Unknown kind of Paillier key: {self.kind!r} with {self.exponents!r} exponents.")
        try:
            exponent_bits(self.bits, self.kind, self.exponents)
        except ConfigError as error:  # a length, or a combination, that nothing could be encrypted with
            raise KeysError(str(error)) from error
        if self.n < 1 << (SMALLEST_BITS - 1) or self.n % 2 == 0 or gmpy2.is_square(self.n) or gmpy2.is_prime(self.n):
            raise KeysError("The key's modulus is no product of two different odd primes. Use a key that Tacit made.")
        if not 1 < self.h < self.square - 1 or gmpy2.gcd(self.h, self.n) != 1 or self.h % self.n in (1, self.n - 1):
            raise KeysError(
                "The key's h is trivial or no unit: whoever made this key could read what it encrypts, or anybody "
                "could. Don't use it; ask its owner for the fingerprint."
            )
        if gmpy2.jacobi(self.h, self.n) != 1:
            raise KeysError("The key's h is no n-th residue of the kind that is expected. Use a key that Tacit made.")

    @functools.cached_property
    def square(self) -> int:
        """The modulus of ciphertexts, n squared."""
        return self.n * self.n

    @property
    def bits(self) -> int:
        """The length of n."""
        return self.n.bit_length()

    @property
    def insecure(self) -> bool:
        """Whether the key is too short for anything but experiments."""
        return self.bits < SAFE_BITS

    @property
    def assumption(self) -> str:
        """What has to be hard for the key to be secure."""
        return ASSUMPTIONS[self.kind, self.exponents]

    @functools.cached_property
    def identity(self) -> bytes:
        """The SHA-256 digest of everything in the key."""
        text = (
            f"tacit paillier public key 1\nn {self.n:x}\nh {self.h:x}\nkind {self.kind}\nexponents {self.exponents}\n"
        )
        return hashlib.sha256(text.encode()).digest()

    @property
    def fingerprint(self) -> str:
        """The identity as people compare it: 32 groups of two digits."""
        return self.identity.hex(":")

    def to_dict(self) -> dict[str, Any]:
        """Return the key as plain values, numbers in hexadecimal."""
        return {"n": f"{self.n:x}", "h": f"{self.h:x}", "kind": self.kind, "exponents": self.exponents}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> PublicKey:
        """Read what :meth:`to_dict` returned, from anyone: the key is checked, and an absurd length refused at once."""
        try:
            n, h = int(plain["n"], 16), int(plain["h"], 16)
            kind, exponents = plain["kind"], plain["exponents"]
        except (KeyError, TypeError, ValueError) as error:
            raise KeysError(
                f"Expected n, h, kind and exponents of a Paillier key, n and h in hexadecimal: {error!r}."
            ) from error
        if n < 1 or n.bit_length() > LARGEST_BITS:
            raise KeysError(f"Expected a positive n of at most {LARGEST_BITS} bits, got one of {n.bit_length()}.")
        return cls(n=n, h=h, kind=kind, exponents=exponents)

    @functools.cached_property
    def ring(self) -> Ring:
        """The integers modulo n squared."""
        return backend().ring(self.square)

    @functools.cached_property
    def residues(self) -> Ring:
        """The integers modulo n, where messages live."""
        return backend().ring(self.n)

    @property
    def noise_bits(self) -> int:
        """The length of the random exponents."""
        return exponent_bits(self.bits, self.kind, self.exponents)

    @functools.cached_property
    def table(self) -> Table:
        """The powers of h; building them takes a part of a second, once."""
        return self.ring.table(self.h, bits=self.noise_bits)

    def take(self, count: int, *, workers: int | None = None, aside: bool = False) -> Rows:
        """Return ``count`` fresh encryptions of zero, :math:`h^s`."""
        return self.table.powers(random_below(1 << self.noise_bits, count), workers=workers, aside=aside)

    def layout(self, values: ArrayLike, *, clip: float = 1.0, bits: int = 24, summands: int = 128) -> Layout:
        """Return the layout for such a vector: integers are kept exactly, floats are clipped and rounded."""
        array = np.asarray(values)
        if array.ndim != 1:
            raise ConfigError(f"Expected an integer or a vector of numbers, got an array of shape {array.shape}.")
        if np.issubdtype(array.dtype, np.integer):
            bound = 1 << 31
            return Layout(length=len(array), bound=bound, summands=summands, key_bits=self.bits)
        return Layout.floats(length=len(array), clip=clip, bits=bits, summands=summands, key_bits=self.bits)

    @overload
    def encrypt(self, message: int | np.integer[Any], *, noise: Noise | None = None) -> Ciphertext: ...

    @overload
    def encrypt(
        self,
        message: ArrayLike,
        layout: Layout | None = None,
        *,
        beyond: Beyond | None = None,
        noise: Noise | None = None,
        shift: Rows | None = None,
        workers: int | None = None,
    ) -> CiphertextVector: ...

    def encrypt(
        self,
        message: Any,
        layout: Layout | None = None,
        *,
        beyond: Beyond | None = None,
        noise: Noise | None = None,
        shift: Rows | None = None,
        workers: int | None = None,
    ) -> Ciphertext | CiphertextVector:
        """Encrypt an integer, or a vector in the slots of a layout.

        Args:
            message: an integer of magnitude below n/2, or a vector of floats or integers.
            layout: how a vector is written; by default floats in [-1, 1] with 24 bits, or 32-bit integers, for sums of
                up to 128 vectors.
            beyond: whether numbers beyond the layout's clip are clipped (and counted), or refused; by default floats
                are clipped, and integers refused, since they claim to be exact.
            noise: where the noise comes from; by default the key draws it now.
            shift: numbers that are added to a vector's packed rows modulo n, as they are: such as masks that whoever
                decrypts takes off.
            workers: how many cores to use; by default all.
        """
        source = self if noise is None else noise
        if isinstance(message, (int, np.integer)):
            row = from_integers([self.residue(int(message))], self.ring.width)
            return Ciphertext(key=self, row=self._blinded([row], source.take(1)))
        layout = self.layout(message) if layout is None else layout
        if layout.key_bits != self.bits:
            raise ConfigError(f"The layout is for keys of {layout.key_bits} bits, and this one has {self.bits}.")
        usual: Beyond = "refuse" if layout.step is None else "clip"
        packed, clipped = layout.encode(message, beyond=beyond or usual)
        rows = self.encrypt_rows(packed, noise=source, shift=shift, workers=workers)
        return CiphertextVector(key=self, layout=layout, summands=1, rows=rows, clipped=clipped)

    def encrypt_rows(
        self, rows: Rows, *, noise: Noise | None = None, shift: Rows | None = None, workers: int | None = None
    ) -> Rows:
        """Return ciphertexts of numbers below n, such as packed rows; ``shift`` is added modulo n, as it is."""
        source = self if noise is None else noise

        def encrypted(part: slice) -> Rows:
            some = [rows[part]] if shift is None else [rows[part], shift[part]]
            return self._blinded(some, source.take(len(some[0]), workers=workers), workers)

        return in_blocks(len(rows), encrypted, "encrypting")

    def residue(self, message: int) -> int:
        """Return the number below n that stands for a signed integer."""
        if 2 * abs(message) >= self.n:
            raise ConfigError(
                f"An integer of {message.bit_length()} bits does not fit a key of {self.bits} bits, expected a "
                "magnitude below n/2. Use a longer key, or split the number."
            )
        return message % self.n

    def power(self, number: int) -> int:
        """Return the n-th power of a secret number modulo n; :meth:`PrivateKey.root` alone takes it back."""
        return int(gmpy2.powmod_sec(number, self.n, self.n))

    def signed(self, residue: int) -> int:
        """Return the signed integer that a number below n stands for."""
        return residue - self.n if 2 * residue > self.n else residue

    def _blinded(self, messages: Sequence[Rows], noise: Rows, workers: int | None = 1) -> Rows:
        """Return encryptions of the sums of messages, modulo n."""
        return self.ring.affine([(rows, self.n) for rows in messages], 1, times=noise, workers=workers)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ciphertext:
    """An encrypted signed integer. Results beyond n/2 in magnitude wrap around, as nobody can see that they do.

    ``c + c`` and ``c + k`` add, ``c * k`` multiplies with a known integer.
    """

    __array_ufunc__ = None  # NumPy's integers leave the arithmetic to this class

    key: PublicKey
    row: Rows  # one row

    def __add__(self, other: Ciphertext | int | np.integer[Any]) -> Ciphertext:
        ring = self.key.ring
        if isinstance(other, (int, np.integer)):  # (1 + kn) c
            factor = from_integers([1 + self.key.residue(int(other)) * self.key.n], ring.width)
            return Ciphertext(key=self.key, row=ring.multiply(self.row, factor))
        if not isinstance(other, Ciphertext):
            return NotImplemented
        if self.key != other.key:
            raise CipherError("The two ciphertexts are of different keys: their sum would mean nothing.")
        return Ciphertext(key=self.key, row=ring.multiply(self.row, other.row))

    __radd__ = __add__

    def __mul__(self, factor: int | np.integer[Any]) -> Ciphertext:
        if not isinstance(factor, (int, np.integer)):
            return NotImplemented
        ring, factor = self.key.ring, int(factor)
        self.key.residue(factor)
        row = ring.power(self.row, abs(factor), secret=False, workers=1)
        return Ciphertext(key=self.key, row=ring.inverse(row) if factor < 0 else row)

    __rmul__ = __mul__

    def __neg__(self) -> Ciphertext:
        return self * -1

    def __sub__(self, other: Ciphertext | int | np.integer[Any]) -> Ciphertext:
        return self + -(int(other) if isinstance(other, np.integer) else other)

    def rerandomised(self) -> Ciphertext:
        """Return a ciphertext of the same integer that can't be linked with this one."""
        return Ciphertext(key=self.key, row=self.key.ring.multiply(self.row, self.key.take(1)))


class NoisePool:
    """Encryptions of zero made beforehand, while a client trains, so that encrypting is one multiplication each.

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
