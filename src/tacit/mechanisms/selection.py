r"""Private choice of coordinates: the exponential mechanism over sets (Jiang, Zhou & Grossklags, "SignDS-FL", 2022).

Of d coordinates a client's k largest (or smallest) are S. It names a set J of h coordinates, drawn with

.. math:: P(J) \propto e^{\varepsilon [\,|J \cap S| \ge \nu]}.

For any two S the normaliser is the same, so the odds of a set change by at most :math:`e^\varepsilon`: J is
:math:`\varepsilon`-locally private. With :math:`w_v = \binom kv \binom{d-k}{h-v}` the number of hits v has
:math:`p(v) \propto w_v e^{\varepsilon [v \ge \nu]}`. :math:`\nu` is the first to maximise the expected hits, and h the
largest, going up from 1, for which they are a given share of h. Nothing of this depends on data.

Weights span hundreds of orders of magnitude: :math:`\binom nt` is kept as :math:`\sum_i \log\frac{n-i+1}{i}`, which
loses nothing at n = 1e8 (differences of lgamma lose seven digits there).

The draw is split: with probability :math:`q = 1/(1 + (e^\varepsilon - 1) P_0[v \ge \nu])`, :math:`P_0` being the law
of the hits of a random set, J is any set, whatever the data; otherwise it is a set with :math:`\nu` hits or more.
That is the same law, and it keeps the bound where floating point can't: the set that the second part is least likely to
give still comes from the first, with the probability that the bound asks for. The second part draws its hits by whole
numbers of sets, so that every set in it is equally likely to the last one: a double would give the 4e-86 of all hits
(d = 21,840, epsilon 100) what the rounding of a sum leaves, 8.5e-15, and the odds of such a set would break the bound.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError
from tacit.randomness import Randomness
from tacit.vectors import Vector

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
_ROUND_UP = 1.0 + 2.0**-36  # more than the rounding of a sum of logarithms takes away


@dataclass(frozen=True, kw_only=True)
class Selection:
    """How many coordinates are named, and with which odds they are among the largest."""

    dimensions: int  # d
    largest: int  # k
    chosen: int  # h
    threshold: int  # nu
    epsilon: float

    def __post_init__(self) -> None:
        if not 1 <= self.chosen <= self.dimensions:
            raise ConfigError(
                f"Expected 1 <= chosen <= {self.dimensions} coordinates, got {self.chosen}. Lower sign_dim_out."
            )
        if not 1 <= self.largest < self.dimensions:
            raise ConfigError(
                f"sign_k leaves {self.largest} of {self.dimensions} coordinates to choose from: expected 1 or more, "
                "and not all. Raise sign_k, which may be up to 0.25."
            )
        if not 1 <= self.threshold <= self.chosen:
            raise ConfigError(f"Expected 1 <= threshold <= {self.chosen}, got {self.threshold}.")

    @functools.cached_property
    def _hits(self) -> Array:
        """The logarithm of the law of the hits of a random set, from 0 to h."""
        return _log_hits(self.dimensions, self.largest, self.chosen)

    @property
    def probabilities(self) -> Array:
        """The law of the hits, p(v) for v from 0 to h."""
        log = self._hits + np.where(np.arange(self.chosen + 1) >= self.threshold, self.epsilon, 0.0)
        weights = np.exp(log - log.max())
        return np.asarray(weights / weights.sum())

    @property
    def expected_hits(self) -> float:
        """The mean number of named coordinates that are among the largest."""
        return float(self.probabilities @ np.arange(self.chosen + 1))

    @functools.cached_property
    def any_set(self) -> float:
        """The probability q that the set is drawn without a look at the data, rounded up: more of it is safe."""
        tail = float(np.logaddexp.reduce(self._hits[self.threshold :]))
        return min(1.0, _ROUND_UP / (1.0 + math.exp(math.log(math.expm1(self.epsilon)) + tail)))

    @property
    def sets(self) -> tuple[int, ...]:
        """How many sets have from the threshold up to 1, 2, ... more hits: the hits are drawn by these counts."""
        return _counts(self.dimensions, self.largest, self.chosen, self.threshold)

    def split(self, update: Vector, sign: int) -> tuple[Indices, Indices]:
        """Return the coordinates with the k largest values (the k smallest where the sign is -1), and the others."""
        if sign > 0:
            order = np.argpartition(update, self.dimensions - self.largest)
            return order[self.dimensions - self.largest :], order[: self.dimensions - self.largest]
        order = np.argpartition(update, self.largest - 1)
        return order[: self.largest], order[self.largest :]

    def draw(self, largest: Indices, others: Indices, randomness: Randomness) -> Indices:
        """Return the named set in ascending order: an order of choice could tell which ones were among the largest."""
        if randomness.chance(self.any_set, "any set"):
            return np.sort(_some(self.dimensions, self.chosen, randomness, "set"))
        hits = self.threshold + bisect.bisect_right(self.sets, randomness.below(self.sets[-1], "hits"))
        inside = largest[_some(len(largest), hits, randomness, "inside")]
        outside = others[_some(len(others), self.chosen - hits, randomness, "outside")]
        return np.sort(np.concatenate([inside, outside]))


@functools.lru_cache(maxsize=64)
def plan(
    *,
    dimensions: int,
    share: float,
    epsilon: float,
    ratio: float = 0.6,
    chosen: int = 0,
    most: int | None = None,
) -> Selection:
    """Return the selection for a model of ``dimensions`` parameters; it is the same for all clients and rounds.

    >>> selection = plan(dimensions=66_404, share=0.2, epsilon=100.0)
    >>> selection.chosen, selection.threshold, round(selection.expected_hits, 6)
    (176, 118, 117.874221)

    Args:
        dimensions: d.
        share: k / d, in (0, 0.25].
        epsilon: what naming the set may cost, in (0, 100].
        ratio: the least share of hits among the named, in [0.5, 1].
        chosen: h, or 0 for the largest that keeps the ratio.
        most: an upper limit to that.
    """
    _check("sign_k", share, 0.0 < share <= 0.25, "(0, 0.25]")
    _check("sign_eps", epsilon, 0.0 < epsilon <= 100.0, "(0, 100]")
    _check("sign_thr_ratio", ratio, 0.5 <= ratio <= 1.0, "[0.5, 1]")
    _check("sign_dim_out", chosen, 0 <= chosen <= 50, "[0, 50]")
    _check("h_max", most, most is None or most >= 1, "[1, ...)")
    largest = int(share * dimensions)
    if largest < 1:
        raise ConfigError(
            f"sign_k={share:g} of {dimensions} coordinates is less than one: expected sign_k * d >= 1, and better over "
            "50. Raise sign_k, which may be up to 0.25."
        )
    limit = min(largest, dimensions - largest, most or dimensions)
    h = chosen or 1
    if not chosen:
        while h < limit and _best_threshold(dimensions, largest, h + 1, epsilon)[1] / (h + 1) >= ratio:
            h += 1
    threshold, _ = _best_threshold(dimensions, largest, h, epsilon)
    return Selection(dimensions=dimensions, largest=largest, chosen=h, threshold=threshold, epsilon=epsilon)


def _check(name: str, value: float | None, good: bool, domain: str) -> None:
    if not good:
        raise ConfigError(f"{name}={value} is outside its domain: expected a number in {domain}.")


def _best_threshold(dimensions: int, largest: int, chosen: int, epsilon: float) -> tuple[int, float]:
    """Return the threshold with the most expected hits, going up from 1 until they no longer rise, and these.

    They rise until their maximum, but at first by next to nothing: a random set of 177 coordinates has no or one hit
    among a fifth of all with probability 4e-16, and a double does not see whether those are favoured. There the scan
    ends at once, and with it the search for h. MindSpore's code does the same, so that the documented numbers (176 of
    66,404 at epsilon 100) rest on it; without rounding it would be 238.
    """
    weights = _log_weights(dimensions, largest, chosen)
    hits = np.arange(chosen + 1, dtype=np.float64)
    log = weights + np.where(hits >= np.arange(1, chosen + 1)[:, None], epsilon, 0.0)
    laws = np.exp(log - log.max(axis=1, keepdims=True))
    laws /= laws.sum(axis=1, keepdims=True)
    expected = (laws * hits).sum(axis=1)
    falls = np.flatnonzero(np.diff(expected) <= 0.0)
    best = int(falls[0]) if len(falls) else chosen - 1
    return best + 1, float(expected[best])


@functools.lru_cache(maxsize=16)
def _counts(dimensions: int, largest: int, chosen: int, threshold: int) -> tuple[int, ...]:
    """Return how many sets have ``threshold`` hits, how many that or one more, and so on to the most there can be."""
    others = dimensions - largest
    fewest, most = max(threshold, chosen - others), min(chosen, largest)
    if fewest > most:
        raise ConfigError(f"No set of {chosen} has {threshold} of {largest} coordinates. Lower the threshold.")
    ways = [0] * (fewest - threshold) + [math.comb(largest, fewest) * math.comb(others, chosen - fewest)]
    for hits in range(fewest, most):
        ways.append(ways[-1] * (largest - hits) * (chosen - hits) // ((hits + 1) * (others - chosen + hits + 1)))
    return tuple(itertools.accumulate(ways))


def _log_hits(dimensions: int, largest: int, chosen: int) -> Array:
    """Return the logarithms of the hypergeometric law: v of h drawn coordinates are among the k largest."""
    log = _log_weights(dimensions, largest, chosen)
    return np.asarray(log - np.logaddexp.reduce(log))


def _log_weights(dimensions: int, largest: int, chosen: int) -> Array:
    """Return log w_v: how many sets have v hits, for v from 0 to h."""
    return _log_binomials(largest, chosen) + _log_binomials(dimensions - largest, chosen)[::-1]


def _log_binomials(n: int, most: int) -> Array:
    """Return log C(n, t) for t from 0 to ``most``, minus infinity beyond n."""
    t = np.arange(1, min(n, most) + 1, dtype=np.float64)
    logs = np.full(most + 1, -np.inf)
    logs[0] = 0.0
    logs[1 : len(t) + 1] = np.cumsum(np.log((n - t + 1.0) / t))
    return logs


def _some(count: int, wanted: int, randomness: Randomness, purpose: str) -> Indices:
    """Return ``wanted`` different numbers below ``count``, every set of them equally likely."""
    if wanted > count // 2:
        left_out = _some(count, count - wanted, randomness, purpose)
        return np.delete(np.arange(count), left_out)
    found = np.empty(0, np.int64)
    tries = 0
    while len(found) < wanted:  # the first different ones of a sequence; two draws in three are new at worst
        drawn = randomness.integers(count, wanted - len(found), purpose, tries)
        both = np.concatenate([found, drawn])
        found = both[np.sort(np.unique(both, return_index=True)[1])]
        tries += 1
    return found
