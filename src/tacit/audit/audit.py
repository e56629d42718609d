"""An audit: choose the worst pair and event, count it on fresh trials, and ask again before crying alarm."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tacit.accounting.events import to_json
from tacit.accounting.evidence import CONFIDENCE, Rates
from tacit.audit.event import chosen
from tacit.audit.subject import Pair, Subject
from tacit.errors import ConfigError, RunError

_EXPLORING = 0.5  # nearly the rates themselves: a choice need not be sure
_FIRST = 0.25  # deviations by which another pair has to exceed the first one, the plainest, to be chosen over it
ALARM = 0.9999  # the confidence with which a claim has to be false before it is called so


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How many trials an audit plays in each world: of every pair to choose one, and of that one to count."""

    explore: int = 300
    count: int = 3000

    def __post_init__(self) -> None:
        if min(self.explore, self.count) < 20:
            raise ConfigError(f"Expected 20 trials or more, got explore={self.explore} and count={self.count}.")


QUICK = Effort(explore=80, count=500)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What an audit found, about the releases of one trial.

    Attributes:
        subject: what was audited.
        pair: the worst of what was tried.
        releases: how many releases a trial has; claim and bounds are about these.
        epsilon: the claim.
        delta: of the claim and the bounds.
        unit: what one neighbour differs in.
        neighbours: the relation.
        against: whose place the audit took.
        bound: what epsilon is at least, of a mechanism of the claimed shape.
        any_shape: what it is at least, of any mechanism.
        confidence: of the bounds.
        trials: how many were counted in each world.
        refuted: whether the claim is false, with confidence ``ALARM``.
        tried: the names of all pairs.
        notes: what people should know of how it was played.
    """

    subject: str
    pair: str
    releases: int
    epsilon: float
    delta: float
    unit: str
    neighbours: str
    against: str
    bound: float
    any_shape: float
    confidence: float
    trials: int
    refuted: bool
    tried: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; an infinite epsilon is the word "infinite"."""
        numbers = {name: to_json(getattr(self, name)) for name in ("epsilon", "bound", "any_shape")}
        return asdict(self) | numbers | {"tried": list(self.tried), "notes": list(self.notes)}


def audit(subject: Subject, *, effort: Effort = QUICK, confidence: float = CONFIDENCE) -> Finding:
    """Attack a claim and return the lower bound that was reached.

    Three stages, each on trials of its own, so that the confidence is what it says: a few trials of every pair choose
    the pair; a third of the others choose the event; the rest count it. Where the bound exceeds the claim, the pair is
    played anew, and again with four times the trials, and the claim is called false only where one of these says so
    with 99.99%.
    """
    if not subject.pairs:
        raise ConfigError(f"{subject.name} claims no differential privacy: there is nothing to audit.")
    pair = _worst(subject, effort.explore)
    claimed = pair.claimed
    seen = _counted(subject.name, pair, effort.count, confidence)
    refuted = claimed.refuted_by(seen)
    if refuted:
        for trials in (effort.count, 4 * effort.count):
            again = _counted(subject.name, pair, trials, ALARM)
            refuted = claimed.refuted_by(again)
            if refuted:
                break
        seen = seen if refuted else again
    return Finding(
        subject=subject.name,
        pair=pair.name,
        releases=subject.releases,
        epsilon=claimed.epsilon,
        delta=claimed.delta,
        unit=claimed.ledger.unit,
        neighbours=claimed.ledger.neighbours,
        against=subject.against,
        bound=claimed.least_epsilon(seen),
        any_shape=claimed.least_of_any_shape(seen),
        confidence=seen.confidence,
        trials=seen.trials,
        refuted=refuted,
        tried=tuple(one.name for one in subject.pairs),
        notes=subject.notes,
    )


def _worst(subject: Subject, trials: int) -> Pair:
    """Return the pair whose trials exceed its claim by most."""
    if len(subject.pairs) == 1:
        return subject.pairs[0]
    margins = []
    for pair in subject.pairs:
        first, second = (play(trials) for play in pair.worlds)
        margins.append(chosen(first, second, pair.claimed, confidence=_EXPLORING).margin)
    margins[0] += _FIRST
    return subject.pairs[margins.index(max(margins))]


def _counted(subject: str, pair: Pair, trials: int, confidence: float) -> Rates:
    """Return the rates of an event on so many trials; half as many others chose it."""
    first, second = (play(trials + math.ceil(trials / 2)) for play in pair.worlds)
    if (np.concatenate([first, second]) == first[0]).all():
        raise RunError(
            f"{subject}: nothing that is seen varies in {2 * len(first)} trials of {pair.name!r}. Every round failed, "
            "or nothing is released: there is no bound to speak of. Does a run with these settings work?"
        )
    event = chosen(first[trials:], second[trials:], pair.claimed, confidence=confidence)
    return event.rates(first[:trials], second[:trials], confidence=confidence)
