r"""From a clipped vector of floats to one of integers whose norm is bounded for certain."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.errors import ConfigError
from tacit.randomness import Randomness
from tacit.vectors import Integers, Vector, clipped

_LEAST_NORM = 2.0**14  # sC; rounding then adds 1/(2 sC) = 3e-5 to the norm
_LEAST_RATIO = 64.0  # sC over sqrt(d); rounding then adds at most 1/(8 * 64^2) = 3e-5 to the norm
_LARGEST_NORM = 2.0**30  # squared norms stay below 2^63
_TRIES = 100


@dataclass(frozen=True, kw_only=True)
class ConditionalRounding:
    r"""Clips to norm C, multiplies by s and rounds each number up or down at random, until the norm is within D.

    Rounding x up with probability :math:`x - \lfloor x \rfloor` leaves the mean as it is, and adds at most d/4 to the
    mean of the squared norm. It is drawn anew until the squared norm is within

    .. math:: D^2 = \min(C^2 s^2 + \tfrac d4 + \sqrt{2 \ln(1/b)}\,(C s + \tfrac12 \sqrt d),\; (C s + \sqrt d)^2),
        \qquad b = e^{-1/2},

    which a draw exceeds with probability at most b (Kairouz, Liu & Steinke, "The distributed discrete Gaussian
    mechanism", 2021). The norm is that of the integers themselves, so it does not depend on how floats are rounded.

    Of 100 draws all exceed D with probability at most :math:`e^{-50}`. Then every number is rounded towards zero,
    which never makes a norm larger: the bound holds always, and the mean is moved by nothing that could be measured.

    Without a ``scale``, s is the smallest power of two (a product with it is exact) for which :math:`C s` is at least
    :math:`2^{14}` and :math:`64 \sqrt d`. Then D exceeds :math:`C s` by at most a part in 15,000, at every d up to ten
    million and beyond: 4e-5 at d = 21,840. More would only make the integers, and their ciphertexts, longer.
    """

    clip_bound: float  # C
    parameters: int  # d
    scale: float | None = None  # s

    def __post_init__(self) -> None:
        if not 0.0 < self.clip_bound < math.inf:
            raise ConfigError(f"Expected clip_bound={self.clip_bound} > 0. Start from the typical norm of an update.")
        if self.parameters < 0:
            raise ConfigError(f"Expected parameters={self.parameters} >= 0: the numbers of the model.")
        if not 1.0 <= self.norm <= _LARGEST_NORM:
            raise ConfigError(
                f"Expected a scale s with 1 <= s * clip_bound <= 2^30, got scale={self.factor:g} with "
                f"clip_bound={self.clip_bound}. Leave the scale out: it is then chosen so that rounding costs nothing."
            )

    @property
    def factor(self) -> float:
        """What a number is multiplied by: s."""
        if self.scale is not None:
            return self.scale
        least = max(_LEAST_NORM, _LEAST_RATIO * math.sqrt(self.parameters))
        fraction, exponent = math.frexp(least / self.clip_bound)  # = fraction * 2^exponent, 1/2 <= fraction < 1
        return math.ldexp(1.0, exponent - (fraction == 0.5))

    @property
    def norm(self) -> float:
        """The largest norm before rounding, sC."""
        return self.factor * self.clip_bound

    @property
    def squared_sensitivity(self) -> float:
        """The largest squared norm after rounding, D^2."""
        root = math.sqrt(self.parameters)
        likely = self.norm**2 + self.parameters / 4.0 + self.norm + root / 2.0  # sqrt(2 ln(1/b)) = 1
        return min(likely, (self.norm + root) ** 2)

    @property
    def largest(self) -> int:
        """The largest magnitude a rounded number can have."""
        return min(math.ceil(self.norm), math.isqrt(math.floor(self.squared_sensitivity)))

    def rounded(self, update: Vector, randomness: Randomness) -> Integers:
        """Return integers of norm at most D that are s times the clipped update in the mean."""
        scaled = clipped(update, self.clip_bound)[0].astype(np.float64) * self.factor
        below = np.floor(scaled)
        part = scaled - below
        low = below.astype(np.int64)
        limit = math.floor(self.squared_sensitivity)
        for turn in range(_TRIES):
            integers = low + (randomness.uniform(len(part), "rounding", turn) < part)
            if int(np.dot(integers, integers)) <= limit:
                return integers
        return np.trunc(scaled).astype(np.int64)
