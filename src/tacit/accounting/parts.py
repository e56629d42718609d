"""What a ledger comes to, sorted by how it can be accounted."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Self

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
from tacit.accounting.ledger import Ledger, Neighbours
from tacit.errors import ConfigError

_SHUFFLED = {"add-remove": 5.0, "replace-one": 4.0, "zero-out": 1.0}  # squared reach of a pass; see `Parts`
_FIXED = {"add-remove": 4.0, "replace-one": 4.0, "zero-out": 1.0}  # squared reach of a release about a set
_WHOLE = 1e-9  # 100 batches of rate 0.01 are one pass, although 100 * 0.01 may exceed one by a rounding


@dataclass(frozen=True, kw_only=True)
class Group:
    """Equal sampled Gaussian releases."""

    noise_multiplier: float
    rate: float
    count: int


@dataclass(frozen=True, kw_only=True)
class Parts:
    r"""The sum of a ledger; precisions are sums of 1/z^2 in units of one contribution.

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
    fixed: tuple[Group, ...]
    poisson: tuple[Group, ...]
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
        """Return the same parts without the sets of fixed size, for an accountant that treats them apart."""
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


def _groups(counts: Counter[tuple[float, float]]) -> tuple[Group, ...]:
    return tuple(Group(noise_multiplier=noise, rate=rate, count=count) for (noise, rate), count in counts.items())
