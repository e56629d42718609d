"""A run read back from its folder, finished or not: what its report is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tacit.config.resolved import Resolved
from tacit.federated.plan import Plan, Privacy
from tacit.modes.catalogue import plan_of
from tacit.runs.account import Account, ExampleAccount, so_far
from tacit.runs.chance import Chance
from tacit.runs.folder import config_of, must_have_begun, records_of
from tacit.runs.journal import Attempt, Failed, Note, Record, Resume, Round, Secret, Split, Start, Stopped
from tacit.runs.ledger import LevelLedger, Levels, Line, must_claim, must_cover
from tacit.runs.progress import result_of
from tacit.runs.result import Result, RoundRecord
from tacit.runs.run import is_own

Status = Literal["finished", "stopped", "unfinished"]


@dataclass(frozen=True, kw_only=True)
class Level:
    """What a run promises about clients or about examples, and what it spent."""

    privacy: Privacy
    budget: float | None
    epsilons: tuple[float | None, ...]  # by round
    releases: tuple[Line, ...]  # a try that was repeated has no epsilon of its own


@dataclass(frozen=True, kw_only=True)
class Participation:
    """Who was asked in a round that was finished, and who never answered; None where the journal does not say."""

    round_number: int
    asked: tuple[int, ...] | None
    dropped: tuple[int, ...] | None


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
    resumes: tuple[Resume, ...]
    rounds: tuple[RoundRecord, ...]
    participation: tuple[Participation, ...]
    failures: tuple[Failed, ...]
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
    def chance(self) -> Chance | None:
        """What a model reaches on the test data that has learned nothing, where the journal says."""
        share, examples = self.start.chance, self.start.test_examples
        return Chance(share=share, examples=examples) if share and examples else None

    @property
    def one_process(self) -> bool:
        """Whether all parties of a federation were one program on one machine: a simulation of a federation."""
        return not self.alone and not self.start.deployed

    def name_of(self, client: int) -> str:
        """Return a client's name, or its number."""
        names = self.start.client_names or ()
        return names[client] if client < len(names) else str(client)

    @property
    def own_data(self) -> bool:
        """Whether the data are a user's own, and not one of the public data sets."""
        return is_own(self.start.dataset)

    @property
    def secret_cohort(self) -> bool:
        """Whether nobody may know who took part in a round, nor how many."""
        return self.plan.cohorts_hidden


def read(folder: Path) -> History:
    """Read the run in ``folder``; what is there may be the whole of it or a part."""
    must_have_begun(folder)
    config = config_of(folder)
    result = result_of(folder)
    clients = config.federate.clients or 1
    plan = plan_of(config, clients)
    ledger = Levels(plan)
    told = _Told(clients=clients, rounds=result is None)
    for record in records_of(folder):
        ledger.add(record)
        told.add(record)
    rounds = result.rounds if result is not None else told.finished()
    start = told.start or Start(key="", simulation=False, dataset="", examples=0)
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
        levels=tuple(_levels(plan, ledger, start.split, rounds, result)),
    )


def _levels(
    plan: Plan,
    ledger: Levels,
    split: Split | None,
    rounds: tuple[RoundRecord, ...],
    result: Result | None,
) -> Iterator[Level]:
    """Yield each level that the run makes a claim about: clients, examples, or both."""
    if ledger.clients is not None:
        claim = ledger.clients.claim
        privacy = None if result is None else result.privacy
        must_claim(privacy, ledger.clients.told.values())
        if privacy is None:
            account = Account(claim)
            ledger.clients.replay(account)
            privacy = so_far(account)
            must_cover(privacy.epsilon, ledger.clients.told.values())
        yield Level(
            privacy=privacy,
            budget=claim.max_epsilon,
            epsilons=tuple(record.epsilon for record in rounds),
            releases=ledger.clients.lines(),
        )
    if ledger.examples is not None:
        privacy = None if result is None else result.example_privacy or result.privacy
        must_claim(privacy, ledger.examples.told.values())
        yield Level(
            privacy=privacy or _spent_by_examples(plan, ledger.examples, split),
            budget=ledger.examples.claim.max_epsilon,
            epsilons=tuple(record.example_epsilon for record in rounds),
            releases=ledger.examples.lines(),
        )


def _spent_by_examples(plan: Plan, ledger: LevelLedger, split: Split | None) -> Privacy:
    """Return what an unfinished run's examples have spent."""
    assert plan.examples is not None
    claim = ledger.claim
    if split is not None:
        account = ExampleAccount(plan.examples.fitted(split.sizes), claim)
        ledger.replay(account)
        must_cover(account.epsilon, ledger.told.values())
        return so_far(account)
    lines, accountant = ledger.completed()  # a journal without the clients' sizes: from the charges alone
    return Privacy(
        epsilon=(lines[-1].epsilon if lines else None) or 0.0,
        delta=claim.delta,
        unit=claim.unit,
        neighbours=claim.neighbours,
        accountant=accountant or "nothing was released",
        against=claim.against,
        notes=claim.notes,
    )


@dataclass(kw_only=True)
class _Told:
    """What the journal says, taken in record by record: it may be long, and is read once."""

    clients: int
    rounds: bool  # whether the rounds themselves are wanted
    start: Start | None = None
    last: Record | None = None  # of those that tell how far the run got
    resumes: list[Resume] = field(default_factory=list)
    failures: list[Failed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    _rounds: dict[int, RoundRecord] = field(default_factory=dict)
    _asked: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _dropped: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._everyone = tuple(range(self.clients))

    def add(self, record: Record) -> None:
        """Take in one record."""
        match record:
            case Start():
                self.start = self.start or record
                self.last = record
            case Resume():
                self.resumes.append(record)
                self.last = record
            case Stopped():
                self.last = record
            case Attempt():
                _put(self._asked, record.round, self._everyone if record.asked == "all" else record.asked)
            case Round():
                self.last = record
                _put(self._dropped, record.round, record.dropped)
                if self.rounds:  # of a round that is there twice, the later counts
                    self._rounds[record.round] = record.record
            case Failed():
                self.failures.append(record)
            case Secret():
                self.secrets.append(f"Round {record.round}: {record.text}")
            case Note():
                self.notes.append(f"Round {record.round}: {record.text}")

    def finished(self) -> tuple[RoundRecord, ...]:
        """Return the rounds in their order."""
        return tuple(self._rounds[number] for number in sorted(self._rounds))

    def participation(self, rounds: int) -> list[Participation]:
        """Return who took part in each round: the cohort of its last try, less those who did not answer."""
        return [
            Participation(round_number=number, asked=self._asked.get(number), dropped=self._dropped.get(number))
            for number in range(1, rounds + 1)
        ]


def _put(told: dict[int, tuple[int, ...]], number: int, clients: tuple[int, ...] | None) -> None:
    """Keep who is told of for a round; nobody knows where nobody is told of."""
    told.pop(number, None)
    if clients is not None:
        told[number] = clients


def _status(last: Record | None, result: Result | None) -> tuple[Status, str]:
    """Return how far the run got, and why no further."""
    if result is not None:
        return "finished", ""
    go_on = "`tacit resume` goes on with it."
    if isinstance(last, Stopped):
        return "stopped", f"{last.reason} {go_on}"
    return "unfinished", f"It is still running; or it was ended from outside, and {go_on}"
