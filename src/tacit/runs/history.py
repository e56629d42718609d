"""A run read back from its folder, finished or not: what its report is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from tacit.config.resolved import Resolved
from tacit.federated.plan import Plan
from tacit.modes.catalogue import plan_of
from tacit.runs import journal
from tacit.runs.folder import config_of, must_have_begun, records_of
from tacit.runs.levels import Charges, Level, levels_of
from tacit.runs.progress import result_of
from tacit.runs.result import Result, RoundRecord
from tacit.runs.run import GIVEN

Status = Literal["finished", "stopped", "unfinished"]


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Versions and machine, in words; empty is what the journal does not say."""

    tacit: str = ""
    python: str = ""
    torch: str = ""
    numpy: str = ""
    system: str = ""
    cpu: str = ""
    cores: str = ""
    gpu: str = ""
    crypto: str = ""
    kernels: str = ""

    @classmethod
    def of(cls, record: journal.Record) -> Environment | None:
        """Return the environment that a record tells of."""
        told = record.get("environment")
        if told is None:
            return None
        return cls(**{part.name: str(told[part.name]) for part in fields(cls) if part.name in told})


@dataclass(frozen=True, kw_only=True)
class Split:
    """How many examples each client holds and, where that is told, of each class."""

    sizes: tuple[int, ...]
    counts: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Start:
    """How a run began; None is what its journal does not say."""

    dataset: str | None = None
    examples: int | None = None
    simulation: bool | None = None
    time: str | None = None
    model: str | None = None
    parameters: int | None = None
    device: str = ""
    form: str = ""
    split: Split | None = None
    environment: Environment | None = None

    @classmethod
    def of(cls, record: journal.Record) -> Start:
        """Return what the record of the start says; the key of the randomness stays in the journal."""
        split = record.get("split")
        if split is not None:
            counts = split.get("counts")
            split = Split(
                sizes=tuple(map(int, split["sizes"])),
                counts=None if counts is None else tuple(tuple(map(int, row)) for row in counts),
            )
        return cls(
            dataset=record.get("dataset"),
            examples=record.get("examples"),
            simulation=record.get("simulation"),
            time=record.get("time"),
            model=record.get("model"),
            parameters=record.get("parameters"),
            device=record.get("device", ""),
            form=record.get("form", ""),
            split=split,
            environment=Environment.of(record),
        )


@dataclass(frozen=True, kw_only=True)
class Resumption:
    """A time at which a run went on, and with what."""

    time: str
    environment: Environment | None


@dataclass(frozen=True, kw_only=True)
class Participation:
    """Who was asked in a round that was finished, and who never answered; None where the journal does not say."""

    round_number: int
    asked: tuple[int, ...] | None
    dropped: tuple[int, ...] | None


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A try of a round that failed."""

    round_number: int
    attempt: int  # from 1
    reason: str


@dataclass(frozen=True, kw_only=True)
class History:
    """A run as far as it got."""

    name: str
    config: Resolved
    plan: Plan
    status: Status
    reason: str  # why it stopped or what to do, where it did not finish
    result: Result | None
    start: Start
    resumes: tuple[Resumption, ...]
    rounds: tuple[RoundRecord, ...]
    participation: tuple[Participation, ...]
    failures: tuple[Failure, ...]
    notes: tuple[str, ...]
    secrets: tuple[str, ...]  # what the server alone may know, because it tells who took part
    levels: tuple[Level, ...]

    @property
    def alone(self) -> bool:
        """Whether it is one data holder without a federation."""
        return self.config.single_holder

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return self.config.federate.clients or 1

    @property
    def own_data(self) -> bool:
        """Whether the data are a user's own, and not one of the public data sets."""
        return self.start.dataset == GIVEN

    @property
    def secret_cohort(self) -> bool:
        """Whether nobody may know who took part in a round, nor how many."""
        return self.plan.cohorts_hidden


def read(folder: Path) -> History:
    """Read the run in ``folder``; what is there may be the whole of it or a part."""
    must_have_begun(folder)
    config = config_of(folder)
    result = result_of(folder)
    plan = plan_of(config, config.federate.clients or 1)
    told = _Told(clients=config.federate.clients or 1, rounds=result is None, levels=Charges())
    for record in records_of(folder):
        told.add(record)
    rounds = result.rounds if result is not None else told.finished()
    start = told.start or Start()
    sizes = None if start.split is None else start.split.sizes
    status, reason = _status(told.last, result)
    return History(
        name=folder.resolve().name,
        config=config,
        plan=plan,
        status=status,
        reason=reason,
        result=result,
        start=start,
        resumes=tuple(told.resumes),
        rounds=rounds,
        participation=tuple(told.participation(len(rounds))),
        failures=tuple(told.failures),
        notes=(result.notes if result is not None else ()) + tuple(told.notes),
        secrets=tuple(told.secrets),
        levels=tuple(levels_of(folder, plan, told.levels, sizes, rounds, result)),
    )


@dataclass(kw_only=True)
class _Told:
    """What the records of a journal tell, one after the other; what they have in common is kept once."""

    clients: int
    rounds: bool  # whether rounds are wanted; a result has them too
    levels: Charges
    start: Start | None = None
    last: journal.Record = field(default_factory=dict)
    resumes: list[Resumption] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    _rounds: dict[int, RoundRecord] = field(default_factory=dict)
    _asked: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _dropped: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._everyone = tuple(range(self.clients))

    def add(self, record: journal.Record) -> None:
        """Take in one record."""
        kind = record["type"]
        if kind in ("start", "resume", "round", "stopped"):
            self.last = record
        if kind == "start":
            self.start = self.start or Start.of(record)
        elif kind == "resume":
            self.resumes.append(Resumption(time=record.get("time", ""), environment=Environment.of(record)))
        elif kind == "attempt":
            self.levels.add(record)
            _put(self._asked, record["round"], self._everyone if record.get("asked") == "all" else record.get("asked"))
        elif kind == "round":
            _put(self._dropped, record["round"], record.get("dropped"))
            if self.rounds:  # of a round that is there twice, the later counts
                self._rounds[record["round"]] = RoundRecord.of(record)
        elif kind == "failed":
            self.failures.append(
                Failure(round_number=record["round"], attempt=record["attempt"] + 1, reason=record["reason"])
            )
        elif kind in ("note", "secret"):
            (self.notes if kind == "note" else self.secrets).append(f"Round {record['round']}: {record['text']}")

    def finished(self) -> tuple[RoundRecord, ...]:
        """Return the rounds in their order."""
        return tuple(self._rounds[number] for number in sorted(self._rounds))

    def participation(self, rounds: int) -> list[Participation]:
        """Return who took part in each round: the cohort of its last try, less those who did not answer."""
        return [
            Participation(round_number=number, asked=self._asked.get(number), dropped=self._dropped.get(number))
            for number in range(1, rounds + 1)
        ]


def _put(told: dict[int, tuple[int, ...]], number: int, clients: Sequence[int] | None) -> None:
    """Keep who is told of for a round; nobody knows where nobody is told of."""
    told.pop(number, None)
    if clients is not None:
        told[number] = tuple(clients)


def _status(last: journal.Record, result: Result | None) -> tuple[Status, str]:
    """Return how far the run got, and why no further."""
    if result is not None:
        return "finished", ""
    go_on = "`tacit resume` goes on with it."
    if last.get("type") == "stopped":
        return "stopped", f"{last['reason']} {go_on}"
    return "unfinished", f"It is still running, or it was ended from outside. {go_on}"
