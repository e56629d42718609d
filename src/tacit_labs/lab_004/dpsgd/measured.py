"""What the DP-SGD experiments of report 004 gave, run again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

Way = Literal["normal", "reported", "tight", "ours"]
NAMES: Mapping[Way, str] = {
    "normal": "without privacy (the report's Normal)",
    "reported": "the report's DP-SGD",
    "tight": "the same with the least noise",
    "ours": "Tacit: public bounds, least noise",
}


@dataclass(frozen=True, kw_only=True)
class Trained:
    """One setting of one sweep, trained one way with every seed."""

    sweep: str
    value: float
    way: Way
    epsilon: float
    delta: float
    iterations: int
    noise_multiplier: float | None  # None without privacy
    each: tuple[float, ...]  # test accuracy by seed

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return float(np.mean(self.each))

    @property
    def spread(self) -> float:
        """The standard deviation over seeds."""
        return float(np.std(self.each))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self) | {"mean": self.mean, "spread": self.spread, "each": list(self.each)}


@dataclass(frozen=True, kw_only=True)
class Rise:
    """The sweep over iterations with many seeds: is the rise before the fall more than chance?"""

    clip: float
    protected: bool  # whether the bias is clipped and noised as a weight is
    one_split: bool  # whether all seeds have the same patients to learn from, as in the report's code
    seeds: int
    each: Mapping[int, Sequence[float]]  # iterations -> test accuracy by seed

    def mean(self, iterations: int) -> float:
        """Return the mean over seeds."""
        return float(np.mean(self.each[iterations]))

    @property
    def name(self) -> str:
        """How it was trained, in a few words."""
        split = "one split" if self.one_split else "a split per seed"
        return f"C {self.clip:g}, {'protected' if self.protected else 'exact'} bias, {split}"

    @property
    def first(self) -> int:
        """The fewest iterations."""
        return min(self.each)

    @property
    def best(self) -> int:
        """The iterations with the highest mean."""
        return max(self.each, key=self.mean)

    @property
    def gain(self) -> tuple[float, float]:
        """The rise from the fewest iterations to the best, in points, and its standard error over paired seeds."""
        differences = 100 * (np.array(self.each[self.best]) - np.array(self.each[self.first]))
        return float(differences.mean()), float(differences.std() / math.sqrt(self.seeds))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "clip": self.clip,
            "protected_bias": self.protected,
            "one_split": self.one_split,
            "seeds": self.seeds,
            "mean": {str(steps): self.mean(steps) for steps in self.each},
            "best": self.best,
            "gain": list(self.gain),
        }


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """What the features are like before they are scaled, and what training on them gives."""

    widest: float  # the largest standard deviation of a feature
    narrowest: float
    raw: tuple[float, ...]  # test accuracy without scaling, by seed
    scaled: tuple[float, ...]

    @property
    def orders(self) -> float:
        """The orders of magnitude between the features."""
        return math.log10(self.widest / self.narrowest)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Everything that the page is made of."""

    epsilon: float
    delta: float
    iterations: int
    seeds: tuple[int, ...]
    sweeps: Mapping[str, tuple[float, ...]]
    points: tuple[Trained, ...]
    squared: tuple[Trained, ...]  # with the report's other loss
    protected: tuple[Trained, ...]  # over iterations, with the bias clipped and noised as well
    rise: Rise  # as all the rest
    others: tuple[Rise, ...]  # a split per seed, another clipping bound, the bias protected
    scaling: Scaling
    spent: Mapping[tuple[str, float], float]  # (sweep, value) -> the epsilon that the report's noise really costs
    unspent: Mapping[float, Mapping[int, float]]  # epsilon -> steps -> the share that two substitutions leave

    def line(self, sweep: str, way: Way) -> list[Trained]:
        """Return the points of a sweep by one way, in the order of their values."""
        return ordered(self.points, sweep, way)

    def at(self, sweep: str, value: float) -> dict[Way, Trained]:
        """Return one setting by all ways."""
        return {point.way: point for point in self.points if (point.sweep, point.value) == (sweep, value)}

    @property
    def settings(self) -> list[tuple[str, float]]:
        """Every setting once: a sweep and its value."""
        return [(name, value) for name, values in self.sweeps.items() for value in values]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "seeds": list(self.seeds),
            "points": [
                point.to_dict()
                | ({"spent": self.spent.get((point.sweep, point.value))} if point.way == "reported" else {})
                for point in self.points
            ],
            "squared_loss": [point.to_dict() for point in self.squared],
            "protected_bias": [point.to_dict() for point in self.protected],
            "rise": self.rise.to_dict(),
            "rise_otherwise": [one.to_dict() for one in self.others],
            "scaling": asdict(self.scaling) | {"orders": self.scaling.orders},
            "unspent": {
                f"{epsilon:g}": {str(k): share for k, share in by.items()} for epsilon, by in self.unspent.items()
            },
        }


def ordered(points: Sequence[Trained], sweep: str, way: Way) -> list[Trained]:
    """Return the points of a sweep by one way, in the order of their values."""
    own = [point for point in points if (point.sweep, point.way) == (sweep, way)]
    return sorted(own, key=lambda point: point.value)
