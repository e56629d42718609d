"""The journal: what happened in a run, one JSON line per record, written ahead and readable after a crash at any byte.

=========  =========================================================================
start      how the run began: its key, data and model, when and where
attempt    a try of a round is about to be sent: what it costs and whom it asks
round      a round is done: its numbers
failed     a try failed, and why; it stays charged
note       what people should know of a round
secret     the same, for the server alone: it would tell who took part
audit      what canaries found, of a run that had some
stopped    the run stopped before its end, and why
resume     it went on
end        it is complete
=========  =========================================================================

What is there is checked. Older journals say less; kinds and fields of a later version are left out.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PlainValidator, TypeAdapter, ValidationError

from tacit import foreign, wire
from tacit.accounting.events import from_json, to_json
from tacit.accounting.ledger import Charge
from tacit.errors import ConfigError, RunError, WireError
from tacit.federated.examples import ExampleCharge
from tacit.federated.plan import Plan, Poisson
from tacit.flow import ClientId, Stage, Traffic
from tacit.mechanisms.mechanism import Mechanism
from tacit.runs import remarks
from tacit.runs.result import RoundRecord
from tacit.storage import GrowingFile, Lock, cannot_read, whole_lines

_EPSILONS = ("epsilon", "example_epsilon")  # of a round
_MOST_NAMED = 1_000  # clients of a round
_LONGEST = 1 << 26  # bytes of a line, which may name every client of a round


def _charge(value: Any) -> Charge | None:
    return None if value is None or value == {} else _valued(Charge.from_dict, value)


def _example_charges(value: Any) -> tuple[ExampleCharge, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise ValueError(f"expected a list of charges, got {value!r:.60}")  # noqa: TRY004 - what validators raise
    return tuple(_valued(ExampleCharge.from_dict, group) for group in value)


def _valued(read: Any, value: Any) -> Any:
    try:
        return read(value)
    except ConfigError as error:
        raise ValueError(str(error)) from error


Natural = Annotated[int, Field(ge=0, lt=1 << 63, strict=True)]
Clients = tuple[Natural, ...]
Epsilon = Annotated[Annotated[float, Field(ge=0, strict=True)] | None, BeforeValidator(from_json)]
Truth = Annotated[bool, Field(strict=True)]
Words = Annotated[str, BeforeValidator(str)]


@dataclass(frozen=True, kw_only=True)
class Record:
    """One line; a field that is None is left out of it, unless it has to be given."""

    kind: ClassVar[str]
    __pydantic_config__ = ConfigDict(extra="ignore")

    def to_dict(self) -> dict[str, Any]:
        """Return the line as plain values."""
        told = {part.name: getattr(self, part.name) for part in fields(self)}
        absent = [part.name for part in fields(self) if part.default is None and told[part.name] is None]
        return {"type": self.kind} | {name: _plain(value) for name, value in told.items() if name not in absent}


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Versions and machine, in words; empty is what the journal does not say."""

    tacit: Words = ""
    python: Words = ""
    torch: Words = ""
    numpy: Words = ""
    system: Words = ""
    cpu: Words = ""
    cores: int | str = ""
    gpu: Words = ""
    crypto: Words = ""
    kernels: Words = ""


@dataclass(frozen=True, kw_only=True)
class Split:
    """How many examples each client holds and, where that is told, of each class."""

    sizes: Clients
    counts: tuple[Annotated[Clients, Field(min_length=1)], ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Start(Record):
    """How a run began; None is what its journal does not say."""

    kind = "start"
    key: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]  # the root of its randomness
    simulation: Truth
    dataset: str
    examples: Natural
    time: str | None = None
    title: str = ""
    model: str | None = None
    parameters: Natural | None = None
    device: str = ""
    form: str = ""
    split: Split | None = None
    environment: Environment | None = None
    chance: Annotated[float, Field(gt=0, le=1)] | None = None  # the share of the test data's most frequent class
    test_examples: Natural | None = None
    client_names: tuple[str, ...] | None = None  # by their numbers, where they may be told
    shape: Clients | None = None  # of an example, as the model sees it
    outputs: Natural | None = None  # how many classes its model was built for
    classes: tuple[str, ...] | None = None  # their names, where they have any
    encoding: dict[str, Any] | None = None  # how the columns of a table became features
    deployed: Truth | None = None  # whether its clients are on other machines
    told: dict[str, Natural] | None = None  # how many examples those said to hold, by client


