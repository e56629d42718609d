"""The vocabulary of releases: what a ledger may hold.

The vocabulary only grows: a kind is never renamed or removed, so that an old ledger stays readable and an unknown kind
is refused rather than skipped. Noise multipliers are relative to what one unit (a client, an example) contributes at
most: noise of standard deviation ``z * C`` on a sum of vectors of norm at most ``C``. What follows from the
neighbouring relation (replacing one moves the sum by up to ``2C``) is the accountant's business.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tacit.errors import ConfigError

Sampling = Literal["poisson", "fixed", "shuffle"]
SAMPLINGS: tuple[Sampling, ...] = get_args(Sampling)


@dataclass(frozen=True, kw_only=True)
class GaussianEvent:
    """Gaussian noise on a sum to which everyone contributes; zero noise is legal and costs an infinite epsilon."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        if not self.noise_multiplier >= 0.0:
            raise ConfigError(f"Expected a noise multiplier of 0 or more, got {self.noise_multiplier}.")


@dataclass(frozen=True, kw_only=True)
class SkellamEvent:
    r"""Skellam noise of variance :math:`(zD)^2` on a sum of integer vectors of norm at most D (Agarwal et al. 2021).

    ``sensitivity`` is a lower bound on D, such as the norm before rounding. That suffices: integers have
    :math:`|x| \le x^2`, so their L1 norm is at most :math:`D^2`, and with noise relative to D the cost is at most

    .. math:: \frac{\alpha}{2 z^2} + \min\left(\frac{2\alpha + 5}{4 z^4 D^2}, \frac{3}{2 z^2}\right)

    at the order alpha, which no longer depends on the number of coordinates and never grows with D. So the cost, and
    the noise for a budget, are known before the model is. Zero noise is legal and costs an infinite epsilon.
    """

    noise_multiplier: float
    sensitivity: float

    def __post_init__(self) -> None:
        if not self.noise_multiplier >= 0.0:
            raise ConfigError(f"Expected a noise multiplier of 0 or more, got {self.noise_multiplier}.")
        if not 1.0 <= self.sensitivity < math.inf:
            raise ConfigError(
                f"Expected a finite sensitivity of 1 or more, got {self.sensitivity}: integers of a smaller norm are "
                "all zero. Use a larger scale."
            )


@dataclass(frozen=True, kw_only=True)
class PureEvent:
    """A release that is epsilon-DP on its own under the ledger's relation: Laplace noise, randomized response."""

    epsilon: float

    def __post_init__(self) -> None:
        if not self.epsilon >= 0.0:
            raise ConfigError(f"Expected an epsilon of 0 or more, got {self.epsilon}.")


@dataclass(frozen=True, kw_only=True)
class ShuffledEvent:
    """One of ``reports`` reports, each epsilon-DP on its own, that a trusted shuffler mixes and strips of senders.

    ``reports`` is the fewest that are ever mixed, the client's own among them. One report is not hidden by anything.
    """

    epsilon: float
    reports: int

    def __post_init__(self) -> None:
        if not self.epsilon >= 0.0:
            raise ConfigError(f"Expected an epsilon of 0 or more, got {self.epsilon}.")
        if isinstance(self.reports, bool) or not isinstance(self.reports, int) or self.reports < 1:
            raise ConfigError(f"Expected 1 report or more in a shuffle, got {self.reports}.")


@dataclass(frozen=True, kw_only=True)
class ComposedEvent:
    """Several releases of the same data, such as a sum of updates and the count of unclipped ones."""

    events: tuple[Event, ...]


@dataclass(frozen=True, kw_only=True)
class RepeatedEvent:
    """The same release, ``count`` times, with fresh randomness each time."""

    event: Event
    count: int

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise ConfigError(f"Expected a count of 1 or more, got {self.count}.")


