"""The report's table of five settings, trained with its author's settings, and with other readings of its words.

It says: clients are unchanged; the server divides by max(1, norm/C) while it adds up, and adds Gaussian noise before it
takes the mean. Its code is not in it. Its author's public repository has the settings (:mod:`.quoted`) and the server:
the sum begins as a copy of the first client's update and the loop that clips with the second, so that the first client
is not clipped, and the noise is one number per tensor, of standard deviation sigma C, added to all of its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.accounting.profile import epsilon_at
from tacit.runs.result import Result
from tacit.studies.plan import with_values
from tacit_labs.baselines import averaging
from tacit_labs.harness import epsilons
from tacit_labs.harness.experiment import Progress, Settings
from tacit_labs.harness.learning import by_round, learned, local_sgd
from tacit_labs.report_003 import quoted
from tacit_labs.report_003.quoted import Line

PLAIN = "plain"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One way to understand what the report did."""

    name: str
    short: str
    std: Callable[[float, float], float]  # of the noise, from sigma and C
    but_the_first: bool  # whether the first client's update is left unclipped
    alike: bool = False  # whether all weights of a tensor get the same number
    most: int | None = None  # rounds that are trained, where fewer than all show enough


READINGS = (
    Reading(
        name="the author's public code: first client unclipped, one number per tensor",
        short="public code",
        std=lambda sigma, clip: sigma * clip,
        but_the_first=True,
        alike=True,
    ),
    Reading(
        name="first client unclipped, noise sigma C per weight",
        short="not first, sigma C",
        std=lambda sigma, clip: sigma * clip,
        but_the_first=True,
        most=1,
    ),
    Reading(
        name="all clipped, noise sigma C per weight",
        short="all, sigma C",
        std=lambda sigma, clip: sigma * clip,
        but_the_first=False,
        most=1,
    ),
    Reading(
        name="all clipped, noise sigma per weight",
        short="all, sigma",
        std=lambda sigma, _: sigma,
        but_the_first=False,
        most=1,
    ),
)
CODE, WORDS = READINGS[0], READINGS[2]  # what ran, and what its words describe


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large everything is; the defaults are the full run's."""

    data: str = "mnist"
    model: str = "cnn"
    local_epochs: int = quoted.LOCAL_EPOCHS
    rounds: int = quoted.ROUNDS  # of the run that it prints
    elsewhere: int = 3  # of the other settings, of which the report has the first round
    clients: int = quoted.CLIENTS
    seeds: int = 10  # first rounds by the public code, each from other first weights
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
    first: Mapping[Line, tuple[float, ...]]  # test accuracy of the first round by seed, by the public code
    last_epochs: Sequence[float] = ()  # training loss by round, of the clients' last local epoch

    def curve(self) -> Result:
        """Return the run whose rounds the report prints."""
        return self.runs[self.sizes.table[0], CODE.name]

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
            "last_epochs_loss": list(self.last_epochs),
            "first_round_by_seed": [vars(line) | {"test_accuracy": list(found)} for line, found in self.first.items()],
        }


def measure(sizes: Sizes, settings: Settings, folder: Path, progress: Progress) -> Private:
    """Train everything that is not trained yet; in this process, where the readings' modes are known."""
    base = _base(sizes, settings)
    ways = {PLAIN: base}
    for line in sizes.table:
        for reading in READINGS:
            shown = line == sizes.table[0] and reading == CODE  # the run whose rounds the report prints
            values = noise(line, reading) | ({} if shown else {"evaluate.train": False})
            if not shown:
                values["federate.rounds"] = min(reading.most or sizes.elsewhere, sizes.rounds)
            ways[f"{line.sigma} {line.clip} {reading.name}"] = with_values(base, values)
    with averaging.known():
        made = list(learned(ways, folder / "table", what="table of five", progress=progress, workers=1).values())
    keys = [(line, reading.name) for line in sizes.table for reading in READINGS]
    one = {"federate.rounds": 1, "evaluate.train": False}
    seeds = {
        f"{line.sigma} {line.clip} seed {seed}": with_values(base, noise(line, CODE) | one | {"seed": seed})
        for line in sizes.table
        for seed in range(1, sizes.seeds + 1)
    }
    with averaging.known():
        firsts = learned(seeds, folder / "seeds", what="first rounds by seed", progress=progress, workers=1)
    found = [result.rounds[0].test_accuracy or 0.0 for result in firsts.values()]
    return Private(
        sizes=sizes,
        plain=made[0],
        runs=dict(zip(keys, made[1:], strict=True)),
        first={
            line: tuple(found[place * sizes.seeds : (place + 1) * sizes.seeds])
            for place, line in enumerate(sizes.table)
        },
    )


def noise(line: Line, reading: Reading) -> dict[str, Any]:
    """Return the settings of clip and noise of one line under one reading, by dotted keys."""
    return averaging.settings(
        clip=line.clip,
        std=reading.std(line.sigma, line.clip),
        per_tensor=True,
        but_the_first=reading.but_the_first,
        alike=reading.alike,
    )


def _base(sizes: Sizes, settings: Settings) -> dict[str, Any]:
    shared: dict[str, Any] = {
        "mode": "plain",
        "seed": settings.seed,
        "gpu": settings.gpu,
        "data": {"name": sizes.data, "features": "none"}
        | ({} if settings.data_dir is None else {"folder": str(settings.data_dir)}),
        "model": {"name": sizes.model},
        "federate": {"rounds": sizes.rounds, "clients": sizes.clients, "weighting": "uniform"},
        "server": {"lr": 1.0},
        "evaluate": {"train": True},
    }
    return with_values(shared, training(sizes.local_epochs))


def training(local_epochs: int) -> dict[str, Any]:
    """Return how clients train in the author's public code, by dotted keys."""
    return local_sgd(epochs=local_epochs, batch=quoted.BATCH, rate=quoted.RATE, momentum=quoted.MOMENTUM)