@dataclass(frozen=True, kw_only=True)
class Attempt(Record):
    """A try of a round, written before anything is sent; what it releases is charged here."""

    kind = "attempt"
    round: Natural
    attempt: Natural
    charge: Annotated[Charge | None, PlainValidator(_charge)]
    clients: Natural | None = None
    asked: Literal["all"] | Clients | None = None
    example_charges: Annotated[tuple[ExampleCharge, ...] | None, PlainValidator(_example_charges)] = None


@dataclass(frozen=True, kw_only=True)
class Round(Record):
    """A round that is done; its figures are those of a :class:`~tacit.runs.result.RoundRecord`, as they are in JSON."""

    kind = "round"
    round: Natural
    attempts: Natural = 1
    epsilon: Epsilon = None
    example_epsilon: Epsilon = None
    dropped: Clients | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, record: RoundRecord, *, dropped: tuple[int, ...] | None = None) -> Round:
        """Return the line of a round."""
        epsilons = {name: to_json(getattr(record, name)) for name in _EPSILONS}
        return cls(
            round=record.round,
            attempts=record.attempts,
            epsilon=record.epsilon,
            example_epsilon=record.example_epsilon,
            dropped=dropped,
            figures=asdict(record) | epsilons,
        )

    @property
    def record(self) -> RoundRecord:
        """The round; what lacks fields raises RunError."""
        return RoundRecord.of(self.figures)

    def to_dict(self) -> dict[str, Any]:
        """Return the line as plain values."""
        told = {"type": self.kind, "round": self.round, **self.figures}
        if self.epsilon is not None:
            told["epsilon"] = to_json(self.epsilon)
        return told if self.dropped is None else told | {"dropped": list(self.dropped)}


@dataclass(frozen=True, kw_only=True)
class Failed(Record):
    """A try that failed; it stays charged."""

    kind = "failed"
    round: Natural
    attempt: Natural
    reason: str


@dataclass(frozen=True, kw_only=True)
class Note(Record):
    """What people should know of a round."""

    kind = "note"
    round: Natural
    text: str


@dataclass(frozen=True, kw_only=True)
class Secret(Note):
    """What the server alone may know of a round, because it tells who took part."""

    kind = "secret"


@dataclass(frozen=True, kw_only=True)
class Audit(Record):
    """What canaries found; see :class:`~tacit.accounting.one_run.OneRun`."""

    kind = "audit"
    canaries: Natural
    inside: Natural
    epsilon: Epsilon
    delta: float
    bound: Epsilon
    final: Epsilon
    any_shape: Epsilon
    confidence: float
    refuted: Truth
    unit: str

    def to_dict(self) -> dict[str, Any]:
        """Return the line as plain values."""
        return {"type": self.kind} | {name: to_json(value) for name, value in asdict(self).items()}


@dataclass(frozen=True, kw_only=True)
class Resume(Record):
    """The run went on, and with what."""

    kind = "resume"
    time: str = ""
    environment: Environment | None = None


@dataclass(frozen=True, kw_only=True)
class Stopped(Record):
    """The run stopped before its end."""

    kind = "stopped"
    reason: str


@dataclass(frozen=True, kw_only=True)
class End(Record):
    """The run is complete: all of its rounds, or those that its budget allowed."""

    kind = "end"
    rounds: Natural | None = None


_KINDS = {kind.kind: kind for kind in (Start, Attempt, Round, Failed, Note, Secret, Audit, Resume, Stopped, End)}


