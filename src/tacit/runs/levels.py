"""The levels of a run's privacy, read back from its journal: what was promised, released and spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.accounting.events import from_dict
from tacit.federated.plan import Claim, Plan, Privacy
from tacit.runs import journal
from tacit.runs.account import Account
from tacit.runs.config import RunConfig
from tacit.runs.examples import ExampleAccount, claim_of
from tacit.runs.result import Result, RoundRecord
from tacit.runs.statement import describe, statement


@dataclass(frozen=True, kw_only=True)
class Release:
    """One charge: a try of a round."""

    round_number: int
    attempt: int  # from 1
    release: str
    epsilon: float | None  # spent after the round; None where the round was tried again, or epsilon is infinite


@dataclass(frozen=True, kw_only=True)
class Level:
    """What a run promises about clients or about examples, and what it spent."""

    privacy: Privacy
    budget: float | None
    epsilons: tuple[float | None, ...]  # by round
    releases: tuple[Release, ...]


def levels_of(
    folder: Path,
    config: RunConfig,
    plan: Plan,
    records: Sequence[journal.Record],
    start: dict[str, Any],
    rounds: tuple[RoundRecord, ...],
    result: Result | None,
) -> list[Level]:
    """Return each level that the run makes a claim about: clients, examples, or both."""
    attempts = [record for record in records if record["type"] == "attempt"]
    levels = []
    if plan.claim is not None:
        charged = [(record, record["charge"]["event"]) for record in attempts if record["charge"]]
        epsilons = tuple(record.epsilon for record in rounds)
        levels.append(
            Level(
                privacy=result.privacy if result is not None else _spent(plan.claim, charged),
                budget=plan.claim.max_epsilon,
                epsilons=epsilons,
                releases=_releases(charged, epsilons),
            )
        )
    if plan.examples is not None:
        claim = claim_of(
            plan.examples, beside=None if plan.claim is None else plan.claim.unit, alone=config.engine == "alone"
        )
        charged = [
            (record, max((group["event"] for group in record["example_charges"]), key=_rate))
            for record in attempts
            if record.get("example_charges")
        ]
        epsilons = tuple(record.example_epsilon for record in rounds)
        if result is None:
            privacy = _spent_by_examples(
                folder, plan, claim, start, [record["example_charges"] for record, _ in charged]
            )
        else:
            privacy = result.example_privacy or result.privacy
        levels.append(
            Level(
                privacy=privacy,
                budget=claim.max_epsilon,
                epsilons=epsilons,
                releases=_releases(charged, epsilons),
            )
        )
    return levels


def _rate(event: dict[str, Any]) -> float:
    inner = event.get("event", event)
    return float(inner.get("rate", 1.0))


def _releases(
    charged: Sequence[tuple[journal.Record, dict[str, Any]]], epsilons: tuple[float | None, ...]
) -> tuple[Release, ...]:
    """Return the charges; the last try of each finished round has what was spent after it."""
    finished = range(1, len(epsilons) + 1)  # releases of earlier fits stand as round 0
    last = {record["round"]: place for place, (record, _) in enumerate(charged) if record["round"] in finished}
    return tuple(
        Release(
            round_number=record["round"],
            attempt=record["attempt"] + 1,
            release=describe(from_dict(event)),
            epsilon=epsilons[record["round"] - 1] if last.get(record["round"]) == place else None,
        )
        for place, (record, event) in enumerate(charged)
    )


def _spent(claim: Claim, charged: Sequence[tuple[journal.Record, dict[str, Any]]]) -> Privacy:
    """Return what an unfinished run has spent, its tries included."""
    return Account(claim, [record["charge"] for record, _ in charged]).privacy()


def _spent_by_examples(
    folder: Path, plan: Plan, claim: Claim, start: dict[str, Any], charges: Sequence[Sequence[dict[str, Any]]]
) -> Privacy:
    """Return what an unfinished run's examples have spent."""
    assert plan.examples is not None
    if "split" in start:
        examples = plan.examples.fitted(start["split"]["sizes"])
        return ExampleAccount(examples, claim, charges).privacy()
    told = statement(folder)  # a journal without the clients' sizes: from the charges alone
    lines, accountant = (
        (told.lines, told.accountant) if plan.claim is None else (told.example_lines, told.example_accountant)
    )
    return Privacy(
        epsilon=lines[-1].epsilon if lines else 0.0,
        delta=claim.delta,
        unit=claim.unit,
        neighbours=claim.neighbours,
        accountant=accountant,
        against=claim.against,
        notes=claim.notes,
    )
