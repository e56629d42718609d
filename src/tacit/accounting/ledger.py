"""The ledger: every release of a run, in order, and what the claim about it means."""

from __future__ import annotations

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

    What a long run comes to is counted by :class:`~tacit.accounting.tally.Tally`, at the same cost for every charge.

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
                event, count = once(charge.event)
                taken[event].update(dict.fromkeys(charge.clients, count))
        clients = {client for counts in taken.values() for client in counts}
        histories = {tuple(counts[client] for counts in taken.values()) for client in clients} or {(0,) * len(taken)}
        common = tuple(charge for charge in self.charges if charge.clients is None)
        return tuple(
            replace(
                self,
                charges=common
                + tuple(
                    Charge(round_number=0, event=repeated(event, count))
                    for event, count in zip(taken, history, strict=True)
                    if count
                ),
            )
            for history in front(histories)
        )

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


def front(histories: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the histories that no other exceeds in every kind of release, the largest first.

    >>> front([(1, 2), (2, 1), (1, 1), (2, 0)])
    [(2, 1), (1, 2)]
    """
    kept: list[tuple[int, ...]] = []
    for history in sorted(set(histories), reverse=True):  # whoever exceeds it came before, or is exceeded itself
        if not any(all(more >= less for more, less in zip(other, history, strict=True)) for other in kept):
            kept.append(history)
    return kept


def once(event: Event) -> tuple[Event, int]:
    """Return an event without its outer repetitions, and how often it happens."""
    if isinstance(event, RepeatedEvent):
        inner, count = once(event.event)
        return inner, count * event.count
    return event, 1


def repeated(event: Event, count: int) -> Event:
    """Return an event that happens ``count`` times."""
    return event if count == 1 else RepeatedEvent(event=event, count=count)
