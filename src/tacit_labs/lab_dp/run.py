"""The DP lab: federated averaging on MNIST with clipped updates and Gaussian noise.

Three parts: the learning curve at C 0.5 and sigma 0.05, beside the same with the noise that the lab's code really draws
and without any; the grid of C and sigma; and the table of epsilons.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import RunError
from tacit.runs.result import Result
from tacit.studies.plan import Axis, of_grid, with_values
from tacit.studies.results import Repeat
from tacit.studies.sweep import Row, sweep
from tacit_labs.harness.experiment import Experiment, Progress, Reproduction, Settings
from tacit_labs.harness.learning import learned
from tacit_labs.lab_dp import epsilon as epsilons
from tacit_labs.lab_dp.measured import CODED, MEANT, PLAIN, Measured
from tacit_labs.lab_dp.page import findings, grid_sheet, quoted_table, sections


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large everything is; the defaults are the full run's."""

    data: str = "mnist"
    model: str = "cnn"
    tensors: int = epsilons.TENSORS  # of the model
    local_epochs: int = 1
    rounds: int = epsilons.ROUNDS
    clients: int = 10
    clip: float = 0.5  # of the learning curve
    sigma: float = 0.05
    clips: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)
    sigmas: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.4, 1.0)
    workers: int | None = None  # processes; one per core


_DATA = {"mnist": "MNIST", "digits": "Digits of 8 x 8 pixels"}
FULL = Sizes()
QUICK = Sizes(
    data="digits", model="mlp", tensors=6, local_epochs=3, clips=(0.1, 0.5, 0.9), sigmas=(0.02, 0.1, 1.0), workers=1
)


def run(settings: Settings, progress: Progress) -> Reproduction:
    """Run the lab as large as ``settings`` ask."""
    return reproduce(QUICK if settings.quick else FULL, settings, progress)


def reproduce(sizes: Sizes, settings: Settings, progress: Progress) -> Reproduction:
    """Run the lab and compare."""
    base = _base(sizes, settings)
    folder = settings.work(EXPERIMENT.name) / f"{zlib.crc32(repr((sizes, base)).encode()):08x}"
    measured = Measured(
        delta=epsilons.DELTA,
        clip=sizes.clip,
        sigma=sizes.sigma,
        tensors=sizes.tensors,
        clips=sizes.clips,
        sigmas=sizes.sigmas,
        curves=_curves(sizes, base, folder / "curves", progress),
        rows=_grid(sizes, base, folder / "grid", progress),
        lines=epsilons.lines(),
    )
    return Reproduction(
        settings=_said(sizes, settings),
        smaller=_smaller(sizes),
        findings=findings(measured),
        sections=sections(measured),
        tables={"epsilon": quoted_table(measured)},
        sheets={"grid": grid_sheet(measured)},
        data=measured.to_dict(),
    )


def _base(sizes: Sizes, settings: Settings) -> dict[str, Any]:
    """Return what all runs share. The server takes the plain average in all of them, so that curves compare."""
    return {
        "mode": "dp",
        "seed": settings.seed,
        "gpu": settings.gpu,
        "data": {"name": sizes.data} | ({} if settings.data_dir is None else {"folder": str(settings.data_dir)}),
        "model": {"name": sizes.model},
        "federate": {"rounds": sizes.rounds, "clients": sizes.clients},
        "train": {"local_epochs": sizes.local_epochs},
        "server": {"lr": 1.0},
        "dp": {"delta": epsilons.DELTA},
        "evaluate": {"train": True},  # the lab's figures have it; no noise protects it
    }


def _curves(sizes: Sizes, base: Mapping[str, Any], folder: Path, progress: Progress) -> dict[str, Result]:
    """Run the learning curve three ways: without noise, with the noise that was meant, with that of the code."""
    root = math.sqrt(sizes.tensors)
    ways: dict[str, dict[str, Any]] = {
        PLAIN: {"mode": "plain"},
        MEANT: {"dp.clip": sizes.clip, "dp.noise": sizes.sigma},
        # Every tensor clipped to C: per-layer clipping of C sqrt(tensors). The multiplier is of that sensitivity.
        CODED: {
            "dp.clip": sizes.clip * root,
            "dp.noise": sizes.sigma**2 * sizes.clip / root,
            "dp.per_layer": True,
        },
    }
    settings = {name: with_values(base, values) for name, values in ways.items()}
    settings[PLAIN].pop("dp")
    return learned(settings, folder, what="learning curve", progress=progress, workers=sizes.workers)


def _grid(sizes: Sizes, base: Mapping[str, Any], folder: Path, progress: Progress) -> Sequence[Row]:
    axes = [Axis(key="dp.clip", values=sizes.clips), Axis(key="dp.noise", values=sizes.sigmas)]
    study = of_grid(base, axes)
    total, seen = len(study.runs), 0

    def on_done(place: int, run: Repeat) -> None:
        nonlocal seen
        del place, run
        seen += 1
        progress("grid of C and sigma, points", done=seen, total=total)

    progress("grid of C and sigma, points", done=0, total=total)
    rows = sweep(study, out=folder, workers=sizes.workers, on_done=on_done)
    failed = [row for row in rows if row.error is not None]
    if failed:
        raise RunError(f"{len(failed)} of {total} points of the grid failed, the first because: {failed[0].error}")
    return rows


def _said(sizes: Sizes, settings: Settings) -> str:
    return (
        f"{_DATA.get(sizes.data, sizes.data)}, model `{sizes.model}`, {sizes.clients} clients with data mixed "
        f"evenly, all of them in each of {sizes.rounds} rounds, {sizes.local_epochs} local "
        f"epoch{'s' * (sizes.local_epochs > 1)} per round; delta {epsilons.DELTA:g}, the unit is a client, "
        f"add-remove. The grid has {len(sizes.clips)} values of C and {len(sizes.sigmas)} of sigma, one run each "
        f"with seed {settings.seed}. The noise on the sum of the clipped updates has standard deviation sigma C."
    )


def _smaller(sizes: Sizes) -> str:
    if sizes == FULL:
        return ""
    return (
        f"{_DATA.get(sizes.data, sizes.data)} (1,797 images of scikit-learn) with a perceptron instead of MNIST "
        f"with a CNN, {sizes.local_epochs} local epochs instead of {FULL.local_epochs}, and a grid of "
        f"{len(sizes.clips)} x {len(sizes.sigmas)} points instead of {len(FULL.clips)} x {len(FULL.sigmas)}. "
        "Accuracies are of this other task; the epsilons of the table and of the grid depend on neither data nor "
        "model."
    )


EXPERIMENT = Experiment(
    name="lab-dp",
    title="The DP lab: clipping, noise and epsilon",
    source=(
        "A teaching lab trained a CNN on MNIST by federated averaging with clipped updates and Gaussian noise. It "
        "showed the learning curve at C 0.5 and sigma 0.05, surfaces of training accuracy, test accuracy and "
        "epsilon over C and sigma, and a table of (sigma, C, epsilon). Its quoted epsilons are known to us; its "
        "accuracies are not, so accuracies stand here beside what its code would have given, run again."
    ),
    run=run,
)
