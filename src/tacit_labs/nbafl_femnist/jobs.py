"""The table of nine: FederatedScope's NbAFL on FEMNIST, epsilon 10, 50 and 100 by c = 3, 2 and 1, and what it had."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

EPSILONS = (10.0, 50.0, 100.0)
CONSTANTS = (3.0, 2.0, 1.0)
DELTAS = {3.0: "0.01", 2.0: "0.17", 1.0: "0.76"}  # as the original rounds them
ORIGINAL = {  # test accuracy by (epsilon, c): the evaluation in FederatedScope's documentation of differential privacy
    (10.0, 3.0): 0.1173,
    (10.0, 2.0): 0.2482,
    (10.0, 1.0): 0.4171,
    (50.0, 3.0): 0.5485,
    (50.0, 2.0): 0.6798,
    (50.0, 1.0): 0.8058,
    (100.0, 3.0): 0.7480,
    (100.0, 2.0): 0.8039,
    (100.0, 1.0): 0.8058,
}
CLIP = 0.1  # w_clip of the command
BASE: dict[str, Any] = {  # examples/nbafl-femnist/table.yaml
    "mode": "nbafl",
    "data": {"name": "femnist", "split": "natural"},
    "model": {"name": "lenet"},
    "federate": {"rounds": 300, "share": 0.2},
    "train": {"batch_size": 10, "local_epochs": 1},
    "optimizer": {"lr": 0.05, "grad_clip": 5.0},
    "evaluate": {"every": 10, "train": False},
    "nbafl": {"mu": 0.01, "constant": 1.0, "w_clip": CLIP, "epsilon": 10.0, "compat": "federatedscope"},
}
PLAIN = "plain"
CLIPPED = "clip without noise"
WIDER = "twice the writers per round"
_QUIET = 1e6  # an epsilon that leaves no noise worth the name


@dataclass(frozen=True, kw_only=True)
class Level:
    """One strength of the noise, which is in proportion to c / epsilon; several cells may have the same."""

    epsilon: float
    constant: float  # c

    @property
    def ratio(self) -> float:
        """Return c / epsilon, to the digits that cells are told apart by."""
        return round(self.constant / self.epsilon, 9)

    @property
    def name(self) -> str:
        """Return a name for files and rows."""
        return f"c/epsilon {self.ratio:g}"

    def settings(self) -> dict[str, Any]:
        """Return the whole job."""
        job = copy.deepcopy(BASE)
        job["nbafl"] |= {"epsilon": self.epsilon, "constant": self.constant}
        return job

    def halved(self) -> Level:
        """Return what the cell has by FederatedScope's code of today, which lacks its documentation's factor 2."""
        return Level(epsilon=self.epsilon, constant=self.constant / 2.0)


def cells() -> Iterator[Level]:
    """Yield the nine, in the order of the original's table."""
    for epsilon in EPSILONS:
        for constant in CONSTANTS:
            yield Level(epsilon=epsilon, constant=constant)


def jobs(*, whole: bool) -> dict[str, dict[str, Any]]:
    """Return every job by its name: plain averaging, the clip alone, and each strength of noise once.

    The ``whole`` has what is missing to tell why ours differ: the noise of FederatedScope's code, and one cell with
    twice the writers per round.

    >>> len(jobs(whole=False)), len(jobs(whole=True))
    (10, 15)
    """
    quiet = Level(epsilon=_QUIET, constant=1.0).settings()
    found = {PLAIN: plain_settings(), CLIPPED: quiet}
    for cell in cells():
        found.setdefault(cell.name, cell.settings())
    for cell in cells() if whole else ():
        found.setdefault(cell.halved().name, cell.halved().settings())
    if whole:
        found[WIDER] = Level(epsilon=10.0, constant=1.0).settings()
        found[WIDER]["federate"]["share"] *= 2
    return found


def plain_settings() -> dict[str, Any]:
    """Return the job without noise and clip: FedAvg with the same training."""
    job = {key: value for key, value in copy.deepcopy(BASE).items() if key not in ("nbafl", "mode")}
    job["optimizer"] |= {"momentum": 0.0, "schedule": "constant", "mu": BASE["nbafl"]["mu"]}
    return job | {"mode": "plain", "server": {"lr": 1.0}}
