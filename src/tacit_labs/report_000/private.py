"""The report's first half again: curves at its defaults, and its grid, with its noise as meant and as its code has it.

As meant is its formula: the whole update is clipped to C, the noise has standard deviation sigma C. As coded is its
code: each tensor is clipped by itself, and (sigma C)^2, a variance, is handed to a function that expects a standard
deviation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.runs.result import Result
from tacit.studies.plan import with_values
from tacit_labs.harness import epsilons
from tacit_labs.harness.experiment import Progress, Settings
from tacit_labs.harness.learning import by_round, learned, local_sgd
from tacit_labs.report_000 import quoted

PLAIN, MEANT, CODED = "plain", "meant", "coded"
TENSORS = 8  # of the CNN
Point = tuple[float, float]  # C, sigma


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large everything is; the defaults are the full run's."""

    data: str = "mnist"
    model: str = "cnn"
    tensors: int = TENSORS
    local_epochs: int = quoted.LOCAL_EPOCHS
    rounds: int = quoted.ROUNDS
    clients: int = quoted.CLIENTS
    clips: tuple[float, ...] = quoted.CLIPS
    sigmas: tuple[float, ...] = quoted.SIGMAS
    grid_rounds: int = quoted.GRID_ROUNDS
    workers: int | None = None  # processes; one per core


@dataclass(frozen=True, kw_only=True)
class Private:
    """What was measured."""

    sizes: Sizes
    curves: Mapping[str, Result]
    grids: Mapping[str, Mapping[Point, Result]]  # by kind of noise

    def surface(self, kind: str, measure: str) -> list[list[float]]:
        """Return a measure of a grid's last rounds: a row for each sigma, a column for each C."""
        grid = self.grids[kind]
        return [
            [float(getattr(grid[clip, sigma].rounds[-1], measure)) for clip in self.sizes.clips]
            for sigma in self.sizes.sigmas
        ]

    def best(self, kind: str) -> tuple[Point, Result]:
        """Return the point of a grid with the highest test accuracy."""
        return max(self.grids[kind].items(), key=lambda item: item[1].test_accuracy or 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "clients": self.sizes.clients,
            "curves": {name: _curve(result) for name, result in self.curves.items()},
            "grids": {
                kind: [{"clip": clip, "sigma": sigma} | _end(result) for (clip, sigma), result in grid.items()]
                for kind, grid in self.grids.items()
            },
        }


def _curve(result: Result) -> dict[str, Any]:
    told: dict[str, Any] = dict(by_round(result))
    return told | {
        "epsilon": [record.epsilon for record in result.rounds],
        "parameters": result.parameters,
        "seconds": result.seconds,
    }


def _end(result: Result) -> dict[str, Any]:
    last = {measure: values[-1] for measure, values in by_round(result).items()}
    return last | {"epsilon": result.rounds[-1].epsilon}


def measure(sizes: Sizes, settings: Settings, folder: Path, progress: Progress) -> Private:
    """Train everything that is not trained yet."""
    base = _base(sizes, settings)
    plain = with_values(base, {"mode": "plain"})
    plain.pop("dp")
    at = {kind: noise(kind, clip=quoted.CLIP, sigma=quoted.SIGMA, tensors=sizes.tensors) for kind in (MEANT, CODED)}
    curves = learned(
        {PLAIN: plain} | {kind: with_values(base, values) for kind, values in at.items()},
        folder / "curves",
        what="curves at C 0.5, sigma 0.05",
        progress=progress,
        workers=sizes.workers,
    )
    grid = {"federate.rounds": sizes.grid_rounds, "evaluate.every": sizes.grid_rounds}
    points = [(clip, sigma) for sigma in sizes.sigmas for clip in sizes.clips]
    grids: dict[str, dict[Point, Result]] = {}
    for kind in (CODED, MEANT):
        ways = {
            f"C {clip:g}, sigma {sigma:g}": with_values(
                base,
                grid | noise(kind, clip=clip, sigma=sigma, tensors=sizes.tensors),
            )
            for clip, sigma in points
        }
        made = learned(ways, folder / kind, what=f"grid, noise as {kind}", progress=progress, workers=sizes.workers)
        grids[kind] = dict(zip(points, made.values(), strict=True))
    return Private(sizes=sizes, curves=curves, grids=grids)


def noise(kind: str, *, clip: float, sigma: float, tensors: int) -> dict[str, Any]:
    """Return the settings of clip and noise, by dotted keys.

    >>> coded = noise(CODED, clip=0.5, sigma=0.05, tensors=8)
    >>> round(coded["dp.clip"] * coded["dp.noise"], 9) == round((0.05 * 0.5) ** 2, 9)
    True
    """
    if kind == MEANT:
        return {"dp.clip": clip, "dp.noise": sigma}
    root = math.sqrt(tensors)  # per-layer clipping shares its bound equally: each tensor has C
    return {"dp.clip": clip * root, "dp.noise": sigma**2 * clip / root, "dp.per_layer": True}


def _base(sizes: Sizes, settings: Settings) -> dict[str, Any]:
    """Return what all runs share. The server takes the plain average in all of them, as the report's does."""
    shared: dict[str, Any] = {
        "mode": "dp",
        "seed": settings.seed,
        "gpu": settings.gpu,
        "data": {"name": sizes.data, "features": "none"}
        | ({} if settings.data_dir is None else {"folder": str(settings.data_dir)}),
        "model": {"name": sizes.model},
        "federate": {"rounds": sizes.rounds, "clients": sizes.clients},
        "server": {"lr": 1.0},
        "dp": {"delta": epsilons.DELTA},
        "evaluate": {"train": True},  # the report's figures have it; no noise protects it
    }
    return with_values(shared, training(sizes.local_epochs))


def training(local_epochs: int) -> dict[str, Any]:
    """Return how clients train in the author's public code, by dotted keys."""
    return local_sgd(epochs=local_epochs, batch=quoted.BATCH, rate=quoted.RATE, momentum=quoted.MOMENTUM)
