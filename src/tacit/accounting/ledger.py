"""The ledger: every release of a run, in order, and what the claim about it means."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

from tacit.accounting import events
from tacit.accounting.events import Event, RepeatedEvent
from tacit.errors import ConfigError

Neighbours = Literal["add-remove", "replace-one"]
Unit = Literal["client", "example"]
NEIGHBOURS: tuple[Neighbours, ...] = get_args(Neighbours)
UNITS: tuple[Unit, ...] = get_args(Unit)

_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One release: the round it belongs to, what was released, and a remark for people."""

    round_number: int
    event: Event
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"round": self.round_number, "event": events.to_dict(self.event), "note": self.note}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Build the charge that :meth:`to_dict` wrote."""
        try:
            return cls(
                round_number=int(data["round"]), event=events.from_dict(data["event"]), note=str(data.get("note", ""))
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"Not a charge of a ledger: {data!r}.") from error


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """Charges in the order they were made; one is added by making a longer ledger, and none is ever taken away.

    Attributes:
        unit: whose presence is hidden: a client with all its data, or one example.
        neighbours: what differs between two data sets that are hard to tell apart: one unit more or less
            (``add-remove``), or one unit exchanged for another (``replace-one``, twice the sensitivity).
        charges: what was released.
    """

    unit: Unit = "client"
    neighbours: Neighbours = "add-remove"
    charges: tuple[Charge, ...] = ()

    def __post_init__(self) -> None:
        if self.neighbours not in NEIGHBOURS:
            raise ConfigError(f"Unknown neighbours {self.neighbours!r}. Choose one of {', '.join(NEIGHBOURS)}.")
        if self.unit not in UNITS:
            raise ConfigError(f"Unknown unit {self.unit!r}. Choose one of {', '.join(UNITS)}.")

    def charged(self, event: Event, *, round_number: int, note: str = "") -> Self:
        """Return this ledger with one more charge."""
        charge = Charge(round_number=round_number, event=event, note=note)
        return replace(self, charges=(*self.charges, charge))

    def merged(self) -> Self:
        """Return a ledger of the same cost in which equal neighbours are one charge with a count."""
        merged: list[Charge] = []
        for _, group in itertools.groupby(self.charges, key=lambda charge: (_once(charge.event)[0], charge.note)):
            charges = list(group)
            count = sum(_once(charge.event)[1] for charge in charges)
            event = _once(charges[0].event)[0]
            first = replace(charges[0], event=event if count == 1 else RepeatedEvent(event=event, count=count))
            merged.append(first)
        return replace(self, charges=tuple(merged))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "version": _VERSION,
            "unit": self.unit,
            "neighbours": self.neighbours,
            "charges": [charge.to_dict() for charge in self.charges],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Build the ledger that :meth:`to_dict` wrote; what is not understood is refused, never skipped."""
        if not isinstance(data, Mapping) or data.get("version") != _VERSION:
            raise ConfigError(f"Not a ledger of version {_VERSION}.")
        try:
            unit, neighbours, charges = data["unit"], data["neighbours"], data["charges"]
        except KeyError as error:
            raise ConfigError(f"The ledger has no {error.args[0]!r}.") from error
        if not isinstance(charges, list):
            raise ConfigError("The charges of a ledger are a list.")
        return cls(unit=unit, neighbours=neighbours, charges=tuple(Charge.from_dict(charge) for charge in charges))


def _once(event: Event) -> tuple[Event, int]:
    """Return an event without its outer repetitions, and how often it happens."""
    if isinstance(event, RepeatedEvent):
        inner, count = _once(event.event)
        return inner, count * event.count
    return event, 1
