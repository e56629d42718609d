"""Powers of one base to many exponents, with a table once enough were asked for to pay for it."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np

from tacit.crypto.backend import backend
from tacit.crypto.ring import Ring, Table
from tacit.crypto.rows import Rows, from_integers, to_integers

_TABLE_FROM = {"native": 8}  # powers; about as many as building the table costs
_TABLE_FROM_ELSE = 128


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
