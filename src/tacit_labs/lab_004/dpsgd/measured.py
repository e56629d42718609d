"""What the DP-SGD lab gave, run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit_labs.lab_004.dpsgd.sweeps import Lab, Normalise, Point, Way


@dataclass(frozen=True, kw_only=True)
class Normalised:
    """The sweep over epsilon with features scaled in one way."""

    how: Normalise
    points: tuple[Point, ...]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Everything that pages and tables are made of."""

    lab: Lab
    points: tuple[Point, ...]
    scaled: tuple[Normalised, ...]
    spent: Mapping[tuple[str, float], float]  # (sweep, value) -> the epsilon that the lab's noise really costs
    waste: Mapping[int, Sequence[float]]  # steps -> the share of each of ``budgets`` that two substitutions leave
    budgets: tuple[float, ...]

    def line(self, sweep: str, way: Way) -> list[Point]:
        """Return the points of a sweep by one way, in the order of their values."""
        own = [point for point in self.points if (point.sweep, point.way) == (sweep, way)]
        return sorted(own, key=lambda point: point.value)

    def at(self, sweep: str, value: float) -> dict[Way, Point]:
        """Return one setting by all ways."""
        return {point.way: point for point in self.points if (point.sweep, point.value) == (sweep, value)}

    @property
    def settings(self) -> list[tuple[str, float]]:
        """Every setting once: a sweep and its value."""
        return list(dict.fromkeys((point.sweep, point.value) for point in self.points))

    def gap(self, sweep: str, value: float) -> float:
        """Return by how many points (of a hundred) the tight noise is ahead of the lab's."""
        found = self.at(sweep, value)
        return 100 * (found["tight"].mean - found["lab"].mean)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "points": [
                point.to_dict() | ({"spent": self.spent[point.sweep, point.value]} if point.way == "lab" else {})
                for point in self.points
            ],
            "gaps": [
                {"sweep": sweep, "value": value, "points": self.gap(sweep, value)} for sweep, value in self.settings
            ],
            "scaled": {one.how: [point.to_dict() for point in one.points] for one in self.scaled},
            "waste": {
                "epsilon": list(self.budgets),
                **{str(steps): list(shares) for steps, shares in self.waste.items()},
            },
        }
