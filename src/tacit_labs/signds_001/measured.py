"""What was measured of SignDS on LeNet, and what the original says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.runs.result import Result
from tacit_labs.harness.learning import upload

FEMNIST = "femnist"
PLAIN = "plain FedAvg"
EARLIER = "SignDS, k 0.01, fixed step"
DOCUMENTED = "SignDS, k 0.2, estimated step"
QUOTED_CLEAR, QUOTED_SENT = 266_084, 656  # MindSpore Federated's lengths of an upload
QUOTED_PLAIN, QUOTED_SIGNDS = 0.69, 0.665  # its accuracies, in the edition with k 0.01 and
QUOTED_ROUNDS = 200
DIMENSIONS = 66_404  # its LeNet: three channels, 62 classes


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
        """The run with the settings that are documented now."""
        return self.results[DOCUMENTED]


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What SignDS sends at the original's size."""

    share: float
    chosen: int
    sent: int  # bytes, with the header

    @property
    def integers(self) -> int:
        """Bytes of the coordinates alone as integers of four bytes."""
        return 4 * self.chosen


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
            "accuracy_plain": QUOTED_PLAIN,
            "accuracy_signds": QUOTED_SIGNDS,
        },
        "upload_at_66404_parameters": {"k 0.01": vars(few), "k 0.2": vars(many)},
        "tasks": {
            part.name: {
                "words": part.words,
                "ways": {
                    name: {
                        "accuracy": result.test_accuracy,
                        "loss": result.test_loss,
                        "parameters": result.parameters,
                        "clients": result.clients,
                        "bytes_up_a_client_a_round": upload(result),
                        "epsilon": result.privacy.epsilon,
                        "delta": result.privacy.delta,
                        "curve": [
                            {"round": r.round, "accuracy": r.test_accuracy, "loss": r.test_loss}
                            for r in result.rounds
                            if r.test_accuracy is not None
                        ],
                    }
                    for name, result in part.results.items()
                },
            }
            for part in parts
        },
    }
