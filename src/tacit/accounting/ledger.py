"""The ledger: every release of a run, in order, and what the claim about it means.

Charge a :class:`Ledger`, or a :class:`RunningLedger` where a run is long, and ask
:func:`tacit.accounting.accountant.epsilon` what it costs. Accountants see a :class:`Tally`: the releases of one client,
counted by how they can be accounted.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

from tacit.accounting import events
from tacit.accounting.events import (
    ComposedEvent,
    Event,
    GaussianEvent,
    PureEvent,
    RepeatedEvent,
    SampledEvent,
    ShuffledEvent,
    SkellamEvent,
    gaussian_precision,
)
from tacit.errors import ConfigError

Neighbours = Literal["add-remove", "replace-one", "zero-out"]
Unit = Literal["client", "example"]
History = tuple[int, ...]  # how often a client was charged for each kind of release
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

    A long run charges a :class:`RunningLedger`, where one charge more costs the same however many there were.

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


class RunningLedger:
    """A ledger that stays short: how often everyone was charged for a release, and how often each client.

    Call :meth:`add` for every release and :meth:`short` for a ledger of the same cost.

    The order of releases matters to shuffled passes alone, which are told apart by it; all others are counted by what
    they are.
    """

    def __init__(self, *, unit: Unit = "client", neighbours: Neighbours = "add-remove") -> None:
        self._empty = Ledger(unit=unit, neighbours=neighbours)
        self._everyone: dict[Event, int] = {}
        self._in_order: list[tuple[Event, int]] = []
        self._kinds: dict[Event, int] = {}  # of releases that some clients are charged for: the place in a history
        self._history: dict[int, History] = {}  # how often each client was charged for each kind
        self._alike: Counter[History] = Counter()  # how many clients have the same
        self._asked: Counter[int] = Counter()
        self._most_asked = 0
        self._to_all = 0
        self.charges = 0

    def add(self, event: Event, *, clients: Iterable[int] | None = None) -> None:
        """Charge a release to ``clients`` or to everyone."""
        self.charges += 1
        event, count = once(event)
        if clients is not None:
            place = self._kinds.setdefault(event, len(self._kinds))
            for client in clients:
                before = self._history.get(client, ())
                self._history[client] = after = _once_more(before, place, count)
                self._alike[after] += 1
                if before:
                    self._alike[before] -= 1
                    if not self._alike[before]:
                        del self._alike[before]
                self._asked[client] += 1
                self._most_asked = max(self._most_asked, self._asked[client])
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
        return bool(self._kinds)

    @property
    def most_charges(self) -> int:
        """How many of the charges the most charged client has."""
        return self._to_all + self._most_asked

    def short(self, event: Event | None = None, *, clients: Sequence[int] | None = None) -> Ledger:
        """Return a short ledger of the same cost, and of ``event`` charged to ``clients`` or to everyone on top.

        Of the clients only those are in it whom no other exceeds, by numbers that are not theirs. Different histories
        are looked at, not clients: of a million there are few.
        """
        releases = [*self._everyone.items(), *self._in_order]
        kinds, histories = [*self._kinds], {*self._alike}
        if event is not None:
            more, count = once(event)
            if clients is None:
                releases.append((more, count))
            else:
                place = self._kinds.get(more, len(kinds))
                kinds += [more] if place == len(kinds) else []
                histories |= {_once_more(self._history.get(client, ()), place, count) for client in clients}
        made = [Charge(round_number=0, event=repeated(release, count)) for release, count in releases]
        whole = {history + (0,) * (len(kinds) - len(history)) for history in histories}
        for number, history in enumerate(front(whole)):
            for release, count in zip(kinds, history, strict=True):
                if count:
                    made.append(Charge(round_number=0, event=repeated(release, count), clients=(number,)))
        return Ledger(unit=self._empty.unit, neighbours=self._empty.neighbours, charges=tuple(made))


def _once_more(history: History, place: int, count: int) -> History:
    """Return a history with ``count`` more releases of the kind at ``place``."""
    filled = history + (0,) * (place + 1 - len(history))
    return (*filled[:place], filled[place] + count, *filled[place + 1 :])


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


_SHUFFLED = {"add-remove": 5.0, "replace-one": 4.0, "zero-out": 1.0}  # squared reach of a pass; see `Tally`
_FIXED = {"add-remove": 4.0, "replace-one": 4.0, "zero-out": 1.0}  # squared reach of a release about a set
_WHOLE = 1e-9  # 100 batches of rate 0.01 are one pass, although 100 * 0.01 may exceed one by a rounding


@dataclass(frozen=True, kw_only=True)
class SampledReleases:
    """Equal sampled Gaussian releases."""

    noise_multiplier: float
    rate: float
    count: int


@dataclass(frozen=True, kw_only=True)
class Tally:
    r"""What a ledger comes to, by how it can be accounted; precisions are sums of 1/z^2 in units of one contribution.

    How far one change of the data moves what is released, in contributions, is the **reach**:

    - *Everyone contributes.* One unit more or less, or its contribution put to zero: 1. Another in its place: 2.
    - *Poisson samples.* Coins are independent: given all the others' coins the sum is c, or c + g with probability q
      and :math:`|g| \le 1`. Zeroed out, the unit tosses its coin and adds nothing: the sum is c, the very law
      of a data set without it. So add-remove and zero-out have the same dominating pairs, (1-q) N(0, z^2) +
      q N(1, z^2) against N(0, z^2) and the reverse.
    - *Sets of fixed size.* Where one unit comes in another leaves, also where one is added or removed: 2. Zeroed out,
      all sets stay what they are and one summand vanishes: 1. Amplification is claimed under replace-one, and under
      zero-out as its special case, as a zero is one of the contributions that may take a unit's place.
    - *Shuffled passes.* Given the order, a unit that is replaced or zeroed out touches one batch: 2 or 1. One more unit
      is another matter. Put it at a random place, and whoever was there at the new last place: a uniform order again.
      One batch exchanges a member, :math:`|\cdot| \le 2`, the one that grew has one more, :math:`|\cdot| \le 1`, and no
      other changes: :math:`\sqrt{2^2 + 1^2} = \sqrt 5` for each pass. It takes a number of batches that is public and
      does not follow the number of units; otherwise one unit more can be one release more, which nothing here covers.
      Nothing is proved about the order that would help, so that every pass is charged in full. Such batches are
      what others' loaders make; DP-SGD here draws Poisson ones.

    Attributes:
        neighbours: the ledger's relation.
        full: precision of the releases everyone contributes to.
        shuffle: precision of shuffled passes: a unit is charged for each that was begun, at the smallest noise of
            that stretch.
        fixed: releases about sets of fixed size.
        poisson: releases about Poisson samples.
        pure: epsilon -> count of the pure releases.
        mixed: (epsilon, reports) -> count of the reports that a shuffler mixed.
        skellam: (noise multiplier, sensitivity) -> count of the releases with Skellam noise.
    """

    neighbours: Neighbours
    full: float
    shuffle: float
    fixed: tuple[SampledReleases, ...]
    poisson: tuple[SampledReleases, ...]
    pure: tuple[tuple[float, int], ...]
    mixed: tuple[tuple[tuple[float, int], int], ...] = ()
    skellam: tuple[tuple[tuple[float, float], int], ...] = ()

    @classmethod
    def of(cls, ledger: Ledger) -> Self:
        """Sort out a ledger.

        Raises:
            ConfigError: it holds something that is no event of the vocabulary.
        """
        sorter = _Sorter()
        for charge in ledger.charges:
            sorter.add(charge.event, 1)
        return cls(
            neighbours=ledger.neighbours,
            full=sorter.full,
            shuffle=sum(passes * precision for passes, precision in sorter.shuffled()),
            fixed=_groups(sorter.fixed),
            poisson=_groups(sorter.poisson),
            pure=tuple((epsilon, count) for epsilon, count in sorter.pure.items() if epsilon > 0.0),
            mixed=tuple((release, count) for release, count in sorter.mixed.items() if release[0] > 0.0),
            skellam=tuple((release, count) for release, count in sorter.skellam.items() if release[0] < math.inf),
        )

    @property
    def reach(self) -> float:
        """How far one change of the data moves a sum to which everyone contributes, or a Poisson sample does."""
        return 2.0 if self.neighbours == "replace-one" else 1.0

    @property
    def mu(self) -> float:
        """Sensitivity over standard deviation of all that is accounted as one Gaussian release, not amplified."""
        fixed = sum(group.count / group.noise_multiplier / group.noise_multiplier for group in self.fixed)
        return math.sqrt(
            self.reach**2 * self.full + _SHUFFLED[self.neighbours] * self.shuffle + _FIXED[self.neighbours] * fixed
        )

    def without_fixed(self) -> Self:
        """Return the same tally without the sets of fixed size, for an accountant that treats them apart."""
        return replace(self, fixed=())

    @property
    def unmixed(self) -> tuple[tuple[float, int], ...]:
        """The pure releases, and the mixed ones as if nobody had mixed them: a bound where shuffles are not known."""
        return (*self.pure, *((epsilon, count) for (epsilon, _), count in self.mixed))

    @property
    def hopeless(self) -> bool:
        """Whether something was released without any protection."""
        return (
            math.isinf(self.full + self.shuffle)
            or any(math.isinf(epsilon) for epsilon, _ in self.unmixed)
            or any(noise == 0.0 for (noise, _), _ in self.skellam)
        )

    @property
    def sampling(self) -> str:
        """How data were chosen: full, poisson, fixed or shuffle, several joined with a plus sign, or none."""
        named = {
            "full": self.full > 0.0 or bool(self.unmixed or self.skellam),
            "poisson": bool(self.poisson),
            "fixed": bool(self.fixed),
            "shuffle": self.shuffle > 0.0,
        }
        return "+".join(name for name, present in named.items() if present) or "none"


class _Sorter:
    """Walks events in order; the order matters for shuffled passes only."""

    def __init__(self) -> None:
        self.full = 0.0
        self.fixed: Counter[tuple[float, float]] = Counter()
        self.poisson: Counter[tuple[float, float]] = Counter()
        self.pure: Counter[float] = Counter()
        self.mixed: Counter[tuple[float, int]] = Counter()
        self.skellam: Counter[tuple[float, float]] = Counter()
        self._stretches: list[tuple[float, int, float]] = []  # rate, batches, largest precision

    def add(self, event: Event, count: int) -> None:
        match event:
            case GaussianEvent():
                self.full += count * gaussian_precision(event)
            case PureEvent():
                self.pure[event.epsilon] += count
            case ShuffledEvent():
                self.mixed[event.epsilon, event.reports] += count
            case SkellamEvent():
                self.skellam[event.noise_multiplier, event.sensitivity] += count
            case ComposedEvent():
                for part in event.events:
                    self.add(part, count)
            case RepeatedEvent():
                self.add(event.event, count * event.count)
            case SampledEvent():
                self._add_sampled(event, count)
            case _:
                raise ConfigError(f"Unknown event {type(event).__name__} in the ledger: its cost can't be told.")

    def shuffled(self) -> list[tuple[int, float]]:
        """Return how many passes each stretch of equal rate began, and the precision of a pass."""
        return [
            (math.ceil(rate * batches - _WHOLE), precision) for rate, batches, precision in self._stretches if precision
        ]

    def _add_sampled(self, event: SampledEvent, count: int) -> None:
        precision = gaussian_precision(event.event)
        if precision == 0.0:
            return
        if event.rate == 1.0 or math.isinf(precision):
            # Without noise no sampling helps: with probability `rate` the data lie open.
            self.full += count * precision
        elif event.sampling == "shuffle":
            stretch = (event.rate, 0, 0.0)
            if self._stretches and self._stretches[-1][0] == event.rate:
                stretch = self._stretches.pop()
            self._stretches.append((event.rate, stretch[1] + count, max(stretch[2], precision)))
        else:
            groups = self.poisson if event.sampling == "poisson" else self.fixed
            groups[1.0 / math.sqrt(precision), event.rate] += count


def _groups(counts: Counter[tuple[float, float]]) -> tuple[SampledReleases, ...]:
    return tuple(
        SampledReleases(noise_multiplier=noise, rate=rate, count=count) for (noise, rate), count in counts.items()
    )
