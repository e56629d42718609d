"""What was measured of NbAFL on FEMNIST: a row per strength of the noise, and plain averaging beside."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tacit.accounting import profile
from tacit.accounting.events import to_json
from tacit.runs.result import Result
from tacit_labs.nbafl_femnist.jobs import BASE, CLIP, CLIPPED, PLAIN, WIDER, Level


@dataclass(frozen=True, kw_only=True)
class Row:
    """The accuracies of several seeds after the last round, and the first one's curve and costs."""

    name: str
    accuracy: Sequence[float]
    best: Sequence[float]  # of all tested rounds
    rounds: int
    clients: int
    per_round: int
    parameters: int
    bytes_up: float  # per client and round
    epsilon: float | None  # that holds; None where nothing is claimed
    delta: float | None
    curve: Sequence[tuple[int, float]]  # the first seed's test accuracy, by round
    seconds: float
    device: str

    @property
    def mean(self) -> float:
        """The mean accuracy of all seeds."""
        return statistics.mean(self.accuracy)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self) | {"mean": self.mean, "epsilon": to_json(self.epsilon)}


def row(name: str, results: Sequence[Result]) -> Row:
    """Sum up the runs of a job."""
    first = results[0]
    curves = [
        [(record.round, record.test_accuracy) for record in result.rounds if record.test_accuracy is not None]
        for result in results
    ]
    return Row(
        name=name,
        accuracy=[result.test_accuracy or 0.0 for result in results],
        best=[max(accuracy for _, accuracy in curve) for curve in curves],
        rounds=len(first.rounds),
        clients=first.clients,
        per_round=first.per_round,
        parameters=first.parameters,
        bytes_up=first.rounds[-1].bytes_up / first.rounds[-1].senders,
        epsilon=None if first.privacy is None else first.privacy.epsilon,
        delta=None if first.privacy is None else first.privacy.delta,
        curve=curves[0],
        seconds=first.seconds,
        device=first.device,
    )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The rows by name, and the circumstances that the words need."""

    rows: Mapping[str, Row]
    model: str
    seeds: Sequence[int]
    sizes: Sequence[int]  # images of each writer

    @property
    def plain(self) -> Row:
        """The run without noise and clip."""
        return self.rows[PLAIN]

    @property
    def clipped(self) -> Row:
        """The run with FederatedScope's clip alone."""
        return self.rows[CLIPPED]

    @property
    def wider(self) -> Row | None:
        """The run with twice the writers per round, at epsilon 10 and c = 1; not in quick runs."""
        return self.rows.get(WIDER)

    def mean(self, level: Level) -> float:
        """Return the accuracy at a strength of noise."""
        return self.rows[level.name].mean

    def maybe(self, level: Level) -> float | None:
        """Return the accuracy at a strength of noise, where it was run."""
        return self.mean(level) if level.name in self.rows else None

    def up(self, level: Level) -> float:
        """Return the standard deviation of the noise of the largest writer, who has the least."""
        rounds: int = BASE["federate"]["rounds"]
        return 2 * CLIP * rounds * level.ratio / max(self.sizes)

    def if_clipped(self, level: Level, delta: float = 1e-5) -> float:
        """Return the epsilon of one message that would hold if clients clipped each coordinate as the server does.

        Two such weights may be 2 C sqrt(d) apart.
        """
        apart = 2 * CLIP * math.sqrt(self.plain.parameters)
        return profile.epsilon_at(delta, apart / self.up(level))
