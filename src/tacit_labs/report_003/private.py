"""The report's table of five settings, trained; its code is not shown, so several readings of its words are tried.

It says: clients are unchanged; the server divides by max(1, norm/C) while it adds up, and adds Gaussian noise before it
takes the mean. Not said: whether a norm is that of the update or of a tensor, and which standard deviation the noise
has. Its epsilons take sigma for that. In 000's server code, for the same exercise, the sum begins as a copy of the
first client's update and the loop with the second client: who clips inside such a loop leaves the first client
unclipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.accounting.profile import epsilon_at
from tacit.runs.result import Result
from tacit.studies.plan import with_values
from tacit_labs.baselines import averaging
from tacit_labs.harness import epsilons
from tacit_labs.harness.experiment import Progress, Settings
from tacit_labs.harness.learning import by_round, learned
from tacit_labs.report_003 import quoted
from tacit_labs.report_003.quoted import Line

PLAIN = "plain"
OTHERS: Mapping[str, Mapping[str, Any]] = {  # what the report does not state, and its first round depends on
    "five clients": {"federate.clients": 5},
    "three local epochs": {"train.local_epochs": 3},
    "rate 0.01, batches of 10, five local epochs": {
        "optimizer.lr": 0.01,
        "train.batch_size": 10,
        "train.local_epochs": 5,
    },
}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One way to understand what the report did."""

    name: str
    short: str
    std: Callable[[float, float], float]  # of the noise, from sigma and C
    but_the_first: bool  # whether the first client's update is left unclipped
    most: int | None = None  # rounds that are trained, where fewer than all show enough


READINGS = (
    Reading(
        name="all clipped, noise sigma C",
        short="all, sigma C",
        std=lambda sigma, clip: sigma * clip,
        but_the_first=False,
    ),
    Reading(
        name="all clipped, noise sigma", short="all, sigma", std=lambda sigma, _: sigma, but_the_first=False, most=2
    ),
    Reading(
        name="first client unclipped, noise sigma C",
        short="not first, sigma C",
        std=lambda sigma, clip: sigma * clip,
        but_the_first=True,
    ),
    Reading(
        name="first client unclipped, noise sigma",
        short="not first, sigma",
        std=lambda sigma, _: sigma,
        but_the_first=True,
        most=2,
    ),
)
FITS = READINGS[2]  # the reading that the accuracies fit


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large everything is; the defaults are the full run's."""

    data: str = "mnist"
    model: str = "cnn"
    local_epochs: int = 1
    rounds: int = quoted.ROUNDS
    clients: int = 10
    seeds: int = 5  # first rounds of the reading that fits, each from other first weights
    table: tuple[Line, ...] = quoted.TABLE


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Epsilons of one line at the report's delta."""

    formula: float  # the report's
    one: float  # one release of noise sigma C on sensitivity C, exact
    composed: float  # all rounds of it
    absolute: float  # one release of noise sigma on sensitivity C, as the formula takes it
    absolute_composed: float


def costs(line: Line, *, rounds: int = quoted.ROUNDS) -> Costs:
    """Return what a line's noise costs under both readings of sigma, if everyone is clipped.

    >>> round(costs(quoted.TABLE[1]).one, 1), round(costs(quoted.TABLE[1]).formula, 3)
    (80.0, 0.378)
    """
    root = rounds**0.5
    return Costs(
        formula=epsilons.formula(line.sigma, line.clip),
        one=epsilons.composed(line.sigma, 1),
        composed=epsilons.composed(line.sigma, rounds),
        absolute=epsilon_at(epsilons.DELTA, line.clip / line.sigma),
        absolute_composed=epsilon_at(epsilons.DELTA, root * line.clip / line.sigma),
    )


@dataclass(frozen=True, kw_only=True)
class Private:
    """What was measured."""

    sizes: Sizes
    plain: Result
    runs: Mapping[tuple[Line, str], Result]  # by line and reading
    first: tuple[float, ...]  # test accuracy of the first round by seed, of the line with the smallest C, as FITS
    others: Mapping[str, Result]  # plain first rounds with other settings

    @property
    def smallest(self) -> Line:
        """The line with the smallest C."""
        return min(self.sizes.table, key=lambda line: line.clip)

    def curve(self) -> Result:
        """Return the run whose rounds the report prints, everyone clipped."""
        return self.runs[self.sizes.table[0], READINGS[0].name]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "clients": self.sizes.clients,
            "plain": by_round(self.plain) | {"train_loss": [one.train_loss for one in self.plain.rounds]},
            "table": [
                vars(line)
                | {"reading": reading}
                | by_round(result)
                | {"train_loss": [one.train_loss for one in result.rounds]}
                for (line, reading), result in self.runs.items()
            ],
            "costs": [vars(line) | vars(costs(line)) for line in self.sizes.table],
            "first_round_by_seed": list(self.first),
            "first_round_with": {
                name: {"train_loss": result.rounds[0].train_loss, "test_accuracy": result.test_accuracy}
                for name, result in self.others.items()
            },
        }


def measure(sizes: Sizes, settings: Settings, folder: Path, progress: Progress) -> Private:
    """Train everything that is not trained yet; in this process, where the readings' modes are known."""
    base = _base(sizes, settings)
    ways = {PLAIN: base}
    for line in sizes.table:
        for reading in READINGS:
            shown = line == sizes.table[0] and reading == READINGS[0]  # the run whose rounds the report prints
            values = _noise(line, reading) | ({} if shown else {"evaluate.train": False})
            if reading.most is not None:
                values["federate.rounds"] = min(reading.most, sizes.rounds)
            ways[f"{line.sigma} {line.clip} {reading.name}"] = with_values(base, values)
    with averaging.known():
        made = list(learned(ways, folder / "table", what="table of five", progress=progress, workers=1).values())
    keys = [(line, reading.name) for line in sizes.table for reading in READINGS]
    smallest = min(sizes.table, key=lambda line: line.clip)
    seeds = {
        f"seed {seed}": with_values(
            base, _noise(smallest, FITS) | {"seed": seed, "federate.rounds": 1, "evaluate.train": False}
        )
        for seed in range(1, sizes.seeds + 1)
    }
    with averaging.known():
        first = learned(seeds, folder / "seeds", what="first rounds by seed", progress=progress, workers=1)
    short = {"federate.rounds": 1, "optimizer.final": 1.0, "evaluate.train": False}
    others = {name: with_values(base, short | dict(values)) for name, values in OTHERS.items()}
    return Private(
        sizes=sizes,
        others=learned(others, folder / "others", what="first rounds otherwise", progress=progress, workers=1),
        plain=made[0],
        runs=dict(zip(keys, made[1:], strict=True)),
        first=tuple(result.rounds[0].test_accuracy or 0.0 for result in first.values()),
    )


def _noise(line: Line, reading: Reading) -> dict[str, Any]:
    return averaging.settings(
        clip=line.clip,
        std=reading.std(line.sigma, line.clip),
        per_tensor=True,  # as in 000's code for the same exercise
        but_the_first=reading.but_the_first,
    )


def _base(sizes: Sizes, settings: Settings) -> dict[str, Any]:
    return {
        "mode": "plain",
        "seed": settings.seed,
        "gpu": settings.gpu,
        "data": {"name": sizes.data, "features": "none"}
        | ({} if settings.data_dir is None else {"folder": str(settings.data_dir)}),
        "model": {"name": sizes.model},
        "federate": {"rounds": sizes.rounds, "clients": sizes.clients, "weighting": "uniform"},
        "train": {"local_epochs": sizes.local_epochs},
        "server": {"lr": 1.0},
        "evaluate": {"train": True},
    }
