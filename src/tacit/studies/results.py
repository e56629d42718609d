"""Runs side by side: each protection over its seeds, and what can be said of them together."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tacit.accounting.events import to_json
from tacit.federated.plan import Privacy
from tacit.modes.catalogue import mode_of
from tacit.runs.chance import Chance
from tacit.runs.result import Result

Claimed = Privacy  # what a run claims, as reports know it
STAGES = ("train", "protect", "travel", "aggregate", "recover", "evaluate", "other")


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A measure over the seeds."""

    mean: float
    lowest: float
    highest: float
    deviation: float | None  # of a single value, with n - 1 in the denominator; None for one value
    count: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """Return the spread of the values that were measured, or None without any.

        >>> Spread.of([0.5, 1.0, 1.5, None])
        Spread(mean=1.0, lowest=0.5, highest=1.5, deviation=0.5, count=3)
        """
        known = [value for value in values if value is not None]
        if not known:
            return None
        return cls(
            mean=statistics.fmean(known),
            lowest=min(known),
            highest=max(known),
            deviation=statistics.stdev(known) if len(known) > 1 else None,
            count=len(known),
        )


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """One run: its result, or what went wrong."""

    name: str
    folder: str
    seed: int | None
    result: Result | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One protection, or one set of settings, with its runs."""

    name: str
    mode: str
    runs: tuple[Repeat, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)  # dotted keys that this entry has over the shared ones

    @property
    def results(self) -> tuple[Result, ...]:
        """The runs that are complete."""
        return tuple(run.result for run in self.runs if run.result is not None)

    @property
    def failed(self) -> tuple[Repeat, ...]:
        """The runs that are not."""
        return tuple(run for run in self.runs if run.result is None)

    @property
    def accuracy(self) -> Spread | None:
        """The test accuracy after the last round."""
        return Spread.of(result.test_accuracy for result in self.results)

    @property
    def chance(self) -> Chance | None:
        """What a model reaches on the same test data that has learned nothing, where the runs say."""
        told = {(result.chance, result.test_examples) for result in self.results}
        share, examples = next(iter(told)) if len(told) == 1 else (None, None)
        return Chance(share=share, examples=examples) if share and examples else None

    @property
    def at_chance(self) -> bool:
        """Whether the mean accuracy is what chance gives."""
        if self.chance is None or self.accuracy is None:
            return False
        losses = Spread.of(result.test_loss for result in self.results)
        return self.chance.holds(self.accuracy.mean, loss=None if losses is None else losses.mean)

    @property
    def plain(self) -> bool:
        """Whether nothing is protected: no privacy is claimed, and nothing is hidden."""
        return bool(self.results) and not self.claims and not mode_of(self.mode).hidden

    @property
    def test_loss(self) -> Spread | None:
        """The test loss after the last round."""
        return Spread.of(result.test_loss for result in self.results)

    @property
    def seconds(self) -> Spread | None:
        """The time of all rounds together."""
        return Spread.of(result.seconds for result in self.results)

    @property
    def rounds(self) -> int:
        """The most rounds that a run made."""
        return max((len(result.rounds) for result in self.results), default=0)

    @property
    def curve(self) -> tuple[tuple[int, Spread], ...]:
        """The test accuracy after each round in which every run that got so far was tested."""
        points = []
        for number in range(1, self.rounds + 1):
            tested = [
                result.rounds[number - 1].test_accuracy for result in self.results if len(result.rounds) >= number
            ]
            spread = Spread.of(tested)
            if spread is not None and spread.count == len(tested):
                points.append((number, spread))
        return tuple(points)

    @property
    def privacy(self) -> Privacy | None:
        """The claim of the run with the largest epsilon: what holds for all of them."""
        return _worst([result.privacy for result in self.results if result.privacy is not None])

    @property
    def example_privacy(self) -> Privacy | None:
        """The same for an example, where the runs also protect those."""
        return _worst([result.example_privacy for result in self.results if result.example_privacy is not None])

    @property
    def claims(self) -> tuple[Privacy, ...]:
        """Every claim that has an epsilon: none, one, or one for clients and one for examples."""
        both = (self.privacy, self.example_privacy)
        return tuple(claim for claim in both if claim is not None)

    @property
    def bytes_up(self) -> float | None:
        """What a client sends in a round, in the mean over those that replied."""
        return _ratio(self.results, "bytes_up", "senders")

    @property
    def bytes_down(self) -> float | None:
        """What a client is sent in a round, in the mean over those that were asked."""
        return _ratio(self.results, "bytes_down", "receivers")

    @property
    def bytes_holders(self) -> float | None:
        """What passes between the server and the key holders in a round."""
        records = [record for result in self.results for record in result.rounds]
        return sum(record.bytes_holders for record in records) / len(records) if records else None

    @property
    def stages(self) -> dict[str, float]:
        """Seconds of a round by stage, in the mean; ``other`` is what no stage was charged with."""
        rounds = sum(len(result.rounds) for result in self.results)
        if not rounds:
            return {}
        return {
            stage: sum(result.stage_seconds.get(stage, 0.0) for result in self.results) / rounds for stage in STAGES
        }

    @property
    def sees(self) -> dict[str, str]:
        """Who sees what."""
        return self.results[0].sees if self.results else {}

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; an infinite epsilon is the text "infinite"."""
        return {
            "name": self.name,
            "mode": self.mode,
            "settings": dict(self.settings),
            "accuracy": _plain(self.accuracy),
            "at_chance": self.at_chance,
            "test_loss": _plain(self.test_loss),
            "rounds": self.rounds,
            "curve": [{"round": number} | asdict(spread) for number, spread in self.curve],
            "privacy": [asdict(claim) | {"epsilon": to_json(claim.epsilon)} for claim in self.claims],
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "bytes_holders": self.bytes_holders,
            "seconds": _plain(self.seconds),
            "seconds_by_stage": self.stages,
            "sees": self.sees,
            "runs": [
                {
                    "name": run.name,
                    "folder": run.folder,
                    "seed": run.seed,
                    "test_accuracy": None if run.result is None else run.result.test_accuracy,
                    "error": run.error,
                }
                for run in self.runs
            ],
        }


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Entries side by side; ``warnings`` are the ways in which they are not like for like."""

    entries: tuple[Entry, ...]
    shared: Mapping[str, str]  # what all runs have in common, in words: data, split, model, clients, rounds, seeds
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    differing: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # settings of training, by key and entry

    @property
    def baseline(self) -> Entry | None:
        """The entry without protection, where there is one."""
        return next((entry for entry in self.entries if entry.plain and entry.accuracy is not None), None)

    @property
    def chance(self) -> Chance | None:
        """The level of chance, where all entries have the same."""
        told = {entry.chance for entry in self.entries if entry.results}
        return told.pop() if len(told) == 1 else None

    @property
    def failed(self) -> tuple[Repeat, ...]:
        """All runs that failed."""
        return tuple(run for entry in self.entries for run in entry.failed)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "shared": dict(self.shared),
            "entries": [entry.to_dict() for entry in self.entries],
            "chance": None if self.chance is None else self.chance.share,
            "differing": {key: dict(values) for key, values in self.differing.items()},
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }

    def to_csv(self) -> str:
        """Return a line per entry; a second level of privacy has columns of its own."""
        text = io.StringIO()
        writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        for entry in self.entries:
            writer.writerow(_row(entry))
        return text.getvalue()


_CLAIM = ("epsilon", "delta", "unit", "neighbours", "accountant", "against")
_COLUMNS = (
    *("name", "mode", "runs", "failed", "rounds"),
    *("accuracy_mean", "accuracy_deviation", "accuracy_lowest", "accuracy_highest", "test_loss_mean"),
    *_CLAIM,
    *(f"second_{name}" for name in _CLAIM),
    *("bytes_up", "bytes_down", "bytes_holders", "seconds_mean"),
    *(f"seconds_{stage}" for stage in STAGES),
    *("server_sees", "clients_see", "outsider_sees"),
)


def _row(entry: Entry) -> dict[str, Any]:
    accuracy, loss, seconds, sees = entry.accuracy, entry.test_loss, entry.seconds, entry.sees
    row: dict[str, Any] = {
        "name": entry.name,
        "mode": entry.mode,
        "runs": len(entry.results),
        "failed": len(entry.failed),
        "rounds": entry.rounds,
        "test_loss_mean": None if loss is None else loss.mean,
        "bytes_up": entry.bytes_up,
        "bytes_down": entry.bytes_down,
        "bytes_holders": entry.bytes_holders,
        "seconds_mean": None if seconds is None else seconds.mean,
        "server_sees": sees.get("server"),
        "clients_see": sees.get("clients"),
        "outsider_sees": sees.get("outsider"),
    }
    if accuracy is not None:
        row |= {f"accuracy_{name}": getattr(accuracy, name) for name in ("mean", "deviation", "lowest", "highest")}
    for prefix, claim in zip(("", "second_"), entry.claims, strict=False):
        row |= {f"{prefix}{name}": getattr(claim, name) for name in _CLAIM}
    return row | {f"seconds_{stage}": seconds for stage, seconds in entry.stages.items()}


def _worst(claims: Sequence[Privacy]) -> Privacy | None:
    return max(claims, key=lambda claim: claim.epsilon, default=None)


def _ratio(results: Sequence[Result], of: str, over: str) -> float | None:
    """Return the bytes of all rounds over the clients of all rounds, where there is a federation."""
    records = [record for result in results for record in result.rounds if record.steps is None]
    clients = sum(getattr(record, over) for record in records)
    return sum(getattr(record, of) for record in records) / clients if clients else None


def _plain(spread: Spread | None) -> dict[str, Any] | None:
    return None if spread is None else asdict(spread)