@dataclass(frozen=True, kw_only=True)
class SampledEvent:
    """A release about a random part of the data; everything inside sees the same part.

    ``poisson``: each unit by its own coin of probability ``rate``. ``fixed``: a set of fixed size without replacement,
    ``rate`` its share. ``shuffle``: consecutive batches of a shuffled pass, 1/``rate`` of them in each, a
    number that is public and does not depend on the data.
    """

    event: Event
    rate: float
    sampling: Sampling = "poisson"

    def __post_init__(self) -> None:
        if not 0.0 < self.rate <= 1.0:
            raise ConfigError(f"Expected a sampling rate in (0, 1], got {self.rate}.")
        if self.sampling not in SAMPLINGS:
            raise ConfigError(f"Unknown sampling {self.sampling!r}. Choose one of {', '.join(SAMPLINGS)}.")
        gaussian_precision(self.event)


Event = GaussianEvent | SkellamEvent | PureEvent | ShuffledEvent | ComposedEvent | RepeatedEvent | SampledEvent

_INFINITE, _FORMERLY = "infinite", "infinity"  # the latter in journals of 0.1
_KINDS: dict[str, type[Event]] = {
    "gaussian": GaussianEvent,
    "skellam": SkellamEvent,
    "pure": PureEvent,
    "shuffled": ShuffledEvent,
    "composed": ComposedEvent,
    "repeated": RepeatedEvent,
    "sampled": SampledEvent,
}


def gaussian_precision(event: Event) -> float:
    """Return the sum of 1/z^2 over the Gaussian releases in ``event``: together they are one with that precision."""
    match event:
        case GaussianEvent(noise_multiplier=0.0):
            return math.inf
        case GaussianEvent():
            return (1.0 / event.noise_multiplier) * (1.0 / event.noise_multiplier)
        case ComposedEvent():
            return sum(map(gaussian_precision, event.events))
        case RepeatedEvent():
            return event.count * gaussian_precision(event.event)
        case SkellamEvent():
            raise ConfigError(
                "Amplification by sampling is not proved here for Skellam noise, got a sampled SkellamEvent. Charge it "
                "in full: every client is taken to be in every round."
            )
        case _:
            raise ConfigError(f"Only Gaussian releases can be sampled, got {type(event).__name__}.")


def to_json(number: float | None) -> float | str | None:
    """Return a number for JSON, which knows no infinity: there it is the word ``infinite``.

    >>> to_json(1.5), to_json(math.inf), to_json(None)
    (1.5, 'infinite', None)
    """
    return _INFINITE if number == math.inf else number


def from_json(told: Any) -> Any:
    """Return what :func:`to_json` was given."""
    return math.inf if told in (_INFINITE, _FORMERLY) else told


def to_dict(event: Event) -> dict[str, Any]:
    """Return plain data for JSON, tagged with its ``kind``; an infinite number is the word ``infinite``."""
    kind = next(name for name, cls in _KINDS.items() if cls is type(event))
    fields = {name: getattr(event, name) for name in event.__dataclass_fields__}
    return {"kind": kind, **{name: _plain(value) for name, value in fields.items()}}


def from_dict(data: Mapping[str, Any]) -> Event:
    """Build the event that :func:`to_dict` wrote.

    Raises:
        ConfigError: the kind is unknown, or its fields are not what this kind has.
    """
    kind = data.get("kind") if isinstance(data, Mapping) else None
    if kind not in _KINDS:
        raise ConfigError(f"Unknown event {kind!r} in the ledger. This version knows {', '.join(_KINDS)}.")
    fields = {name: _parsed(name, value) for name, value in data.items() if name != "kind"}
    try:
        return _KINDS[kind](**fields)
    except TypeError as error:
        raise ConfigError(f"The event {dict(data)} in the ledger is not a valid {kind!r} event: {error}.") from error


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [to_dict(event) for event in value]
    if isinstance(value, Event):
        return to_dict(value)
    return to_json(value)


def _parsed(name: str, value: Any) -> Any:
    if name == "events":
        if not isinstance(value, list):
            raise ConfigError(f"Expected a list of events in the ledger, got {value!r}.")
        return tuple(from_dict(event) for event in value)
    if name == "event":
        return from_dict(value)
    return from_json(value)
