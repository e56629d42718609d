"""How far a run got, as its folder tells; the journal is read record by record and never held as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import RunError
from tacit.runs.checkpoint import Checkpoint
from tacit.runs.folder import JOURNAL, RESULT, RunFolder, records_of
from tacit.runs.result import Result, RoundRecord
from tacit.storage import cannot_read, is_there


@dataclass(frozen=True, kw_only=True)
class Progress:
    """All that going on with a run depends on, beside its configuration and its charges."""

    key: bytes
    simulation: bool
    dataset: str
    examples: int
    checkpoint: Checkpoint | None
    done: tuple[RoundRecord, ...]
    unrecorded: Mapping[str, Any] | None  # the checkpoint's round, where the journal does not have it yet
    deployed: bool  # whether its clients are on other machines

    @classmethod
    def of(cls, folder: RunFolder) -> Progress:
        """Read a folder; a journal that lacks a round, or fields, is refused."""
        checkpoint = folder.checkpoint()
        last = 0 if checkpoint is None else checkpoint.round_number
        with damage_named(folder.path / JOURNAL):
            start: Mapping[str, Any] | None = None
            rounds: dict[int, RoundRecord] = {}
            for record in folder.records():
                if record["type"] == "start" and start is None:
                    start = record
                elif record["type"] == "round" and record["round"] <= last:
                    rounds[record["round"]] = RoundRecord.of(record)
            if start is None:
                raise RunError(
                    f"{folder.path / JOURNAL} is damaged: it does not begin with the record of the start. Restore it, "
                    "or run anew with --force."
                )
            unrecorded = None
            if checkpoint is not None and checkpoint.record is not None and last not in rounds:
                unrecorded = checkpoint.record
                rounds[last] = RoundRecord.of(dict(unrecorded))
            missing = next((number for number in range(1, last + 1) if number not in rounds), None)
            if missing is not None:
                raise RunError(
                    f"The journal of {folder.path} lacks round {missing}, though the checkpoint is of round {last}: "
                    "it was damaged. Restore journal.jsonl, or run anew with --force."
                )
            return cls(
                key=bytes.fromhex(start["key"]),
                simulation=bool(start["simulation"]),
                dataset=str(start["dataset"]),
                examples=int(start["examples"]),
                checkpoint=checkpoint,
                done=tuple(rounds[number] for number in range(1, last + 1)),
                unrecorded=unrecorded,
                deployed=bool(start.get("deployed")),
            )


def charges_of(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Yield what was charged for the releases of a run, tries that failed included."""
    with damage_named(folder / JOURNAL):
        for record in records_of(folder):
            if record["type"] == "attempt" and record["charge"]:
                yield record["charge"]


def example_charges_of(folder: Path) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Yield what was charged to the clients' examples, try by try."""
    with damage_named(folder / JOURNAL):
        for record in records_of(folder):
            if record.get("example_charges"):
                yield record["example_charges"]


def complete(folder: Path) -> Result | None:
    """Return the result of a run that is complete, or None."""
    if not is_there(folder / RESULT) or not any(record["type"] == "end" for record in records_of(folder)):
        return None
    return result_of(folder)


def result_of(folder: Path) -> Result | None:
    """Return what ``result.json`` holds; None where there is none."""
    path = folder / RESULT
    if not is_there(path):
        return None
    try:
        return Result.read(path)
    except OSError as error:
        raise cannot_read(path, error) from error


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turn what records of an unexpected form break into a sentence about the file."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise RunError(
            f"{path} is damaged: a record lacks a field, or has one of another form ({type(error).__name__}: {error}). "
            "Restore it, or run anew with --force."
        ) from error
