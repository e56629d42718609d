"""What was measured of SignDS on LeNet, and what the document and its earlier edition say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tacit.runs.result import Result
from tacit_labs.harness.learning import upload
from tacit_labs.signds_001.document import DIMENSIONS

FEMNIST = "femnist"
PLAIN = "plain FedAvg"
DOCUMENTED = "SignDS, k 0.2, estimated step"

# 001_52447155210e6a81.txt; the lengths have no unit there
QUOTED_CLEAR, QUOTED_SENT = 266_084, 656
ROUNDS = 600
# An earlier edition of the same page (MindSpore Federated r2.0.0-alpha), not in the document
EARLIER_PLAIN, EARLIER_SIGNDS, EARLIER_ROUNDS = 0.69, 0.665, 200
FLOAT_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Part:
    """A task that was run: the results of its ways, plain and documented among them."""

    name: str
    title: str
    words: str
    results: Mapping[str, Result]

    @property
    def plain(self) -> Result:
        """The run without protection."""
        return self.results[PLAIN]

    @property
    def documented(self) -> Result:
        """The run with the document's settings."""
        return self.results[DOCUMENTED]


def accuracy_at(result: Result, number: int) -> float | None:
    """Return the test accuracy after a round, None where it was not looked at."""
    return next((record.test_accuracy for record in result.rounds if record.round == number), None)


def last_mean(result: Result, count: int = 10) -> float | None:
    """Return the mean of the last evaluations, None of few: a single one of a jagged curve is a matter of luck."""
    seen = [record.test_accuracy for record in result.rounds if record.test_accuracy is not None]
    return sum(seen[-count:]) / count if len(seen) > 2 * count else None


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What SignDS sends at the document's size."""

    share: float
    chosen: int
    sent: int  # bytes of Tacit's upload, with the header

    @property
    def integers(self) -> int:
        """Bytes of the coordinates alone as integers of four bytes."""
        return FLOAT_BYTES * self.chosen


def at_their_size() -> tuple[Planned, Planned]:
    """Return the uploads of LeNet with 66,404 parameters at k 0.01 and at k 0.2, epsilon 100, ratio 0.6."""
    from tacit.mechanisms import selection
    from tacit.protocols.reports import ReportCode
    from tacit.wire import BRIEF_BYTES

    def planned(share: float) -> Planned:
        chosen = selection.plan(dimensions=DIMENSIONS, share=share, epsilon=100.0, ratio=0.6).chosen
        size = ReportCode(dimensions=DIMENSIONS, chosen=chosen).size
        return Planned(share=share, chosen=chosen, sent=size + BRIEF_BYTES)

    return planned(0.01), planned(0.2)


def to_dict(parts: Sequence[Part]) -> dict[str, Any]:
    """Return everything as plain values."""
    few, many = at_their_size()
    return {
        "quoted": {
            "upload_clear": QUOTED_CLEAR,
            "upload_signds": QUOTED_SENT,
            "rounds": ROUNDS,
            "earlier_edition": {
                "accuracy_plain": EARLIER_PLAIN,
                "accuracy_signds": EARLIER_SIGNDS,
                "rounds": EARLIER_ROUNDS,
            },
        },
        "upload_at_66404_parameters": {"k 0.01": asdict(few), "k 0.2": asdict(many)},
        "tasks": {
            part.name: {
                "words": part.words,
                "ways": {name: _way(result) for name, result in part.results.items()},
            }
            for part in parts
        },
    }


def _way(result: Result) -> dict[str, Any]:
    return {
        "accuracy": result.test_accuracy,
        "accuracy_of_the_last_ten": last_mean(result),
        "accuracy_at_round_200": accuracy_at(result, EARLIER_ROUNDS),
        "loss": result.test_loss,
        "parameters": result.parameters,
        "clients": result.clients,
        "bytes_up_per_client_and_round": upload(result),
        "epsilon": None if result.privacy is None else result.privacy.epsilon,
        "delta": None if result.privacy is None else result.privacy.delta,
        "curve": [
            {"round": r.round, "accuracy": r.test_accuracy, "loss": r.test_loss}
            for r in result.rounds
            if r.test_accuracy is not None
        ],
    }
