"""What a ledger comes to, kept as it grows: a charge more costs the same however many there were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tacit.accounting.events import ComposedEvent, Event, RepeatedEvent, SampledEvent
from tacit.accounting.ledger import Charge, Ledger, Neighbours, Unit, front, once, repeated


class Tally:
    """Counts charges: how often everyone was charged for a release, and how often each client.

    The order of releases matters to shuffled passes alone, which are told apart by it; all others are counted by what
    they are.
    """

    def __init__(self, *, unit: Unit = "client", neighbours: Neighbours = "add-remove") -> None:
        self._empty = Ledger(unit=unit, neighbours=neighbours)
        self._everyone: dict[Event, int] = {}
        self._in_order: list[tuple[Event, int]] = []
        self._clients: dict[Event, Counter[int]] = {}
        self._asked: Counter[int] = Counter()
        self._to_all = 0
        self.charges = 0

    def add(self, event: Event, *, clients: Iterable[int] | None = None) -> None:
        """Charge a release to ``clients`` or to everyone."""
        self.charges += 1
        event, count = once(event)
        if clients is not None:
            taken = self._clients.setdefault(event, Counter())
            for client in clients:
                taken[client] += count
                self._asked[client] += 1
            return
        self._to_all += 1
        if _ordered(event):
            if self._in_order and self._in_order[-1][0] == event:
                count += self._in_order.pop()[1]
            self._in_order.append((event, count))
        else:
            self._everyone[event] = self._everyone.get(event, 0) + count

    @property
    def by_client(self) -> bool:
        """Whether some charge was to some clients and not to everyone."""
        return bool(self._clients)

    @property
    def most_charges(self) -> int:
        """How many of the charges the most charged client has."""
        return self._to_all + max(self._asked.values(), default=0)

    def ledger(self, event: Event | None = None, *, clients: Sequence[int] | None = None) -> Ledger:
        """Return a short ledger of the same cost, and of ``event`` charged to ``clients`` or to everyone on top.

        Of the clients only those are in it whom no other exceeds, by numbers that are not theirs.
        """
        releases = [*self._everyone.items(), *self._in_order]
        taken = self._clients
        if event is not None:
            more, count = once(event)
            if clients is None:
                releases.append((more, count))
            else:
                taken = {**taken, more: taken.get(more, Counter()) + Counter(dict.fromkeys(clients, count))}
        made = [Charge(round_number=0, event=repeated(release, count)) for release, count in releases]
        everyone = {client for counts in taken.values() for client in counts}
        histories = {tuple(counts[client] for counts in taken.values()) for client in everyone}
        for number, history in enumerate(front(histories)):
            for release, count in zip(taken, history, strict=True):
                if count:
                    made.append(Charge(round_number=0, event=repeated(release, count), clients=(number,)))
        return Ledger(unit=self._empty.unit, neighbours=self._empty.neighbours, charges=tuple(made))


def _ordered(event: Event) -> bool:
    """Return whether it matters what came before a release."""
    match event:
        case SampledEvent():
            return event.sampling == "shuffle"
        case RepeatedEvent():
            return _ordered(event.event)
        case ComposedEvent():
            return any(map(_ordered, event.events))
        case _:
            return False
