"""The DP-SGD lab: private logistic regression on breast cancer, swept over epsilon, delta and iterations.

Each point is trained three ways on the same splits: without privacy (normal), with the noise of the lab's method
(advanced composition in two steps) and with that of the tight accounting. All points and seeds of all sweeps run as one
batched program (:mod:`tacit.training.private.logistic`).
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError
from tacit.federated.examples import BudgetBy, noise_for
from tacit.mechanisms.calibration import analytic
from tacit.randomness import Randomness
from tacit.tasks import tumours
from tacit.training.private.logistic import Setting, accuracies, train

Way = Literal["normal", "lab", "tight"]
WAYS: tuple[Way, ...] = get_args(Way)
Normalise = Literal["public", "private", "own"]
NORMALISE: tuple[Normalise, ...] = get_args(Normalise)
SWEEPS: Mapping[str, tuple[float, ...]] = {
    "epsilon": (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
    "delta": (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1),
    "iterations": (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000),
}
_STATISTICS = 0.1  # the share of a budget that a private normalisation takes
_TESTED = 5  # one row in so many is held out
_METHODS: Mapping[Way, BudgetBy] = {"lab": "advanced-composition", "tight": "tight"}


@dataclass(frozen=True, kw_only=True)
class Lab:
    """What is swept, around which point."""

    epsilon: float = 1.0
    delta: float = 1e-3
    iterations: int = 1000
    lr: float = 0.01
    clip: float = 1.0
    seeds: int = 10
    first_seed: int = 0
    normalise: Normalise = "public"
    sweeps: Mapping[str, tuple[float, ...]] = field(default_factory=lambda: dict(SWEEPS))

    def __post_init__(self) -> None:
        if self.normalise not in NORMALISE:
            raise ConfigError(f"Unknown normalisation {self.normalise!r}. Choose one of {', '.join(NORMALISE)}.")
        unknown = [name for name in self.sweeps if name not in SWEEPS]
        if unknown:
            raise ConfigError(f"Unknown sweep {unknown[0]!r}. Choose among {', '.join(SWEEPS)}.")
        if self.seeds < 1:
            raise ConfigError(f"Expected 1 seed or more, got {self.seeds}.")
        if not (0.0 < self.lr < math.inf and 0.0 < self.clip < math.inf):
            raise ConfigError(f"Expected lr={self.lr} and clip={self.clip} above 0.")


@dataclass(frozen=True, kw_only=True)
class Point:
    """One setting of one sweep, by one way, over all seeds."""

    sweep: str
    value: float
    way: Way
    epsilon: float
    delta: float
    iterations: int
    noise_multiplier: float | None  # None without privacy
    mean: float  # of the test accuracy
    spread: float  # its standard deviation over seeds
    each: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self) | {"each": list(self.each)}


def run(lab: Lab) -> tuple[Point, ...]:
    """Train everything and return the points, sweep by sweep."""
    wanted = [
        (name, float(value), way, _at(lab, name, value))
        for name, values in lab.sweeps.items()
        for value in values
        for way in WAYS
    ]
    settings = []
    for _, _, way, (epsilon, delta, iterations) in wanted:
        if way == "normal":
            settings.append(Setting(steps=iterations, lr=lab.lr))
            continue
        left = 1.0 - _STATISTICS if lab.normalise == "private" else 1.0
        multiplier = noise_for(
            _METHODS[way],
            epsilon=left * epsilon,
            delta=left * delta,
            steps=iterations,
        )
        settings.append(Setting(steps=iterations, lr=lab.lr, clip_bound=lab.clip, noise_multiplier=multiplier))
    # Regressions without noise that are alike are trained once.
    places: dict[tuple[Setting, tuple[float, float] | None, int], list[int]] = {}
    for number, ((_, _, way, (epsilon, delta, _)), setting) in enumerate(zip(wanted, settings, strict=True)):
        budget = (epsilon, delta) if lab.normalise == "private" and way != "normal" else None
        places.setdefault((setting, budget, 0 if way == "normal" else number), []).append(number)
    found = np.empty((len(wanted), lab.seeds))
    for budget in dict.fromkeys(key[1] for key in places):
        own = [key for key in places if key[1] == budget]
        features, labels, tests, truths = _splits(lab, budget)
        noise = Randomness.of(seed=lab.first_seed).within("lab", repr(budget)).stream("noise")
        shares = accuracies(train(features, labels, [key[0] for key in own], noise.standard_normal), tests, truths)
        for key, line in zip(own, shares, strict=True):
            found[places[key]] = line
    return tuple(
        Point(
            sweep=name,
            value=value,
            way=way,
            epsilon=at[0],
            delta=at[1],
            iterations=at[2],
            noise_multiplier=None if way == "normal" else setting.noise_multiplier,
            mean=float(each.mean()),
            spread=float(each.std()),
            each=tuple(float(share) for share in each),
        )
        for (name, value, way, at), setting, each in zip(wanted, settings, found, strict=True)
    )


def _at(lab: Lab, name: str, value: float) -> tuple[float, float, int]:
    """Return epsilon, delta and iterations where one of them has ``value``."""
    epsilon = value if name == "epsilon" else lab.epsilon
    delta = value if name == "delta" else lab.delta
    return epsilon, delta, int(value) if name == "iterations" else lab.iterations


def _splits(
    lab: Lab, budget: tuple[float, float] | None
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Return training and test data for every seed, normalised."""
    table, labels = tumours.load_table()
    held = -(-len(labels) // _TESTED)  # 114 of 569
    parts = []
    for seed in range(lab.first_seed, lab.first_seed + lab.seeds):
        randomness = Randomness.of(seed=seed)
        order = randomness.stream("lab split").permutation(len(labels))
        test, rows = order[:held], order[held:]
        learned, tested = _normalised(lab.normalise, table[rows], table[test], budget, randomness)
        parts.append((learned, labels[rows], tested, labels[test]))
    return tuple(np.stack([part[i] for part in parts]) for i in range(4))  # type: ignore[return-value]  # four of them, always


def _normalised(
    how: Normalise,
    learned: NDArray[np.float64],
    tested: NDArray[np.float64],
    budget: tuple[float, float] | None,
    randomness: Randomness,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scale both parts: by public bounds, by noisy statistics within them, or by the data's own, which leak."""
    if how == "public":
        return tumours.scaled(learned), tumours.scaled(tested)
    if how == "own" or budget is None:
        mean, deviation = learned.mean(0), learned.std(0)
        return (learned - mean) / deviation, (tested - mean) / deviation
    inside, outside = 2 * tumours.within_bounds(learned) - 1, 2 * tumours.within_bounds(tested) - 1  # in [-1, 1]
    mean, deviation = noisy_statistics(
        inside, epsilon=_STATISTICS * budget[0], delta=_STATISTICS * budget[1], randomness=randomness
    )
    return (inside - mean) / deviation, (outside - mean) / deviation


def noisy_statistics(
    values: NDArray[np.float64], *, epsilon: float, delta: float, randomness: Randomness
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""Return the mean and deviation of each column of ``values`` in [-1, 1], with (epsilon, delta)-privacy per row.

    One Gaussian release of :math:`(\sum_i x_i, \sum_i x_i^2)`, whose sensitivity to a row of d features is
    :math:`\sqrt{2 d}`; the number of rows is public. Deviations are kept above 0.05, so that noise divides nothing by
    nothing.
    """
    rows, columns = values.shape
    std = analytic(epsilon, delta, math.sqrt(2.0 * columns))
    sums = np.concatenate([values.sum(0), np.square(values).sum(0)])
    noisy = (sums + std * randomness.normal(2 * columns, "statistics")) / rows
    mean = np.clip(noisy[:columns], -1.0, 1.0)
    variance = np.clip(noisy[columns:], 0.0, 1.0) - mean**2
    return mean, np.sqrt(np.clip(variance, 0.05**2, 1.0))


def table(points: Sequence[Point]) -> str:
    """Return the points as CSV."""
    text = io.StringIO()
    names = [name for name in asdict(points[0]) if name != "each"]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*names, *(f"seed {number}" for number in range(len(points[0].each)))])
    for point in points:
        writer.writerow([*(getattr(point, name) for name in names), *point.each])
    return text.getvalue()
