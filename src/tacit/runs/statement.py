"""The statement of a run's account: its ledger with the running cost."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tacit.accounting import accountant
from tacit.accounting.events import ComposedEvent, Event, GaussianEvent, PureEvent, RepeatedEvent, SampledEvent
from tacit.accounting.ledger import Charge, Ledger
from tacit.errors import RunError
from tacit.federated.plan import Claim
from tacit.runs import config as configuration
from tacit.runs import journal
from tacit.runs.folder import CONFIG, JOURNAL
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

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


def statement(folder: Path) -> Statement:
    """Read the account of the run in ``folder``, finished or not."""
    if not (folder / CONFIG).is_file():
        raise RunError(f"{folder} is not the folder of a run: it has no {CONFIG}.")
    config = configuration.from_mapping(configuration.from_yaml(folder / CONFIG))
    records = journal.read(folder / JOURNAL)
    claim = plan_of(config, config.federate.clients or 1).claim
    simulation = any(record["type"] == "start" and record["simulation"] for record in records)
    attempts = [record for record in records if record["type"] == "attempt" and record["charge"]]
    if claim is None:
        return Statement(mode=config.mode, claim=None, accountant=None, simulation=simulation, lines=())
    ledger = Ledger(unit=claim.unit, neighbours=claim.neighbours)
    lines: list[Line] = []
    name = None
    for record in attempts:
        charge = Charge.from_dict(record["charge"])
        ledger = ledger.charged(charge.event, round_number=charge.round_number, note=charge.note)
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
    return Statement(mode=config.mode, claim=claim, accountant=name, simulation=simulation, lines=tuple(lines))


def describe(event: Event) -> str:
    """Return an event in words.

    >>> describe(SampledEvent(event=GaussianEvent(noise_multiplier=1.1), rate=0.2))
    'Gaussian noise 1.1 on a poisson sample of 0.2'
    """
    match event:
        case GaussianEvent():
            return f"Gaussian noise {event.noise_multiplier:.4g}"
        case PureEvent():
            return f"pure epsilon {event.epsilon:.4g}"
        case ComposedEvent():
            return " and ".join(map(describe, event.events))
        case RepeatedEvent():
            return f"{event.count} times {describe(event.event)}"
        case SampledEvent():
            return f"{describe(event.event)} on a {event.sampling} sample of {event.rate:.4g}"