@dataclass(frozen=True, kw_only=True)
class Disclosure:
    """What is told of a round: all of it, or only what was planned where epsilon does not cover more.

    In mode dp the noise hides who is in a sum. The true size of a cohort, who replied, the bytes they sent and, where
    sampling amplifies, the seconds it took would tell it all the same. So what is printed, stored, logged or sent is
    the expected cohort and its bytes, which are settings, and seconds of the whole run.
    """

    plan: Plan

    @property
    def sizes(self) -> bool:
        """Whether true sizes may be told, and who was asked and replied."""
        return not self.plan.cohorts_hidden

    @property
    def seconds_by_round(self) -> bool:
        """Whether the seconds of a single round may be told: not where they grow with a hidden size."""
        return self.sizes or self.plan.claim is None or not self.plan.claim.amplified

    def attempt(
        self,
        turn: wire.Turn,
        cohort: Sequence[ClientId],
        *,
        population: int,
        charge: Charge | None,
        example_charges: tuple[ExampleCharge, ...] | None,
    ) -> Attempt:
        """Return the record of a try: what it costs, and whom it asks, by name where they are not too many."""
        asked: Literal["all"] | tuple[int, ...] | None = "all" if len(cohort) == population else _named(cohort)
        return Attempt(
            round=turn.round_number,
            attempt=turn.attempt,
            charge=charge,
            clients=len(cohort) if self.sizes else None,
            asked=asked if self.sizes else None,
            example_charges=example_charges,
        )

    def round(self, record: RoundRecord, cohort: Sequence[ClientId], replied: Sequence[ClientId]) -> Round:
        """Return the record of a round that is done."""
        return Round.of(record, dropped=_named(sorted(set(cohort) - set(replied))) if self.sizes else None)

    def clients(self, cohort: Sequence[ClientId], replied: Sequence[ClientId]) -> dict[str, Any]:
        """Return a round's sizes for its record."""
        varies = isinstance(self.plan.sampler, Poisson)  # elsewhere how many are asked is a setting
        return {
            "clients_expected": self.plan.sampler.expected,
            "clients_asked": len(cohort) if self.sizes or not varies else None,
            "clients_replied": len(replied) if self.sizes else None,
        }

    def traffic(self, counted: Traffic, mechanism: Mechanism, parameters: int) -> dict[str, Any]:
        """Return a round's bytes for its record: what was counted, or what the expected cohort would send."""
        up, down = counted.bytes_up, counted.bytes_down
        if not self.sizes:
            expected = self.plan.sampler.expected
            up = round(expected * wire.vector_bytes(mechanism.length(parameters)))
            down = round(expected * wire.task_bytes(parameters, extras=len(mechanism.public_state())))
        return {"bytes_up": up, "bytes_down": down, "bytes_holders": counted.bytes_holders}

    def time(self, stages: Mapping[Stage, float], wall: float) -> dict[str, Any]:
        """Return a round's seconds for its record."""
        if not self.seconds_by_round:
            return {"seconds": {}, "wall_seconds": None}
        return {
            "seconds": {stage: round(seconds, 6) for stage, seconds in stages.items()},
            "wall_seconds": round(wall, 6),
        }

    def training_score(self, asked: bool | None) -> bool:
        """Return whether the model is scored on the clients' own data: by default where no privacy is claimed."""
        return not self.plan.private if asked is None else asked

    def notes(self, *, training_score: bool) -> tuple[str, ...]:
        """Return what a result has to say of its own numbers."""
        if not self.plan.private:
            return ()
        said = [remarks.ON_SECONDS]
        if not self.sizes:
            said.append(remarks.ON_COHORTS)
        if training_score:
            said.append(remarks.ON_TRAINING)
        return tuple(said)


