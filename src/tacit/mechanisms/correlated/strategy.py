r"""Strategies: the matrix C whose inverse makes a run's noise of independent draws, and what a participation costs.

A run releases the sums :math:`x_1, \dots, x_n` of its rounds, and a model is made of their prefix sums. Noise
:math:`\hat z = \sigma C^{-1} z` with C lower triangular and z independent makes of it the Gaussian mechanism on
:math:`Cx`, also where :math:`x_t` depends on what was released before (Denisov et al. 2022): epsilon follows from
:math:`\lVert C(x - x') \rVert`, the model's error from :math:`A C^{-1}`, A being the matrix of prefix sums.

**What a client costs.** A client takes part in rounds at least b apart, with a vector of norm at most 1 in each: its
part of :math:`Cx` is :math:`\sum_p C_{:p} g_p` over its rounds p.

- *At most b bands.* Columns b apart have no row in common, so squared norms add up: every participation costs its
  column's norm squared, which is at most 1 here, and no more. That is exact: a Gaussian release of multiplier
  :math:`\sigma` per participation, charged when it happens, although a part of it is released only in later rounds.
- *BLT.* Columns overlap. C is Toeplitz with coefficients :math:`c_0 \ge c_1 \ge \dots \ge 0`, so inner products of
  columns are largest where both begin as early and as close to each other as they can; j participations cost at most
  :math:`f(j) = \lVert \sum_{i<j} C_{:,ib} \rVert^2`, and the j-th is charged :math:`f(j) - f(j-1)`. Exact for who
  begins in the first round.

**What is forgotten.** Draws of past rounds are in memory and nowhere else. After a crash they are gone, and the noise
begins anew: entries of C below and left of that place become zero. Columns get shorter and, all entries being taken by
their magnitude, no inner product grows. So nothing is charged for that; the model has a little more noise.

**What is repeated.** A round that is tried again draws anew, and what was charged stays charged. A try that failed was
not released, and changes nothing. One that a crash cut short may have been: then :math:`Cx` has one row more. Of those
who are in both tries its part is at most :math:`e = \sum_i c_{ib}` (with at most b bands: one entry, at most 1); a
participation is charged :math:`\max(f(j) - f(j-1), e^2)`, so that the second charge covers it. Those of earlier rounds
are not charged again, and need not be: the noise before the crash is forgotten, so their columns end with that row,
where they had an entry anyway. A release and its repetition with the same memory would cost them more than they paid:
whoever keeps the memory must not repeat what was released.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError

Kind = Literal["banded", "toeplitz", "blt"]
Array = NDArray[np.float64]
Memory = tuple[Array, ...]
LARGEST_BANDED = 4096  # rounds: beyond, a matrix without structure takes too long to find
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """Which strategy: its kind, the rounds it is made for, and how far apart a client's rounds are.

    Attributes:
        kind: ``banded`` (the best matrix with so many bands), ``toeplitz`` (the best of those whose bands are
            constant; a percent worse, and found at once) or ``blt`` (a sum of decaying exponentials, which reaches back
            to the first round and keeps a few vectors; Dvijotham et al. 2024).
        rounds: n.
        separation: b.
        bands: how many rounds' noise is kept, and combined; at most b.
        buffers: how many exponentials a BLT has.
    """

    kind: Kind
    rounds: int
    separation: int
    bands: int = 1
    buffers: int = 4

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.separation < 1 or self.buffers < 1:
            raise ConfigError(
                f"Expected 1 or more of rounds={self.rounds}, separation={self.separation}, buffers={self.buffers}."
            )
        if not 1 <= self.bands <= self.separation:
            raise ConfigError(
                f"Expected 1 to {self.separation} bands (dp.bands), as many as rounds between a client's "
                f"participations, got {self.bands}: with more, what a client sent is in the same noise twice. Raise "
                "federate.separation, or use dp.correlation=blt, which reaches further back."
            )
        if self.kind == "banded" and self.rounds > LARGEST_BANDED:
            raise ConfigError(
                f"dp.correlation=banded is for up to {LARGEST_BANDED} rounds, got {self.rounds}. Use toeplitz, which "
                "is a percent worse and is found at once."
            )

    @property
    def participations(self) -> int:
        """How often a client can take part at the most."""
        return -(-self.rounds // self.separation)


class Strategy(Protocol):
    """A matrix C by its rows, and what it costs to take part."""

    def step(self, place: int, fresh: Array, memory: Memory) -> tuple[Array, Memory]:
        """Return a round's noise made of a fresh draw, and what the next round has to remember.

        Args:
            place: the round, from 0.
            fresh: independent standard normal numbers.
            memory: what the round before returned; nothing in a first round, or where it was lost.
        """
        ...

    def price(self, participation: int) -> float:
        """Return the squared norm that a client is charged for its participation of this number, from 0."""
        ...

    def matrix(self) -> Array:
        """Return C in full, for tests and for drawing."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Banded:
    r"""A matrix with few bands, at most as many as rounds between a client's participations.

    >>> two = Banded(rows=np.array([[1.0, 0.0], [0.8, 0.6]]) / 1.2)
    >>> two.matrix().round(2).tolist()
    [[0.83, 0.0], [0.5, 0.67]]

    Attributes:
        rows: of round t the entries :math:`C_{t,t}, C_{t,t-1}, \dots`; the columns' norms are at most 1.
    """

    rows: Array

    def __post_init__(self) -> None:
        rows = self.rows
        if rows.ndim != 2 or not np.isfinite(rows).all() or not (rows[:, 0] > 0.0).all():
            raise ConfigError("Expected the rows of a matrix of finite numbers with a diagonal above 0.")
        largest = float(np.sqrt(columns(rows).max()))
        if largest > 1.0 + _ROUNDING:
            raise ConfigError(f"Expected columns of norm 1 at the most, got {largest}: the noise would be too small.")

    def step(self, place: int, fresh: Array, memory: Memory) -> tuple[Array, Memory]:
        r"""Solve row t of :math:`C \hat z = z` for the newest number."""
        row = self.rows[place]
        noise = fresh.copy()
        for entry, earlier in zip(row[1:], memory, strict=False):  # the newest first
            noise -= entry * earlier
        noise /= row[0]
        return noise, (noise, *memory)[: len(row) - 1]

    def price(self, participation: int) -> float:
        """Return 1: a column's norm."""
        return 1.0

    def matrix(self) -> Array:
        """Return C."""
        return in_full(self.rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class Blt:
    r"""A Toeplitz matrix of few exponentials: :math:`c_0 = s,\; c_j = s \sum_i \omega_i \lambda_i^{j-1}`.

    With one buffer per exponential, :math:`C \hat z = z` is solved by

    .. math:: \hat z_t = z_t / s - \sum_i \omega_i b_{i,t}, \qquad b_{i,t+1} = \lambda_i b_{i,t} + \hat z_t .

    Attributes:
        outputs: :math:`\omega_i \ge 0`, at most 1 in all.
        decays: :math:`0 \le \lambda_i < 1`.
        scale: s, which makes the first column's norm 1.
        prices: what each participation is charged.
    """

    outputs: Array
    decays: Array
    scale: float
    rounds: int
    prices: Array

    def step(self, place: int, fresh: Array, memory: Memory) -> tuple[Array, Memory]:
        """Take off what the buffers hold, and move them on."""
        noise = fresh / self.scale
        for output, buffer in zip(self.outputs, memory, strict=False):
            noise -= output * buffer
        held = memory or (np.zeros_like(fresh),) * len(self.decays)
        return noise, tuple(decay * buffer + noise for decay, buffer in zip(self.decays, held, strict=True))

    def price(self, participation: int) -> float:
        """Return what the participation adds to the squared norm of a client's part at the most."""
        return float(self.prices[participation])

    def coefficients(self) -> Array:
        """Return the first column of C."""
        return self.scale * exponentials(self.outputs, self.decays, self.rounds)

    def matrix(self) -> Array:
        """Return C."""
        back = np.subtract.outer(np.arange(self.rounds), np.arange(self.rounds))
        return np.where(back >= 0, self.coefficients()[np.maximum(back, 0)], 0.0)


def in_full(rows: Array) -> Array:
    """Return a banded matrix that is given by its rows."""
    rounds, bands = rows.shape
    full = np.zeros((rounds, rounds))
    for back in range(min(bands, rounds)):
        at = np.arange(back, rounds)
        full[at, at - back] = rows[at, back]
    return full


def columns(rows: Array) -> Array:
    """Return the squared norms of the columns of a banded matrix that is given by its rows."""
    rounds, bands = rows.shape
    found = np.zeros(rounds)
    for back in range(min(bands, rounds)):
        found[: rounds - back] += rows[back:, back] ** 2
    return found


def exponentials(outputs: Array, decays: Array, rounds: int) -> Array:
    """Return 1 and the sums of decaying exponentials after it."""
    powers = decays[:, None] ** np.arange(rounds - 1)
    return np.concatenate([[1.0], outputs @ powers])


def prices(coefficients: Array, separation: int) -> Array:
    """Return what each participation is charged under a Toeplitz matrix whose coefficients never rise.

    >>> prices(np.array([1.0, 0.5, 0.25, 0.125]), 2).round(4).tolist()
    [1.3281, 1.875]
    """
    if (np.diff(coefficients) > _ROUNDING).any() or (coefficients < 0.0).any():
        raise ConfigError("Expected coefficients that never rise, and none below 0: for others no price is proved.")
    rounds = len(coefficients)
    together = np.zeros(rounds)
    before, row, found = 0.0, 0.0, []
    for start in range(0, rounds, separation):
        together[start:] += coefficients[: rounds - start]
        row += coefficients[start]
        after = float(together @ together)
        found.append(max(after - before, row * row))
        before = after
    return np.array(found)


def error(strategy: Strategy) -> float:
    """Return the root mean square, over rounds, of the noise in a prefix sum where draws have deviation 1."""
    inverse = np.linalg.inv(strategy.matrix())
    return float(np.linalg.norm(np.cumsum(inverse, axis=0)) / np.sqrt(len(inverse)))
