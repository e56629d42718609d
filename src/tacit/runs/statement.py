"""The statement of a run's account: its ledger with the running cost."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tacit.accounting import accountant
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
)
from tacit.accounting.ledger import Charge, Ledger
from tacit.federated.plan import Claim, Plan
from tacit.runs import config as configuration
from tacit.runs import journal
from tacit.runs.examples import claim_of
from tacit.runs.folder import CONFIG, must_have_begun, records_of
from tacit.runs.modes import plan_of


@dataclass(frozen=True, kw_only=True)
class Line:
    """One release."""

    round_number: int
    attempt: int
    release: str
    event: dict[str, Any]
    epsilon: float | None  # spent up to here; None where it is infinite


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
        return asdict(self)


def statement(folder: Path) -> Statement:
    """Read the account of the run in ``folder``, finished or not."""
    must_have_begun(folder)
    config = configuration.from_mapping(configuration.from_yaml(folder / CONFIG))
    records = list(records_of(folder))
    plan = plan_of(config, config.federate.clients or 1)
    claim = plan.claim
    simulation = any(record["type"] == "start" and record["simulation"] for record in records)
    attempts = [record for record in records if record["type"] == "attempt" and record["charge"]]
    example_claim, example_lines, example_accountant = _examples(config, plan, records)
    if claim is None:
        return Statement(
            mode=config.mode,
            claim=example_claim,
            accountant=example_accountant,
            simulation=simulation,
            lines=example_lines,
        )
    ledger = Ledger(unit=claim.unit, neighbours=claim.neighbours)
    lines: list[Line] = []
    name = None
    for record in attempts:
        charge = Charge.from_dict(record["charge"])
        ledger = ledger.charged(
            charge.event, round_number=charge.round_number, note=charge.note, clients=charge.clients
        )
        answer = accountant.epsilon(ledger, claim.delta)
        name = answer.accountant
        lines.append(
            Line(
                round_number=charge.round_number,
                attempt=record["attempt"],
                release=describe(charge.event),
                event=record["charge"]["event"],
                epsilon=answer.epsilon if math.isfinite(answer.epsilon) else None,
            )
        )
    return Statement(
        mode=config.mode,
        claim=claim,
        accountant=name,
        simulation=simulation,
        lines=tuple(lines),
        example_claim=example_claim,
        example_accountant=example_accountant,
        example_lines=example_lines,
    )


def _examples(
    config: configuration.RunConfig, plan: Plan, records: list[journal.Record]
) -> tuple[Claim | None, tuple[Line, ...], str | None]:
    """Return the claim of the clients' DP-SGD, its charges with the cost to the worst client, and the accountant."""
    if plan.examples is None:
        return None, (), None
    unit = None if plan.claim is None else plan.claim.unit
    claim = claim_of(plan.examples, beside=unit, alone=config.engine == "alone")
    lines: list[Line] = []
    name = None
    taken: dict[int, Event] = {}
    for record in records:
        if record["type"] != "attempt" or not record.get("example_charges"):
            continue
        for group in record["example_charges"]:
            event = from_dict(group["event"])
            for client in group["clients"]:
                before = taken.get(client)
                taken[client] = event if before is None else _longer(before, event)
        answers = [accountant.epsilon(_of_example(event), claim.delta) for event in set(taken.values())]
        worst = max(answers, key=lambda answer: answer.epsilon)
        name = worst.accountant
        shown = max((group["event"] for group in record["example_charges"]), key=lambda data: data["event"]["rate"])
        lines.append(
            Line(
                round_number=record["round"],
                attempt=record["attempt"],
                release=describe(from_dict(shown)),
                event=shown,
                epsilon=worst.epsilon if math.isfinite(worst.epsilon) else None,
            )
        )
    return claim, tuple(lines), name


def _of_example(event: Event) -> Ledger:
    return Ledger(unit="example").charged(event, round_number=1)


def _longer(before: Event, event: Event) -> Event:
    """Return both releases as one; they are the same release repeated."""
    if isinstance(before, RepeatedEvent) and isinstance(event, RepeatedEvent) and before.event == event.event:
        return RepeatedEvent(event=event.event, count=before.count + event.count)
    return ComposedEvent(events=(before, event))


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
