"""The ledger of a run, read back from its journal: what was promised, released and spent.

Going on with a run, ``tacit ledger`` and the report all read charges here, tries that failed included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from tacit.accounting import accountant
from tacit.accounting.accountant import PrivacyCost
from tacit.accounting.events import (
    ComposedEvent,
    Event,
    GaussianEvent,
    PureEvent,
    RepeatedEvent,
    SampledEvent,
    ShuffledEvent,
    SkellamEvent,
    to_dict,
    to_json,
)
from tacit.accounting.ledger import Charge, RunningLedger
from tacit.errors import RunError
from tacit.federated.examples import ExampleCharge
from tacit.federated.plan import Claim, Plan, Privacy
from tacit.modes.catalogue import plan_of
from tacit.runs.account import Account, ExampleAccount
from tacit.runs.folder import config_of, must_have_begun, records_of
from tacit.runs.journal import Attempt, Record, Round, Start
from tacit.runs.progress import result_of

_ANEW = 64  # so many lines that nothing is told of are computed
_SAME = 1e-6  # of epsilon: what two ways of counting the same charges may differ by
_LESS = 1e-3  # of epsilon: what a journal's charges may come to less than it told, as with another accountant


def charges_of(folder: Path) -> Iterator[Attempt]:
    """Yield every try of a run's rounds with what it was charged; the journal is never held as a whole."""
    for record in records_of(folder):
        if isinstance(record, Attempt):
            yield record


def replay(records: Iterable[Record], clients: Account | None, examples: ExampleAccount | None = None) -> None:
    """Charge accounts what the tries among ``records`` were charged, such as in a run that goes on.

    The records are read one by one, never held as a whole; charges that come to less than they tell are refused.
    """
    most, most_of_examples = None, None  # that was told after a round
    for record in records:
        if isinstance(record, Round):
            most = _larger(most, record.epsilon)
            most_of_examples = _larger(most_of_examples, record.example_epsilon)
        if not isinstance(record, Attempt):
            continue
        _refuse_others(record, clients=clients is not None, examples=examples is not None)
        if clients is not None and record.charge is not None:
            clients.add(record.charge)
        if examples is not None and record.example_charges is not None:
            examples.add(record.example_charges)
    if clients is not None and most is not None:
        must_cover(clients.epsilon, [most])
    if examples is not None and most_of_examples is not None:
        must_cover(examples.epsilon, [most_of_examples])


def _larger(one: float | None, other: float | None) -> float | None:
    return one if other is None else other if one is None else max(one, other)


def _refuse_others(attempt: Attempt, *, clients: bool, examples: bool) -> None:
    """Refuse a try that was charged to other claims than the run makes; round 0 is what came before it."""
    if attempt.round and (attempt.charge is not None, attempt.example_charges is not None) != (clients, examples):
        raise RunError(
            f"The journal's try {attempt.attempt + 1} of round {attempt.round} is not charged as this run's are: it is "
            "damaged, or of another run. Restore it, or run anew with --force."
        )


def must_cover(spent: float, told: Iterable[float | None]) -> None:
    """Refuse charges that come to less than was told after a round: some were lost or changed."""
    most = max((epsilon for epsilon in told if epsilon is not None), default=0.0)
    if most > spent * (1.0 + _LESS):
        raise RunError(
            f"The journal's charges come to epsilon {spent:.6g}, and it told {most:.6g} after a round: charges were "
            "lost or changed. Restore it, or run anew with --force; of a version that counted otherwise, read it with "
            "that one."
        )


def must_claim(told: Privacy | None, spent: Iterable[float | None]) -> None:
    """Refuse a result that claims less than was spent: nobody has to attack it to know that it is false."""
    most = max((epsilon for epsilon in spent if epsilon is not None), default=0.0)
    if told is not None and told.epsilon < most * (1.0 - _LESS):
        raise RunError(
            f"The result claims epsilon {told.epsilon:.6g} for one {told.unit}, and the journal's charges come to "
            f"{most:.6g}: the claim is false, or a file was changed. Restore "
            "result.json, or remove it: `tacit resume` then makes a new one."
        )


