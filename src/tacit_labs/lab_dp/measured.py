"""What the DP lab gave, run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.runs.result import Result
from tacit.studies.sweep import Row
from tacit_labs.lab_dp.epsilon import Line

PLAIN, MEANT, CODED = "plain", "meant", "coded"  # the three learning curves


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Everything that pages and tables are made of."""

    delta: float
    clip: float  # of the learning curve
    sigma: float
    tensors: int
    clips: tuple[float, ...]
    sigmas: tuple[float, ...]
    curves: Mapping[str, Result]
    rows: Sequence[Row]  # of the grid, sigma fastest
    lines: tuple[Line, ...]

    @property
    def rounds(self) -> int:
        """How many rounds a run has."""
        return len(self.curves[MEANT].rounds)

    @property
    def best(self) -> Row:
        """The point of the grid with the highest test accuracy."""
        return max(self.rows, key=lambda row: row.test_accuracy or 0.0)

    def best_at(self, sigma: float) -> Row:
        """Return the point with the highest test accuracy among those of one sigma."""
        own = [row for row in self.rows if row.values["dp.noise"] == sigma]
        return max(own, key=lambda row: row.test_accuracy or 0.0)

    def grid(self, name: str) -> list[list[float]]:
        """Return a measure of the grid's points: a row for each sigma, a column for each C."""
        found = {(row.values["dp.clip"], row.values["dp.noise"]): float(getattr(row, name)) for row in self.rows}
        return [[found[clip, sigma] for clip in self.clips] for sigma in self.sigmas]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "delta": self.delta,
            "learning_curve": {
                "clip": self.clip,
                "sigma": self.sigma,
                **{name: _curve(result) for name, result in self.curves.items()},
            },
            "grid": [
                dict(row.values)
                | {
                    "train_accuracy": row.train_accuracy,
                    "test_accuracy": row.test_accuracy,
                    "epsilon": row.epsilon,
                    "seconds": row.seconds,
                }
                for row in self.rows
            ],
            "epsilon_table": [line.to_dict() for line in self.lines],
        }


def _curve(result: Result) -> dict[str, Any]:
    return {
        "test_accuracy": [record.test_accuracy for record in result.rounds],
        "test_loss": [record.test_loss for record in result.rounds],
        "epsilon": [record.epsilon for record in result.rounds],
        "train_accuracy": result.train_accuracy,
        "parameters": result.parameters,
        "seconds": result.seconds,
    }
