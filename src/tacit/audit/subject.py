"""What can be audited: pairs of neighbouring worlds, each a claim and a way to play it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tacit.accounting.evidence import Claimed
from tacit.audit.event import Rows

Play = Callable[[int], Rows]  # so many trials more, each a row of what the adversary sees


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two worlds that the claim says are hard to tell apart.

    Attributes:
        name: what is tried, in a few words.
        claimed: what is claimed of one trial.
        worlds: plays each of the two.
    """

    name: str
    claimed: Claimed
    worlds: tuple[Play, Play]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Something whose claim is attacked.

    Attributes:
        name: for people, such as a mode's.
        pairs: what is tried.
        against: the adversary for whom the claim is made, whose place the audit takes.
        releases: how many releases a trial has.
        notes: what people should know of how it was played.
    """

    name: str
    pairs: Sequence[Pair]
    against: str
    releases: int = 1
    notes: tuple[str, ...] = ()
