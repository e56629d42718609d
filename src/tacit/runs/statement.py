"""The statement of a run's account: its ledger with the running cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
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
    from_dict,
    to_dict,
)
from tacit.accounting.ledger import Charge, RunningLedger
from tacit.federated.plan import Claim
from tacit.modes.catalogue import plan_of
from tacit.runs import journal
from tacit.runs.folder import config_of, must_have_begun, records_of

_ANEW = 64  # so many lines that nothing is told of are computed
_SAME = 1e-6  # of epsilon: what two ways of counting the same charges may differ by


@dataclass(frozen=True, kw_only=True)
class Line:
    """One release."""

    round_number: int
    attempt: int
    release: str
    event: Event
    epsilon: float | None  # spent up to here; None where it is infinite

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"event": to_dict(self.event)}


@dataclass(frozen=True, kw_only=True)
class Statement:
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


def statement(folder: Path) -> Statement:
    """Read the account of the run in ``folder``, finished or not.

    What was spent after a finished round is what the run itself found, and guarded, then; the last line is computed
    anew, and so are some tries that were repeated. Beyond those a try has what was spent after the next line that is
    known: more releases never cost less. Where the last line shows that less was told than is true, none is believed.
    """
    must_have_begun(folder)
    config = config_of(folder)
    plan = plan_of(config, config.federate.clients or 1)
    examples = plan.example_claim
    of_clients = None if plan.claim is None else _Level(plan.claim, _Charges(plan.claim))
    of_examples = None if examples is None else _Level(examples, _ExampleCharges(examples))
    simulation = False
    for record in records_of(folder):
        if record["type"] == "start":
            simulation = simulation or bool(record["simulation"])
        elif record["type"] == "attempt":
            if of_clients is not None and record["charge"]:
                of_clients.add(record, record["charge"])
            if of_examples is not None and record.get("example_charges"):
                of_examples.add(record, record["example_charges"])
        elif record["type"] == "round":
            if of_clients is not None:
                of_clients.told[record["round"]] = record.get("epsilon")
            if of_examples is not None:
                of_examples.told[record["round"]] = record.get("example_epsilon")
    first, second = (of_clients, of_examples) if of_clients is not None else (of_examples, None)
    lines, name = ((), None) if first is None else first.lines()
    example_lines, example_name = ((), None) if second is None else second.lines()
    return Statement(
        mode=config.mode,
        claim=None if first is None else first.claim,
        accountant=name,
        simulation=simulation,
        lines=lines,
        example_claim=examples if of_clients is not None else None,
        example_accountant=example_name,
        example_lines=example_lines,
    )


class _Account(Protocol):
    """Counts the charges of a level."""

    def add(self, charged: Any) -> Event:
        """Count what an attempt was charged, and return the event to show."""

    def spent(self) -> PrivacyCost:
        """Return what all charges so far cost."""

    def anew(self) -> _Account:
        """Return an account without charges."""


class _Charges:
    """What clients were charged."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._ledger = RunningLedger(unit=claim.unit, neighbours=claim.neighbours)

    def add(self, charged: Any) -> Event:
        charge = Charge.from_dict(charged)
        self._ledger.add(charge.event, clients=charge.clients)
        return charge.event

    def spent(self) -> PrivacyCost:
        return accountant.epsilon(self._ledger.short(), self._claim.delta)

    def anew(self) -> _Charges:
        return _Charges(self._claim)


class _ExampleCharges:
    """What the clients' examples were charged; the worst client's is what they spent."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._ledgers: dict[int, RunningLedger] = {}

    def add(self, charged: Any) -> Event:
        events = [from_dict(group["event"]) for group in charged]
        for group, event in zip(charged, events, strict=True):
            for client in group["clients"]:
                running = self._ledgers.setdefault(
                    client, RunningLedger(unit="example", neighbours=self._claim.neighbours)
                )
                running.add(event)
        return max(events, key=_rate)

    def spent(self) -> PrivacyCost:
        different = {running.short() for running in self._ledgers.values()}
        answers = [accountant.epsilon(ledger, self._claim.delta) for ledger in different]
        return max(answers, key=lambda answer: answer.epsilon)

    def anew(self) -> _ExampleCharges:
        return _ExampleCharges(self._claim)


class _Level:
    """The charges of one level, in order, and what was told of them."""

    def __init__(self, claim: Claim, account: _Account) -> None:
        self.claim = claim
        self.told: dict[int, float | None] = {}  # spent after a round that was finished
        self._account = account
        self._charged: list[tuple[int, int, Any]] = []  # round, attempt, what was charged

    def add(self, record: journal.Record, charged: Any) -> None:
        self._charged.append((record["round"], record["attempt"], charged))

    def lines(self) -> tuple[tuple[Line, ...], str | None]:
        """Return the lines, and the accountant of the last."""
        if not self._charged:
            return (), None
        lines, answer = self._lines(self.told)
        last = self.told.get(lines[-1].round_number)
        if last is not None and last < answer.epsilon * (1.0 - _SAME):
            lines, answer = self._lines({})
        return tuple(lines), answer.accountant

    def _lines(self, told: Mapping[int, float | None]) -> tuple[list[Line], PrivacyCost]:
        final = {number: place for place, (number, _, _) in enumerate(self._charged)}  # the last try of each round
        account = self._account.anew()
        lines: list[Line] = []
        unknown: list[int] = []
        shown: dict[Event, tuple[Event, str]] = {}  # most releases are alike, and kept once
        for place, (number, attempt, charged) in enumerate(self._charged):
            event = account.add(charged)
            if event not in shown:
                shown[event] = (event, describe(event))
            event, words = shown[event]
            known = number in told and final[number] == place
            if not known:
                unknown.append(place)
            later = None if known or len(unknown) > _ANEW else account.spent()
            epsilon = told[number] if known else None if later is None else _finite(later)
            lines.append(Line(round_number=number, attempt=attempt, release=words, event=event, epsilon=epsilon))
        answer = account.spent()
        lines[-1] = replace(lines[-1], epsilon=_finite(answer))
        for place in reversed(unknown[_ANEW:]):
            lines[place] = replace(lines[place], epsilon=lines[min(place + 1, len(lines) - 1)].epsilon)
        return lines, answer


def _rate(event: Event) -> float:
    """Return the sampling rate of DP-SGD's steps: the larger, the more a client's examples were charged."""
    inner = event.event if isinstance(event, RepeatedEvent) else event
    return inner.rate if isinstance(inner, SampledEvent) else 1.0


def _finite(answer: PrivacyCost) -> float | None:
    return answer.epsilon if math.isfinite(answer.epsilon) else None


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
