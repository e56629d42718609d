"""How far a run got, as its folder tells; the journal is read record by record and never held as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tacit.errors import RunError
from tacit.runs.folder import JOURNAL, RESULT, Checkpoint, RunFolder, must_have_tried, records_of
from tacit.runs.journal import Attempt, End, Round, Start
from tacit.runs.result import Result, RoundRecord
from tacit.storage import cannot_read, is_there


@dataclass(frozen=True, kw_only=True)
class Progress:
    """All that going on with a run depends on, beside its configuration and its charges."""

    start: Start
    checkpoint: Checkpoint | None
    done: tuple[RoundRecord, ...]
    unrecorded: Round | None  # the checkpoint's round, where the journal does not have it yet

    @classmethod
    def of(cls, folder: RunFolder) -> Progress:
        """Read a folder; a journal that lacks a round, or fields, is refused."""
        checkpoint = folder.checkpoint()
        last = 0 if checkpoint is None else checkpoint.round_number
        start: Start | None = None
        rounds: dict[int, RoundRecord] = {}
        tries = 0  # of the checkpoint's round
        for record in folder.records():
            if isinstance(record, Start) and start is None:
                start = record
            elif isinstance(record, Attempt):
                tries += record.round == last
            elif isinstance(record, Round) and record.round <= last:
                rounds[record.round] = record.record
        if start is None:
            raise RunError(
                f"{folder.path / JOURNAL} is damaged: it does not begin with the record of the start. Restore it, "
                "or run anew with --force."
            )
        unrecorded = None
        if checkpoint is not None and checkpoint.record is not None:
            if last not in rounds:
                unrecorded = checkpoint.record
                must_have_tried(unrecorded, tries, folder.path)
            elif rounds[last] != checkpoint.record.record:
                raise RunError(
                    f"The journal of {folder.path} has another round {last} than its checkpoint: they are of two "
                    "runs, or one was changed. Restore both, or run anew with --force."
                )
            rounds[last] = checkpoint.record.record
        missing = next((number for number in range(1, last + 1) if number not in rounds), None)
        if missing is not None:
            raise RunError(
                f"The journal of {folder.path} lacks round {missing}, though the checkpoint is of round {last}: "
                "it was damaged. Restore journal.jsonl, or run anew with --force."
            )
        return cls(
            start=start,
            checkpoint=checkpoint,
            done=tuple(rounds[number] for number in range(1, last + 1)),
            unrecorded=unrecorded,
        )


def complete(folder: Path) -> Result | None:
    """Return the result of a run that is complete, or None."""
    if not is_there(folder / RESULT) or not any(isinstance(record, End) for record in records_of(folder)):
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
