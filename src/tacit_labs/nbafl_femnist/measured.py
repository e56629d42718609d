"""What was measured of NbAFL on FEMNIST: a row per cell of the table, and plain FedAvg beside."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tacit.accounting import profile
from tacit.mechanisms.nbafl import nominal_delta
from tacit.runs.result import Result
from tacit_labs.nbafl_femnist.jobs import PLAIN, Compat, Point


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What NbAFL claims for a cell, and what that is worth."""

    nominal_epsilon: float
    nominal_delta: float
    true_delta_of_one_exposure: float  # if the sensitivity were 2C/m, as the claim has it
    certified_delta_at_nominal_epsilon: float | None


@dataclass(frozen=True, kw_only=True)
class Row:
    """The accuracies of several seeds, and the first one's guarantee and costs."""

    name: str
    accuracy: Sequence[float]
    mean: float
    rounds: int
    clients: int
    parameters: int
    bytes_up: float  # per client and round
    epsilon: float | None  # certified; None without noise
    delta: float | None
    accountant: str | None
    curve: Sequence[tuple[int, float]]  # the first seed's test accuracy, by round
    seconds: float
    device: str
    claim: Claim | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        values = asdict(self)
        claim = values.pop("claim") or {}
        upload, curve = values.pop("bytes_up"), values.pop("curve")
        return values | {"bytes_up_a_client_a_round": upload, "curve_of_seed_1": curve} | claim


def row(name: str, results: Sequence[Result], point: Point | None = None) -> Row:
    """Sum up the runs of a cell, or of plain FedAvg where there is no ``point``."""
    first = results[0]
    accuracies = [result.test_accuracy or 0.0 for result in results]
    claim = None
    if point is not None:
        claim = Claim(
            nominal_epsilon=point.epsilon,
            nominal_delta=nominal_delta(point.constant),
            true_delta_of_one_exposure=profile.delta_at(point.epsilon, point.epsilon / point.constant),
            certified_delta_at_nominal_epsilon=first.claimed.true_delta,
        )
    return Row(
        name=name,
        accuracy=accuracies,
        mean=statistics.mean(accuracies),
        rounds=len(first.rounds),
        clients=first.clients,
        parameters=first.parameters,
        bytes_up=first.rounds[-1].bytes_up / first.rounds[-1].senders,
        epsilon=None if first.privacy is None else first.privacy.epsilon,
        delta=None if first.privacy is None else first.privacy.delta,
        accountant=None if first.privacy is None else first.privacy.accountant,
        curve=[(record.round, record.test_accuracy) for record in first.rounds if record.test_accuracy is not None],
        seconds=first.seconds,
        device=first.device,
        claim=claim,
    )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The rows of the table by name, and the circumstances that the words need."""

    rows: Mapping[str, Row]
    compats: Sequence[Compat]
    seeds: Sequence[int]
    smallest: int  # images of a writer
    largest: int
    clip: float

    @property
    def plain(self) -> Row:
        """The run without noise and clip."""
        return self.rows[PLAIN]

    def mean(self, point: Point) -> float:
        """Return the accuracy of a cell."""
        return self.rows[point.name].mean

    def certified(self, point: Point) -> float:
        """Return the epsilon that holds for a cell."""
        epsilon = self.rows[point.name].epsilon
        assert epsilon is not None, "every cell has noise"
        return epsilon

    def claim(self, point: Point) -> Claim:
        """Return what is claimed for a cell."""
        claim = self.rows[point.name].claim
        assert claim is not None, "every cell is of NbAFL"
        return claim
