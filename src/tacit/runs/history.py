"""A run read back from its folder, finished or not: what its report is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tacit.federated.plan import Plan
from tacit.runs import config as configuration
from tacit.runs import journal
from tacit.runs.config import RunConfig
from tacit.runs.folder import CONFIG, must_have_begun, records_of
from tacit.runs.levels import Level, levels_of
from tacit.runs.modes import plan_of
from tacit.runs.progress import result_of
from tacit.runs.result import Result, RoundRecord
from tacit.runs.start import GIVEN

Status = Literal["finished", "stopped", "unfinished"]


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
    config: RunConfig
    plan: Plan
    status: Status
    reason: str  # why it stopped or what to do, where it did not finish
    result: Result | None
    start: dict[str, Any]  # the journal's first record; old ones say less
    resumes: tuple[dict[str, Any], ...]
    rounds: tuple[RoundRecord, ...]
    participation: tuple[Participation, ...]
    failures: tuple[Failure, ...]
    notes: tuple[str, ...]
    secrets: tuple[str, ...]  # what the server alone may know, because it tells who took part
    levels: tuple[Level, ...]

    @property
    def alone(self) -> bool:
        """Whether it is one data holder without a federation."""
        return self.config.engine == "alone"

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return self.config.federate.clients or 1

    @property
    def own_data(self) -> bool:
        """Whether the data are a user's own, and not one of the public data sets."""
        return self.start.get("dataset") == GIVEN

    @property
    def secret_cohort(self) -> bool:
        """Whether nobody may know who took part in a round, nor how many."""
        return self.plan.cohorts_hidden


def read(folder: Path) -> History:
    """Read the run in ``folder``; what is there may be the whole of it or a part."""
    must_have_begun(folder)
    config = configuration.from_mapping(configuration.from_yaml(folder / CONFIG))
    records = list(records_of(folder))
    result = result_of(folder)
    start = _first(records, "start")
    rounds = result.rounds if result is not None else _rounds(records)
    plan = plan_of(config, config.federate.clients or 1)
    status, reason = _status(records, result)
    return History(
        name=folder.resolve().name,
        config=config,
        plan=plan,
        status=status,
        reason=reason,
        result=result,
        start=start,
        resumes=tuple(record for record in records if record["type"] == "resume"),
        rounds=rounds,
        participation=tuple(_participation(records, len(rounds), config.federate.clients or 1)),
        failures=tuple(
            Failure(round_number=record["round"], attempt=record["attempt"] + 1, reason=record["reason"])
            for record in records
            if record["type"] == "failed"
        ),
        notes=(result.notes if result is not None else ())
        + tuple(f"Round {record['round']}: {record['text']}" for record in records if record["type"] == "note"),
        secrets=tuple(f"Round {record['round']}: {record['text']}" for record in records if record["type"] == "secret"),
        levels=tuple(levels_of(folder, config, plan, records, start, rounds, result)),
    )


def _rounds(records: Sequence[journal.Record]) -> tuple[RoundRecord, ...]:
    """Return the rounds of the journal; of a round that is there twice, the later counts."""
    by_number = {}
    for record in records:
        if record["type"] == "round":
            told = RoundRecord.of(record)
            by_number[told.round] = told
    return tuple(by_number[number] for number in sorted(by_number))


def _first(records: Sequence[journal.Record], kind: str) -> dict[str, Any]:
    return next((record for record in records if record["type"] == kind), {})


def _status(records: Sequence[journal.Record], result: Result | None) -> tuple[Status, str]:
    """Return how far the run got, and why no further."""
    if result is not None:
        return "finished", ""
    go_on = "`tacit resume` goes on with it."
    last = [record for record in records if record["type"] in ("start", "resume", "round", "stopped")][-1:]
    if last and last[0]["type"] == "stopped":
        return "stopped", f"{last[0]['reason']} {go_on}"
    return "unfinished", f"It is still running, or it was ended from outside. {go_on}"


def _participation(records: Sequence[journal.Record], rounds: int, clients: int) -> list[Participation]:
    """Return who took part in each round: the cohort of its last try, less those who did not answer."""
    asked: dict[int, tuple[int, ...] | None] = {}
    dropped: dict[int, tuple[int, ...] | None] = {}
    for record in records:
        if record["type"] == "attempt":
            told = record.get("asked")
            asked[record["round"]] = None if told is None else tuple(range(clients) if told == "all" else told)
        elif record["type"] == "round":
            dropped[record["round"]] = None if record.get("dropped") is None else tuple(record["dropped"])
    return [
        Participation(round_number=number, asked=asked.get(number), dropped=dropped.get(number))
        for number in range(1, rounds + 1)
    ]