def ledger_of(folder: Path) -> LedgerView:
    """Return the ledger of the run in ``folder``, finished or not, with the running cost.

    What was spent after a finished round is what the run itself found, and guarded, then; the last line is computed
    anew, and so are some tries that were repeated. Beyond those a try has what was spent after the next line that is
    known: more releases never cost less. Where the last line shows that less was told than is true, none is believed.
    """
    must_have_begun(folder)
    config = config_of(folder)
    plan = plan_of(config, config.federate.clients or 1)
    levels = Levels(plan)
    simulation = False
    for record in records_of(folder):
        levels.add(record)
        if isinstance(record, Start):
            simulation = simulation or record.simulation
    first, second = (levels.clients, levels.examples) if levels.clients is not None else (levels.examples, None)
    lines, name = ((), None) if first is None else first.completed()
    example_lines, example_name = ((), None) if second is None else second.completed()
    result = result_of(folder)
    if first is not None and result is not None and result.privacy is not None:
        must_cover((lines[-1].epsilon if lines else None) or 0.0, [result.privacy.epsilon])
    return LedgerView(
        mode=config.mode,
        claim=None if first is None else first.claim,
        accountant=name,
        simulation=simulation,
        lines=lines,
        example_claim=None if second is None else second.claim,
        example_accountant=example_name,
        example_lines=example_lines,
    )


@dataclass(frozen=True, kw_only=True)
class Line:
    """One release."""

    round_number: int
    attempt: int  # from 0
    release: str
    event: Event
    epsilon: float | None  # spent up to here; None where the run did not come to say it

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return vars(self) | {"event": to_dict(self.event), "epsilon": to_json(self.epsilon)}


