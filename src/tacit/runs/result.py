"""What a run gave; ``result.json`` is this, field by field. Fields are only ever added."""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tacit import foreign
from tacit.errors import RunError, WireError
from tacit.federated.plan import Privacy

_LARGEST = 1 << 30  # bytes


@dataclass(frozen=True, kw_only=True, slots=True)  # there may be a hundred thousand
class RoundRecord:
    """One round. Losses and accuracies are None where they were not measured.

    Where cohorts are hidden, because epsilon counts on nobody knowing them, who replied and a size that varies are
    None, bytes are those of the expected cohort, and where sampling amplifies there are no seconds: they grow with it.
    """

    round: int
    attempts: int  # 1, and one more for each retry
    train_loss: float | None
    test_loss: float | None
    test_accuracy: float | None
    clients_expected: float  # the mean size of a cohort, which is public
    clients_asked: int | None
    clients_replied: int | None
    bytes_up: int
    bytes_down: int
    epsilon: float | None  # spent up to and including this round
    seconds: dict[str, float]  # train, protect, aggregate, recover, evaluate
    wall_seconds: float | None
    bytes_holders: int = 0  # between the server and key holders that are no clients
    clipped: int | None = None  # numbers of updates that were clipped one by one, where that is counted
    example_epsilon: float | None = None  # the same for an example of the worst client, where clients run DP-SGD
    steps: int | None = None  # taken up to and including this round, where one data holder trains alone
    train_accuracy: float | None = None  # of the round's model on the clients' own data, with evaluate.train
    train_data_loss: float | None = None  # the same model's loss there; train_loss is the mean while they trained

    @property
    def senders(self) -> float:
        """Whose bytes ``bytes_up`` are: of those who replied, or of the expected cohort."""
        return self.clients_expected if self.clients_replied is None else self.clients_replied

    @property
    def receivers(self) -> float:
        """To whom ``bytes_down`` went: those who were asked, or the expected cohort."""
        return self.clients_expected if self.clients_asked is None else self.clients_asked

    @property
    def lasted(self) -> float:
        """The seconds of the round, in runs that tell them."""
        if self.wall_seconds is None:
            raise RunError(
                "The seconds of a single round are not told: they grow with its cohort, which epsilon counts on nobody "
                "knowing. Use those of the whole run, or set dp.amplification=false."
            )
        return self.wall_seconds

    @classmethod
    def of(cls, values: dict[str, Any]) -> RoundRecord:
        """Build from a journal's record; fields of a later version are left out. What is damaged raises RunError."""
        try:
            return _round().validate_json(json.dumps(values), strict=True)
        except ValidationError as error:
            raise RunError(
                f"The journal is damaged: the record of a round lacks fields, or has others "
                f"({' '.join(str(error).split())[:200]}). Restore it, or run anew with --force."
            ) from error


@dataclass(frozen=True, kw_only=True)
class Result:
    """A whole run."""

    version: str
    mode: str
    engine: str
    device: str
    dataset: str
    split: str
    model: str
    parameters: int
    clients: int
    per_round: int  # the mean with Poisson sampling
    seed: int | None
    simulation: bool
    form: str
    form_reason: str
    rounds: tuple[RoundRecord, ...]
    test_accuracy: float | None
    train_accuracy: float | None
    test_loss: float | None
    seconds: float
    setup_seconds: float
    bytes_up: int
    bytes_down: int
    privacy: Privacy
    sees: dict[str, str]  # who sees what: server, clients, outsider
    notes: tuple[str, ...]
    folder: str | None
    stage_seconds: dict[str, float]  # of all rounds together; ``other`` is what no stage was charged with
    example_privacy: Privacy | None = None  # beside ``privacy``, where that is about clients

    def to_dict(self) -> dict[str, Any]:
        """Return plain containers."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    def to_json(self) -> str:
        """Return ``result.json``."""
        return json.dumps(asdict(self), indent=2, allow_nan=False) + "\n"

    @classmethod
    def read(cls, path: Path) -> Result:
        """Read a ``result.json``; fields of a later version are left out. What is damaged raises RunError."""
        data = foreign.read_plain(path, largest=_LARGEST)
        try:
            foreign.json_object(data, largest=_LARGEST)  # refuses what the next parser takes: NaN, names given twice
            return _result().validate_json(data, strict=True)
        except (WireError, ValidationError) as error:
            raise RunError(
                f"{path} is damaged ({' '.join(str(error).split())[:200]}). Remove it; `tacit resume {path.parent}` "
                "then makes a new one."
            ) from error


@functools.cache
def _round() -> TypeAdapter[RoundRecord]:
    return TypeAdapter(RoundRecord)


@functools.cache
def _result() -> TypeAdapter[Result]:
    return TypeAdapter(Result)
