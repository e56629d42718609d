"""What a log is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

Status = Literal["finished", "failed", "stopped"]


@dataclass(frozen=True, kw_only=True)
class About:
    """What is known before the first round."""

    name: str
    title: str
    settings: Mapping[str, str]  # dotted keys
    config: str  # the same as YAML
    tags: Mapping[str, str]  # mode, engine, version, simulation
    folder: Path | None


@dataclass(frozen=True, kw_only=True)
class Step:
    """One round."""

    number: int
    at: float  # seconds since 1970
    values: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What came of the run; a run that broke off has a status only."""

    status: Status
    values: Mapping[str, float]
    texts: Mapping[str, str]  # the privacy statement, who sees what, notes
    result: str | None = None  # result.json


class Log(Protocol):
    """Writes a run down; calls come one after the other from one thread, and may fail."""

    def begin(self, about: About, done: Sequence[Step]) -> None:
        """Open the log; ``done`` are the rounds of an earlier session, which may be in it already, in part."""
        ...

    def step(self, step: Step) -> None:
        """Write one round; a second time for values that were not known the first time."""
        ...

    def end(self, ending: Ending) -> None:
        """Write the end and close."""
        ...