@dataclass(frozen=True, kw_only=True)
class LedgerView:
    """All releases of a run, and the claim they are charged to."""

    mode: str
    claim: Claim | None
    accountant: str | None
    simulation: bool
    lines: tuple[Line, ...]
    example_claim: Claim | None = None  # beside ``claim``, where that is about clients
    example_accountant: str | None = None
    example_lines: tuple[Line, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        plain = asdict(replace(self, lines=(), example_lines=()))
        return plain | {
            "lines": [line.to_dict() for line in self.lines],
            "example_lines": [line.to_dict() for line in self.example_lines],
        }


class Levels:
    """What a run promises about clients, about examples, or both, and what its records charge to each."""

    def __init__(self, plan: Plan) -> None:
        self.clients: LevelLedger | None = None
        self.examples: LevelLedger | None = None
        if plan.claim is not None:
            self.clients = LevelLedger(plan.claim, Account)
        if plan.example_claim is not None:
            self.examples = LevelLedger(plan.example_claim, _ByClient)

    def add(self, record: Record) -> None:
        """Take in a record of the journal."""
        if isinstance(record, Attempt):
            _refuse_others(record, clients=self.clients is not None, examples=self.examples is not None)
            if self.clients is not None and record.charge is not None:
                self.clients.add(record, record.charge)
            if self.examples is not None and record.example_charges:
                self.examples.add(record, record.example_charges)
        elif isinstance(record, Round):
            if self.clients is not None:
                self.clients.told[record.round] = record.epsilon
            if self.examples is not None:
                self.examples.told[record.round] = record.example_epsilon


class Replayed(Protocol):
    """What counts the charges of a level: an account."""

    def add(self, charged: Any) -> None:
        """Count what a try was charged."""


class _Counter(Replayed, Protocol):
    def spent(self) -> PrivacyCost:
        """Return what all charges so far cost."""


class _ByClient:
    """What the clients' examples were charged, from the charges alone; the worst client's is what they spent."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._ledgers: dict[int, RunningLedger] = {}

    def add(self, charged: tuple[ExampleCharge, ...]) -> None:
        for group in charged:
            for client in group.clients:
                own = RunningLedger(unit="example", neighbours=self._claim.neighbours)
                self._ledgers.setdefault(client, own).add(group.event)

    def spent(self) -> PrivacyCost:
        different = {ledger.short() for ledger in self._ledgers.values()}
        answers = [accountant.epsilon(ledger, self._claim.delta) for ledger in different]
        return max(answers, key=lambda answer: answer.epsilon)


class LevelLedger:
    """The charges to one claim, in order, and what the run told of their cost."""

    def __init__(self, claim: Claim, counter: Callable[[Claim], _Counter]) -> None:
        self.claim = claim
        self.told: dict[int, float | None] = {}  # spent after a round that was finished
        self._counter = counter
        self._charged: list[Any] = []
        self._lines: list[Line] = []
        self._shown: dict[Event, tuple[Event, str]] = {}  # most releases are alike, and kept once

    def add(self, attempt: Attempt, charged: Charge | tuple[ExampleCharge, ...]) -> None:
        """Take in what a try was charged."""
        event = charged.event if isinstance(charged, Charge) else max((one.event for one in charged), key=_rate)
        if event not in self._shown:
            self._shown[event] = (event, describe(event))
        event, words = self._shown[event]
        self._charged.append(charged)
        self._lines.append(
            Line(round_number=attempt.round, attempt=attempt.attempt, release=words, event=event, epsilon=None)
        )

    def replay(self, account: Replayed) -> None:
        """Charge an account what was charged, in order."""
        for charged in self._charged:
            account.add(charged)

    def lines(self) -> tuple[Line, ...]:
        """Return the charges; the last try of each finished round has what the run told it had spent."""
        return self._with(self.told)

    def completed(self) -> tuple[tuple[Line, ...], str | None]:
        """Return the charges, each with what was spent up to it, and the accountant of the last."""
        if not self._lines:
            must_cover(0.0, self.told.values())
            return (), None
        lines, answer = self._computed(self.lines())
        must_cover(answer.epsilon, self.told.values())
        last = self.told.get(lines[-1].round_number)
        if last is not None and last < answer.epsilon * (1.0 - _SAME):
            lines, answer = self._computed(self._with({}))
        return lines, answer.accountant

    def _with(self, told: Mapping[int, float | None]) -> tuple[Line, ...]:
        final = {line.round_number: place for place, line in enumerate(self._lines)}  # the last try of each round
        return tuple(
            replace(line, epsilon=told.get(line.round_number)) if final[line.round_number] == place else line
            for place, line in enumerate(self._lines)
        )

    def _computed(self, told: tuple[Line, ...]) -> tuple[tuple[Line, ...], PrivacyCost]:
        lines, counter = list(told), self._counter(self.claim)
        unknown: list[int] = []
        for place, charged in enumerate(self._charged):
            counter.add(charged)
            if lines[place].epsilon is None:
                unknown.append(place)
                if len(unknown) <= _ANEW:
                    lines[place] = replace(lines[place], epsilon=counter.spent().epsilon)
        answer = counter.spent()
        lines[-1] = replace(lines[-1], epsilon=answer.epsilon)
        for place in reversed(unknown[_ANEW:]):
            lines[place] = replace(lines[place], epsilon=lines[min(place + 1, len(lines) - 1)].epsilon)
        return tuple(lines), answer


def _rate(event: Event) -> float:
    """Return the sampling rate of DP-SGD's steps: the larger, the more a client's examples were charged."""
    inner = event.event if isinstance(event, RepeatedEvent) else event
    return inner.rate if isinstance(inner, SampledEvent) else 1.0


def describe(event: Event) -> str:
    """Return an event in words.

    >>> describe(SampledEvent(event=GaussianEvent(noise_multiplier=1.1), rate=0.2))
    'Gaussian noise 1.1 on a poisson sample of 0.2'
    >>> describe(SkellamEvent(noise_multiplier=6.38, sensitivity=2.0**14))
    'Skellam noise 6.38'
    """
    match event:
        case GaussianEvent() | SkellamEvent():
            kind = "Gaussian" if isinstance(event, GaussianEvent) else "Skellam"
            return f"{kind} noise {event.noise_multiplier:.4g}"
        case PureEvent():
            return f"pure epsilon {event.epsilon:.4g}"
        case ShuffledEvent():
            return f"one of {event.reports} shuffled reports, each of pure epsilon {event.epsilon:.4g}"
        case ComposedEvent():
            return " and ".join(map(describe, event.events))
        case RepeatedEvent():
            return f"{event.count} times {describe(event.event)}"
        case SampledEvent():
            return f"{describe(event.event)} on a {event.sampling} sample of {event.rate:.4g}"
