"""The ledger: every release of a run, in order, and what the claim about it means."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

from tacit.accounting import events
from tacit.accounting.events import Event, RepeatedEvent
from tacit.errors import ConfigError

Neighbours = Literal["add-remove", "replace-one", "zero-out"]
Unit = Literal["client", "example"]
NEIGHBOURS: tuple[Neighbours, ...] = get_args(Neighbours)
UNITS: tuple[Unit, ...] = get_args(Unit)

_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One release: the round it belongs to, what was released, a remark for people, and whose data were in it.

    ``clients`` is None where that is hidden or everyone's data may have been; then everyone is charged.
    """

    round_number: int
    event: Event
    note: str = ""
    clients: tuple[int, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        plain = {"round": self.round_number, "event": events.to_dict(self.event), "note": self.note}
        return plain if self.clients is None else plain | {"clients": list(self.clients)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Build the charge that :meth:`to_dict` wrote."""
        try:
            clients = data.get("clients")
            return cls(
                round_number=int(data["round"]),
                event=events.from_dict(data["event"]),
                note=str(data.get("note", "")),
                clients=None if clients is None else tuple(int(client) for client in clients),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"Not a charge of a ledger: {data!r}.") from error


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """Charges in the order they were made; one is added by making a longer ledger, and none is ever taken away.

    Attributes:
        unit: whose presence is hidden: a client with all its data, or one example.
        neighbours: what differs between two data sets that are hard to tell apart: one unit more or less
            (``add-remove``), one unit exchanged for another (``replace-one``, twice the sensitivity), or what one unit
            contributes put to zero while it goes on taking part (``zero-out``): hidden is what it contributed, not that
            it was there.
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

    def charged(self, event: Event, *, round_number: int, note: str = "", clients: Iterable[int] | None = None) -> Self:
        """Return this ledger with one more charge, to ``clients`` or to everyone."""
        whose = None if clients is None else tuple(clients)
        charge = Charge(round_number=round_number, event=event, note=note, clients=whose)
        return replace(self, charges=(*self.charges, charge))

    def of_clients(self) -> tuple[Self, ...]:
        """Return what single clients were charged, each different history once, less those that another one exceeds.

        The largest epsilon among these ledgers is that of the client with most to lose. Where everyone is charged for
        everything, this is the ledger itself.
        """
        if all(charge.clients is None for charge in self.charges):
            return (self,)
        taken: defaultdict[Event, Counter[int]] = defaultdict(Counter)
        for charge in self.charges:
            if charge.clients is not None:
                taken[charge.event].update(charge.clients)
        clients = {client for counts in taken.values() for client in counts}
        histories = {tuple(counts[client] for counts in taken.values()) for client in clients} or {(0,) * len(taken)}
        common = tuple(charge for charge in self.charges if charge.clients is None)
        return tuple(
            replace(
                self,
                charges=common
                + tuple(
                    Charge(round_number=0, event=RepeatedEvent(event=event, count=count))
                    for event, count in zip(taken, history, strict=True)
                    if count
                ),
            )
            for history in sorted(histories, reverse=True)
            if not any(_exceeds(other, history) for other in histories)
        )

    @property
    def most_charges(self) -> int:
        """How many of the charges the most charged client has."""
        counts: Counter[int] = Counter()
        for charge in self.charges:
            counts.update(charge.clients or ())
        everyone = sum(charge.clients is None for charge in self.charges)
        return everyone + max(counts.values(), default=0)

    def merged(self) -> Self:
        """Return a ledger of the same cost in which equal neighbours are one charge with a count."""
        merged: list[Charge] = []
        for _, group in itertools.groupby(self.charges, key=lambda c: (_once(c.event)[0], c.note, c.clients)):
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


def _exceeds(other: tuple[int, ...], history: tuple[int, ...]) -> bool:
    return other != history and all(more >= less for more, less in zip(other, history, strict=True))


def _once(event: Event) -> tuple[Event, int]:
    """Return an event without its outer repetitions, and how often it happens."""
    if isinstance(event, RepeatedEvent):
        inner, count = _once(event.event)
        return inner, count * event.count
    return event, 1
