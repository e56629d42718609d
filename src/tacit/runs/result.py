"""What a run gave; ``result.json`` is this, field by field. Fields are only ever added."""

from __future__ import annotations

import functools
import html
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tacit import foreign
from tacit.accounting.events import from_json, to_json
from tacit.accounting.one_run import OneRun
from tacit.errors import RunError, WireError
from tacit.federated.plan import Privacy
from tacit.rounding import epsilon_text

Audited = OneRun  # as pages know it
_LARGEST = 1 << 30  # bytes
_ROWS = 8  # of rounds in the short table
_PRIVATE = "Choose a mode that does, such as --mode dp."
_EPSILONS = ("epsilon", "example_epsilon", "bound", "final", "any_shape")
_LEVELS = ("privacy", "example_privacy", "audit")


@dataclass(frozen=True, kw_only=True, slots=True)  # there may be a hundred thousand
class RoundRecord:
    """One round. Losses and accuracies are None where they were not measured.

    Where cohorts are hidden, because epsilon counts on nobody knowing them, who replied and a size that varies are
    None, bytes are those of the expected cohort, and where sampling amplifies there are no seconds: they grow with it.
    """

    round: int
    attempts: int  # 1, and one more for each retry
    train_loss: float | None
    test_loss: float | None
    test_accuracy: float | None
    clients_expected: float  # the mean size of a cohort, which is public
    clients_asked: int | None
    clients_replied: int | None
    bytes_up: int
    bytes_down: int
    epsilon: float | None  # spent up to and including this round; None where nothing is claimed
    seconds: dict[str, float]  # train, protect, aggregate, recover, evaluate
    wall_seconds: float | None
    bytes_holders: int = 0  # between the server and key holders that are no clients
    clipped: int | None = None  # numbers of updates that were clipped one by one, where that is counted
    example_epsilon: float | None = None  # the same for an example of the worst client, where clients run DP-SGD
    steps: int | None = None  # taken up to and including this round, where one data holder trains alone
    train_accuracy: float | None = None  # of the round's model on the clients' own data, with evaluate.train
    metrics: dict[str, float] | None = None  # of the test data, where more was asked for than loss and accuracy
    train_data_loss: float | None = None  # the same model's loss there; train_loss is the mean while they trained

    @property
    def senders(self) -> float:
        """Whose bytes ``bytes_up`` are: of those who replied, or of the expected cohort."""
        return self.clients_expected if self.clients_replied is None else self.clients_replied

    @property
    def receivers(self) -> float:
        """To whom ``bytes_down`` went: those who were asked, or the expected cohort."""
        return self.clients_expected if self.clients_asked is None else self.clients_asked

    @property
    def lasted(self) -> float:
        """The seconds of the round, in runs that tell them."""
        if self.wall_seconds is None:
            raise RunError(
                "The seconds of a single round are not told: they grow with its cohort, which epsilon counts on nobody "
                "knowing. Use those of the whole run, or set dp.amplification=false."
            )
        return self.wall_seconds

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> RoundRecord:
        """Build from plain values as in JSON; fields of a later version are left out. Damage raises RunError."""
        try:
            return _round().validate_json(json.dumps(_from_json(values)), strict=True)
        except ValidationError as error:
            raise RunError(
                f"The journal is damaged: the record of a round lacks fields, or has others "
                f"({' '.join(str(error).split())[:200]}). Restore it, or run anew with --force."
            ) from error


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """A whole run: ``print(result)`` gives a short table, and a notebook shows one; :meth:`to_dict` gives all of it."""

    version: str
    mode: str
    engine: str
    device: str
    dataset: str
    split: str
    model: str
    parameters: int
    clients: int
    per_round: int  # the mean with Poisson sampling
    seed: int | None
    simulation: bool
    form: str
    form_reason: str
    rounds: tuple[RoundRecord, ...]
    test_accuracy: float | None
    train_accuracy: float | None
    test_loss: float | None
    seconds: float
    setup_seconds: float
    bytes_up: int
    bytes_down: int
    privacy: Privacy | None  # None where none is claimed
    sees: dict[str, str]  # who sees what: server, clients, outsider
    notes: tuple[str, ...]
    folder: str | None
    stage_seconds: dict[str, float]  # of all rounds together; ``other`` is what no stage was charged with
    audit: OneRun | None = None  # what canaries found, where some were in the training
    example_privacy: Privacy | None = None  # beside ``privacy``, where that is about clients
    chance: float | None = None  # the share of the test data's most frequent class, which needs no learning
    test_examples: int | None = None  # how many there are
    at_chance: bool | None = None  # whether the test accuracy is no better than chance, see tacit.runs.chance
    client_names: tuple[str, ...] = ()  # by their numbers, where they have names that may be told
    # of the final model on each client's own data, with evaluate.clients; by names, or numbers as text
    client_scores: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def claimed(self) -> Privacy:
        """``privacy``, of a run that claims some."""
        if self.privacy is None:
            raise RunError(f"Mode {self.mode} claims no differential privacy, so there is no epsilon. {_PRIVATE}")
        return self.privacy

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the last test."""
        return next((dict(record.metrics) for record in reversed(self.rounds) if record.metrics), {})

    def __repr__(self) -> str:
        facts = dict(self._facts())
        return f"<Result {facts['run']}: test accuracy {facts['test accuracy']}, epsilon {facts['epsilon']}>"

    def __str__(self) -> str:
        facts, columns = self._facts(), self._rounds()
        wide = max(len(name) for name, _ in facts)
        widths = [max(len(row[place]) for row in columns) for place in range(len(columns[0]))]
        lines = [f"{name:<{wide}}  {value}" for name, value in facts]
        lines += ["", *("  ".join(cell.rjust(n) for cell, n in zip(row, widths, strict=True)) for row in columns)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the same table for a notebook."""
        facts = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
            for name, value in self._facts()
        )
        head, *rows = self._rounds()
        cells = "".join(f"<th>{html.escape(name)}</th>" for name in head)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        return f"<table>{facts}</table><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"

    def _facts(self) -> list[tuple[str, str]]:
        """Return what the short table says of the whole run."""
        took = f"{self.seconds:.1f} s, and {self.setup_seconds:.1f} s to begin"
        facts = [
            ("run", f"mode {self.mode}, {self.model} on {self.dataset} data, {self.clients} clients"),
            ("test accuracy", _percent(self.test_accuracy)),
            ("test loss", _number(self.test_loss)),
            *((name, f"{value:.4f}") for name, value in self.metrics.items()),
            ("epsilon", _claimed(self.privacy)),
        ]
        if self.client_names:
            some = (*self.client_names[:_ROWS], *(("...",) if len(self.client_names) > _ROWS else ()))
            facts.insert(1, ("clients", ", ".join(some)))
        if self.example_privacy is not None:
            facts.append(("of an example", _claimed(self.example_privacy)))
        if self.simulation:
            known = "that can be repeated" if self.privacy is None else "whose noise anybody with the seed can compute"
            facts.append(("seed", f"{self.seed}: a simulation {known}"))
        return [*facts, ("time", took), *([] if self.folder is None else [("folder", self.folder)])]

    def _rounds(self) -> list[tuple[str, ...]]:
        """Return the head and the rows of the table of rounds, the middle of a long run left out."""
        private = any(record.epsilon is not None for record in self.rounds)
        head = ("round", "train loss", "test loss", "accuracy", *(("epsilon",) if private else ()))
        rows = [
            (
                str(record.round),
                _number(record.train_loss),
                _number(record.test_loss),
                _percent(record.test_accuracy),
                *((_number(record.epsilon),) if private else ()),
            )
            for record in self.rounds
        ]
        if len(rows) > _ROWS:
            rows = [rows[0], ("...",) * len(head), *rows[2 - _ROWS :]]
        return [head, *rows]

    def to_dict(self) -> dict[str, Any]:
        """Return plain containers, as in ``result.json``: an infinite epsilon is the word "infinite"."""
        plain: dict[str, Any] = json.loads(self.to_json())
        return plain

    def to_json(self) -> str:
        """Return ``result.json``."""
        told = asdict(self)
        told["rounds"] = [_in_json(record) for record in told["rounds"]]
        for level in _LEVELS:
            told[level] = told[level] and _in_json(told[level])
        return json.dumps(told, indent=2, allow_nan=False) + "\n"

    @classmethod
    def read(cls, path: Path) -> Result:
        """Read a ``result.json``; fields of a later version are left out. What is damaged raises RunError."""
        data = foreign.read_plain(path, largest=_LARGEST)
        try:
            told = foreign.json_object(data, largest=_LARGEST)  # refuses what the next parser takes: NaN, names twice
            told["rounds"] = [_from_json(record) for record in told["rounds"]]
            for level in _LEVELS:
                told[level] = told.get(level) and _from_json(told[level])
            return _result().validate_json(json.dumps(told), strict=True)
        except (WireError, ValidationError, KeyError, TypeError, AttributeError) as error:
            raise RunError(
                f"{path} is damaged ({' '.join(str(error).split())[:200]}). Remove it; `tacit resume {path.parent}` "
                "then makes a new one."
            ) from error


def _claimed(privacy: Privacy | None) -> str:
    """Return epsilon with what it needs to mean something."""
    if privacy is None:
        return "no differential privacy is claimed"
    value = epsilon_text(privacy.epsilon, digits=4)
    return f"{value} at delta {privacy.delta:g} for one {privacy.unit} ({privacy.neighbours})"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else "infinite" if value == math.inf else f"{value:.4f}"


def _in_json(level: Mapping[str, Any]) -> dict[str, Any]:
    """Return a round, or a claim, with its epsilons as JSON can tell them."""
    return {name: to_json(value) if name in _EPSILONS else value for name, value in level.items()}


def _from_json(level: Mapping[str, Any]) -> dict[str, Any]:
    return {name: from_json(value) if name in _EPSILONS else value for name, value in level.items()}


@functools.cache
def _round() -> TypeAdapter[RoundRecord]:
    return TypeAdapter(RoundRecord)


@functools.cache
def _result() -> TypeAdapter[Result]:
    return TypeAdapter(Result)