class Journal:
    """Appends records; one process at a time, and only its owner may read it.

    A record is on disk when :meth:`append` returns. A line that a crash cut short is taken away when the journal is
    opened again, as if it had not been begun. After a failure of which nobody knows what it left on disk, nothing more
    is appended.
    """

    def __init__(self, path: Path) -> None:
        self._lock = Lock(lock_of(path))
        try:
            self._file = GrowingFile(path)
        except BaseException:
            self._lock.release()
            raise

    def append(self, record: Record) -> None:
        """Write one record and wait until it is on disk; a record that does not fit leaves nothing behind."""
        self._file.append(json.dumps(record.to_dict(), allow_nan=False).encode() + b"\n")

    def renew(self) -> None:
        """Bring all records to a new file and to disk; so goes on who does not know how the last session ended."""
        self._file.renew()

    def clear(self) -> None:
        """Begin anew without a record."""
        self._file.clear()

    def close(self) -> None:
        """Let go of the journal."""
        self._file.close()  # fails never
        self._lock.release()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def lock_of(path: Path) -> Path:
    """Return the file that says who is at a journal."""
    return path.with_name(f".{path.name}.lock")


def read(path: Path) -> Iterator[Record]:
    """Yield the records of a journal one by one; a last line that was cut short does not count."""
    try:
        with foreign.open_plain(path) as file:
            for number in itertools.count(1):
                line = file.readline(_LONGEST + 1)
                if not line.endswith(b"\n") and len(line) <= _LONGEST:
                    return
                try:
                    record = record_of(foreign.json_value(line, largest=_LONGEST))
                except WireError as error:
                    raise RunError(f"{path} is damaged in line {number}: {line[:60]!r} is not JSON. {error}") from error
                except ValueError as error:
                    raise RunError(f"{path} is damaged in line {number}: {error}.") from error
                if record is not None:
                    yield record
    except FileNotFoundError as error:
        raise RunError(f"Can't read {path}: {error.strerror}. Is {path.parent} the folder of a run?") from error
    except OSError as error:
        raise cannot_read(path, error, f"Is {path.parent} the folder of a run?") from error


def record_of(told: Any) -> Record | None:
    """Return the record that plain values are, or None where its kind is that of a later version.

    >>> record_of({"type": "stopped", "reason": "It was interrupted."})
    Stopped(reason='It was interrupted.')
    >>> record_of({"type": "stopped", "reason": 3})
    Traceback (most recent call last):
    ValueError: reason of a 'stopped' record: input should be a valid string
    """
    if not isinstance(told, Mapping) or not isinstance(told.get("type"), str):
        raise ValueError(f"expected a record with a type, got {told!r:.60}")  # noqa: TRY004 - as of a field
    kind = told["type"]
    if kind not in _KINDS:
        return None
    values = {name: value for name, value in told.items() if name != "type"}
    if kind == Round.kind:
        dropped = values.pop("dropped", None)
        whole = {name: values[name] for name in ("round", "attempts", *_EPSILONS) if name in values}
        values = whole | {"figures": values, "dropped": dropped}
    try:
        return _adapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        why = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
        raise ValueError(f"{where} of a {kind!r} record: {why[0].lower()}{why[1:]}") from error


def is_empty(path: Path) -> bool:
    """Return whether a journal has no whole record; False where there is no journal."""
    try:
        return whole_lines(path) == 0
    except FileNotFoundError:
        return False
    except OSError as error:
        raise cannot_read(path, error) from error


@functools.cache
def _adapter(kind: str) -> TypeAdapter[Record]:
    return TypeAdapter(_KINDS[kind])


def _named(clients: Sequence[ClientId]) -> tuple[ClientId, ...] | None:
    """Return the clients, or None where they are so many that the journal would be nothing but their names."""
    return tuple(clients) if len(clients) <= _MOST_NAMED else None


def _plain(value: Any) -> Any:
    """Return a field's value for JSON."""
    if isinstance(value, Charge | ExampleCharge):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Split):
        return {name: _plain(part) for name, part in vars(value).items() if part is not None}
    return asdict(value) if isinstance(value, Environment) else value
