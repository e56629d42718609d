"""The levels of a run's privacy, read back from its journal: what was promised, released and spent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.accounting.events import from_dict
from tacit.federated.plan import Claim, Plan, Privacy
from tacit.runs import journal
from tacit.runs.account import Account
from tacit.runs.example_account import ExampleAccount
from tacit.runs.progress import charges_of, example_charges_of
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


@dataclass(frozen=True, kw_only=True)
class _Charge:
    """A try of a round, and what it released."""

    round_number: int
    attempt: int  # from 0
    release: str


class Charges:
    """What the tries of a run released, to clients and to their examples; words that return are kept once."""

    def __init__(self) -> None:
        self.of_clients: list[_Charge] = []
        self.of_examples: list[_Charge] = []
        self._words: dict[str, str] = {}

    def add(self, record: journal.Record) -> None:
        """Take in the record of a try."""
        if record["charge"]:
            self.of_clients.append(self._charge(record, record["charge"]["event"]))
        if record.get("example_charges"):
            largest = max((group["event"] for group in record["example_charges"]), key=_rate)
            self.of_examples.append(self._charge(record, largest))

    def _charge(self, record: journal.Record, event: dict[str, Any]) -> _Charge:
        key = json.dumps(event)
        if key not in self._words:
            self._words[key] = describe(from_dict(event))
        return _Charge(round_number=record["round"], attempt=record["attempt"], release=self._words[key])


def levels_of(
    folder: Path,
    plan: Plan,
    charges: Charges,
    sizes: Sequence[int] | None,
    rounds: tuple[RoundRecord, ...],
    result: Result | None,
) -> list[Level]:
    """Return each level that the run makes a claim about: clients, examples, or both."""
    levels = []
    if plan.claim is not None:
        epsilons = tuple(record.epsilon for record in rounds)
        levels.append(
            Level(
                privacy=result.privacy if result is not None else Account(plan.claim, charges_of(folder)).privacy(),
                budget=plan.claim.max_epsilon,
                epsilons=epsilons,
                releases=_releases(charges.of_clients, epsilons),
            )
        )
    claim = plan.example_claim
    if claim is not None:
        epsilons = tuple(record.example_epsilon for record in rounds)
        if result is None:
            privacy = _spent_by_examples(folder, plan, claim, sizes)
        else:
            privacy = result.example_privacy or result.privacy
        levels.append(
            Level(
                privacy=privacy,
                budget=claim.max_epsilon,
                epsilons=epsilons,
                releases=_releases(charges.of_examples, epsilons),
            )
        )
    return levels


def _rate(event: dict[str, Any]) -> float:
    inner = event.get("event", event)
    return float(inner.get("rate", 1.0))


def _releases(charged: Sequence[_Charge], epsilons: tuple[float | None, ...]) -> tuple[Release, ...]:
    """Return the charges; the last try of each finished round has what was spent after it."""
    finished = range(1, len(epsilons) + 1)  # releases of earlier fits stand as round 0
    last = {charge.round_number: place for place, charge in enumerate(charged) if charge.round_number in finished}
    return tuple(
        Release(
            round_number=charge.round_number,
            attempt=charge.attempt + 1,
            release=charge.release,
            epsilon=epsilons[charge.round_number - 1] if last.get(charge.round_number) == place else None,
        )
        for place, charge in enumerate(charged)
    )


def _spent_by_examples(folder: Path, plan: Plan, claim: Claim, sizes: Sequence[int] | None) -> Privacy:
    """Return what an unfinished run's examples have spent."""
    assert plan.examples is not None
    if sizes is not None:
        examples = plan.examples.fitted(sizes)
        return ExampleAccount(examples, claim, example_charges_of(folder)).privacy()
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
