r"""Groups for discrete logarithms: the quadratic residues modulo a safe prime, named ones and one's own.

For :math:`p = 2q + 1` the squares modulo p form a group of prime order q: it has no subgroups in which a careless
exponent could be found piece by piece, and membership is one Jacobi symbol. -1 is no square, as p is 3 modulo 4.

Named groups need no trust in whoever made them, as the digits of e and pi leave no freedom for a trapdoor. With c = e
(``ffdhe…``, RFC 7919) or c = pi (``modp…``, RFC 3526) and the least X that makes p safe,

.. math:: p = 2^b - 2^{b-64} - 1 + 2^{64} (\lfloor 2^{b-130} c \rfloor + X).

All are 7 modulo 8, so 2 is a square and generates the group. Powers of one base of a group come from a table once
enough were asked for to pay for it (:func:`fixed_base`).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import gmpy2
import numpy as np

from tacit.crypto.backend import backend
from tacit.crypto.primes import Progress, is_prime, safe_prime
from tacit.crypto.ring import Ring, Rows, Table, from_integers, to_integers
from tacit.errors import ConfigError, KeysError

SAFE_BITS = 2048
_SMALLEST = 16
_LARGEST = 16384

_FFDHE = {2048: 560316, 3072: 2625351, 4096: 5736041, 6144: 15705020, 8192: 10965728}
_MODP = {1536: 741804, 2048: 124476, 3072: 1690314, 4096: 240904, 6144: 929484, 8192: 4743158}
NAMES = (*(f"ffdhe{bits}" for bits in _FFDHE), *(f"modp{bits}" for bits in _MODP))
_TABLE_FROM = {"native": 8}  # powers; about as many as building the table costs
_TABLE_FROM_ELSE = 128


@dataclass(frozen=True, kw_only=True)
class Group:
    """The squares modulo a safe prime. Get one from :func:`named`, :func:`own` or :func:`generate`, which check it.

    Attributes:
        name: what ciphertexts and key files call it.
        p: the safe prime.
        g: a generator of the squares.
    """

    name: str
    p: int
    g: int

    @property
    def q(self) -> int:
        """The order of the group, (p - 1) / 2."""
        return self.p >> 1

    @property
    def bits(self) -> int:
        """The length of p."""
        return self.p.bit_length()

    @property
    def insecure(self) -> bool:
        """Whether the group is too small for anything but experiments."""
        return self.bits < SAFE_BITS

    def holds(self, number: int) -> bool:
        """Return whether a number is in the group: a square modulo p, below p and not 0."""
        return 0 < number < self.p and bool(gmpy2.jacobi(number, self.p) == 1)

    def to_dict(self) -> dict[str, str]:
        """Return the group as text for a key file: its name alone where the name says all."""
        return (
            {"name": self.name} if self.name in NAMES else {"name": self.name, "p": f"{self.p:x}", "g": f"{self.g:x}"}
        )

    @classmethod
    def from_dict(cls, content: Mapping[str, str]) -> Group:
        """Return the group of a key file, of any size, checked in full.

        Raises:
            KeysError: where it is damaged or no group to trust.
        """
        try:
            if content["name"] in NAMES:
                return named(content["name"])
            group = own(int(content["p"], 16), g=int(content["g"], 16), insecure_key_size=True)
        except (KeyError, TypeError, ValueError) as error:
            raise KeysError(f"The key's group is damaged: {error!r}. Restore the key file from a copy.") from None
        if group.name != content["name"]:
            raise KeysError(f"The key's group is called {content['name']!r} but is {group.name!r}: it was changed.")
        return group


@functools.cache
def named(name: str) -> Group:
    """Return a group of RFC 7919 or RFC 3526.

    >>> f"{named('ffdhe3072').p:X}"[:32]
    'FFFFFFFFFFFFFFFFADF85458A2BB4A9A'
    """
    if name not in NAMES:
        raise ConfigError(f"There is no group {name!r}. Expected one of {', '.join(NAMES)}.")
    family, bits = name.rstrip("0123456789"), int(name.lstrip("abcdefghijklmnopqrstuvwxyz"))
    constant, extra = (_floor_e, _FFDHE[bits]) if family == "ffdhe" else (_floor_pi, _MODP[bits])
    digits = _certain(constant, bits - 130)
    return Group(name=name, p=(1 << bits) - (1 << (bits - 64)) - 1 + ((digits + extra) << 64), g=2)


@functools.lru_cache(maxsize=16)
def own(p: int, *, g: int = 4, insecure_key_size: bool = False) -> Group:
    """Return the group of one's own safe prime, named by its digest.

    Any square but 1 generates the group, as its order is prime; 4 is a square modulo every p.

    Raises:
        KeysError: where p or (p - 1) / 2 is not prime, g is not a generator of the squares, or p is too small.
    """
    if not _SMALLEST <= p.bit_length() <= _LARGEST:
        raise KeysError(f"Expected a safe prime of {_SMALLEST} to {_LARGEST} bits, got {p.bit_length()}.")
    if p.bit_length() < SAFE_BITS and not insecure_key_size:
        raise KeysError(
            f"A group of {p.bit_length()} bits is not secure: expected at least {SAFE_BITS}. For an experiment say "
            "insecure_key_size=True."
        )
    if not (is_prime(p, rounds=1) and is_prime(p >> 1)):  # where q is prime, one base proves p (Pocklington 1914)
        raise KeysError(
            "p or (p - 1) / 2 is not prime: discrete logarithms may be easy in this group. Take a named group, or a "
            "safe prime from tacit.crypto.primes."
        )
    group = Group(name="own-" + hashlib.sha256(f"{p:x} {g:x}".encode()).hexdigest()[:12], p=p, g=g)
    if g == 1 or not group.holds(g):
        raise KeysError(
            f"g={_short(g)} does not generate the squares modulo p: expected a square other than 1, as 4 is."
        )
    return group


def generate(
    bits: int, *, workers: int | None = None, progress: Progress | None = None, insecure_key_size: bool = False
) -> Group:
    """Return the group of a new safe prime; 2048 bits take a few seconds, 4096 a few minutes."""
    if bits < SAFE_BITS and not insecure_key_size:
        raise ConfigError(
            f"A group of bits={bits} is not secure: expected at least {SAFE_BITS}. For an experiment say "
            "insecure_key_size=True."
        )
    return own(safe_prime(bits, workers=workers, progress=progress), insecure_key_size=insecure_key_size)


def _short(number: int) -> str:
    return str(number) if abs(number) < 1 << 32 else f"{number:x}"[:8] + "…"


def _certain(constant: Callable[[int], tuple[int, int]], bits: int) -> int:
    """Return floor(2^bits c): the error of the sum must not reach the digits that are kept."""
    guard = 64
    below, error = constant(bits + guard)
    assert (below - error) >> guard == (below + error) >> guard, "more guard bits"
    return below >> guard


def _floor_e(bits: int) -> tuple[int, int]:
    """Return 2^bits e and a bound of the error: the sum of 1 / k!, each term rounded down."""
    total, term, count = 0, 1 << bits, 0
    while term:
        total += term
        count += 1
        term //= count
    return total, 2 * count


def _floor_pi(bits: int) -> tuple[int, int]:
    """Return 2^bits pi and a bound of the error: 16 arctan(1/5) - 4 arctan(1/239) (Machin 1706)."""
    total, error = 0, 0
    for weight, divisor in ((16, 5), (-4, 239)):
        power, place = (1 << bits) // divisor, 1
        while power:
            total += weight * (power // place)
            power, place, weight = power // divisor**2, place + 2, -weight  # noqa: PLW2901 - the three run together
            error += 2 * abs(weight)
    return total, error


@dataclass(kw_only=True)
class FixedBase:
    """One base of a group. Exponents may be secret: single powers take constant time, many go through the table."""

    ring: Ring
    base: int
    bits: int
    _asked: int = field(default=0, init=False)
    _table: Table | None = field(default=None, init=False, repr=False)

    def powers(self, exponents: Rows, *, workers: int | None = None) -> Rows:
        """Return the base to each exponent of at most ``bits`` bits."""
        self._asked += len(exponents)
        if self._table is None and self._asked < _TABLE_FROM.get(backend().name, _TABLE_FROM_ELSE):
            base = from_integers([self.base], self.ring.width)
            powers = [self.ring.power(base, exponent, secret=True, workers=1) for exponent in to_integers(exponents)]
            return np.concatenate([np.empty((0, self.ring.width), np.uint8), *powers])
        if self._table is None:
            self._table = self.ring.table(self.base, bits=self.bits)
        return self._table.powers(exponents, workers=workers)


@functools.lru_cache(maxsize=8)
def fixed_base(modulus: int, base: int, bits: int) -> FixedBase:
    """Return the powers of a base, whose table is shared by all keys that use it, as those of one group do."""
    return FixedBase(ring=backend().ring(modulus), base=base, bits=bits)
