"""The table of nine: NbAFL on FEMNIST, epsilon 10, 50 and 100 by c = 3, 2 and 1, and what FederatedScope had."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Compat = Literal["federatedscope", "paper"]

EPSILONS = (10.0, 50.0, 100.0)
CONSTANTS = (3.0, 2.0, 1.0)
COMPATS: tuple[Compat, ...] = ("federatedscope", "paper")
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
BASE: dict[str, Any] = {  # examples/nbafl-femnist/table.yaml
    "mode": "nbafl",
    "data": {"name": "femnist", "split": "natural"},
    "model": {"name": "cnn"},
    "federate": {"rounds": 20},
    "train": {"batch_size": 16, "local_epochs": 5},
    "optimizer": {"lr": 0.05, "momentum": 0.5, "final": 0.5, "grad_clip": 1.0},
    "evaluate": {"every": 5, "train": False},
    "nbafl": {"mu": 0.01, "constant": 1.0, "w_clip": 8.0, "epsilon": 100.0, "compat": "federatedscope"},
}
PLAIN = "plain"


@dataclass(frozen=True, kw_only=True)
class Point:
    """One cell of the table, with one of the two conventions for the noise's scale."""

    compat: Compat
    epsilon: float
    constant: float  # c

    @property
    def name(self) -> str:
        """Return a name for files and rows."""
        return f"{self.compat}-{self.epsilon:g}-{self.constant:g}"

    def settings(self) -> dict[str, Any]:
        """Return the whole job."""
        job = copy.deepcopy(BASE)
        job["nbafl"] |= {"compat": self.compat, "epsilon": self.epsilon, "constant": self.constant}
        return job


def points(compats: Sequence[Compat] = COMPATS) -> Iterator[Point]:
    """Yield the cells, in the order of the original's table."""
    for compat in compats:
        for epsilon in EPSILONS:
            for constant in CONSTANTS:
                yield Point(compat=compat, epsilon=epsilon, constant=constant)


def plain_settings() -> dict[str, Any]:
    """Return the job without noise and clip: FedAvg with the same training, each client counting as one."""
    job = {key: value for key, value in copy.deepcopy(BASE).items() if key not in ("nbafl", "mode")}
    job["federate"]["weighting"] = "uniform"
    return job | {"mode": "plain", "server": {"lr": 1.0}}
