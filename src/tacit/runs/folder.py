"""The folder of a run and what lies in it: the journal, and the state after the last round."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from tacit import foreign
from tacit.config.resolved import Resolved
from tacit.config.run_config import from_mapping, from_yaml
from tacit.errors import RunError, WireError
from tacit.federated.plan import State
from tacit.logs import tensorboard
from tacit.logs.mlflow import RECORD as MLFLOW
from tacit.modes.catalogue import resolve
from tacit.runs import journal
from tacit.runs.journal import Attempt, Record, Round
from tacit.storage import cannot_read, cannot_write, is_there, make_folder, remove, write_atomically
from tacit.vectors import Vector

CONFIG, JOURNAL, CHECKPOINT, MODEL, RESULT, REPORT = (
    "config.yaml",
    "journal.jsonl",
    "checkpoint.safetensors",
    "model.safetensors",
    "result.json",
    "report.html",
)
_OURS = (CONFIG, JOURNAL, CHECKPOINT, MODEL, RESULT)
WALL = "wall"
_SERVER = "server."
_CANARIES = "canaries"
_LARGEST = 1 << 26  # bytes of a record
_PRIVATE, _OWNER = 0o700, 0o600  # the root of a run's randomness is in its journal, or as a seed in its settings


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """All that the next round depends on, and the seconds of the run so far.

    The round's journal record travels along, so that a crash between the checkpoint and the journal loses neither.
    """

    round_number: int
    model: Vector
    state: State
    mechanism: bytes  # what the next round's mechanism tells its clients
    seconds: Mapping[str, float]  # of all rounds so far: by stage, and WALL for the whole of them
    record: Round | None
    canaries: NDArray[np.float64] | None = None  # their scores so far

    def write(self, path: Path) -> None:
        """Replace the file at ``path``."""
        tensors: dict[str, Any] = {"model": self.model}
        tensors |= {_SERVER + name: vector for name, vector in self.state.items()}
        tensors |= {} if self.canaries is None else {_CANARIES: self.canaries}
        metadata = {
            "round": str(self.round_number),
            "mechanism": self.mechanism.hex(),
            "seconds": json.dumps(dict(self.seconds), allow_nan=False),
            "record": json.dumps(None if self.record is None else self.record.to_dict(), allow_nan=False),
        }
        write_atomically(path, save(tensors, metadata), mode=0o600)  # beside the journal, as private as that

    @classmethod
    def read(cls, path: Path) -> Checkpoint:
        """Read the file at ``path``."""
        try:
            foreign.open_plain(path).close()  # a pipe would be waited for
            with safe_open(path, "numpy") as file:
                metadata = file.metadata()
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            return cls(
                round_number=int(metadata["round"]),
                mechanism=bytes.fromhex(metadata["mechanism"]),
                seconds={stage: float(spent) for stage, spent in foreign.json_object(metadata["seconds"]).items()},
                record=_round_in(foreign.json_value(metadata["record"], largest=_LARGEST)),
                model=tensors.pop("model"),
                canaries=tensors.pop(_CANARIES, None),
                state={name.removeprefix(_SERVER): vector for name, vector in tensors.items()},
            )
        except OSError as error:
            raise cannot_read(path, error) from error
        except SafetensorError as error:
            raise RunError(f"The checkpoint {path} is damaged: {error}.") from error
        except (WireError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(f"{path} is not a checkpoint of a run: {error!r}.") from error


def _round_in(told: Any) -> Round | None:
    record = None if told is None else journal.record_of(told)
    if record is not None and not isinstance(record, Round):
        raise ValueError(f"expected the record of a round, got one of {record.kind!r}")
    return record


class RunFolder:
    """Owns a run's folder while the run goes on; closing it lets another process in.

    A new run is made in this order: the journal's lock, an empty journal, the configuration, the journal's first
    record. Until that record is on disk nothing was trained, sent or charged (:func:`unborn`).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = journal.Journal(path / JOURNAL)

    @staticmethod
    def check(path: Path, *, force: bool) -> None:
        """Refuse a folder that holds another run, unless ``force`` is given."""
        present = [name for name in _OURS if is_there(path / name)]
        if present and not force and not unborn(path):
            raise RunError(
                f"{path} holds another run ({', '.join(present)}). Go on with it by `tacit resume {path}`, "
                "choose another folder with --out, or replace it with --force."
            )

    @classmethod
    def create(cls, path: Path, *, config: str, force: bool) -> RunFolder:
        """Make the folder of a new run; one that holds another run is refused unless ``force`` is given."""
        cls.check(path, force=force)
        make_folder(path, mode=_PRIVATE)
        folder = cls(path)  # the lock comes first: a run that another process is at is not replaced
        try:
            cls.check(path, force=force)  # another process may have come and gone meanwhile
            folder._clear()
            write_atomically(path / CONFIG, config.encode(), mode=_OWNER)
        except BaseException:
            folder.close()
            raise
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open the folder of a run that has begun."""
        must_have_begun(path)
        folder = cls(path)
        try:
            folder.journal.renew()
        except BaseException:
            folder.close()
            raise
        return folder

    def records(self) -> Iterator[Record]:
        """Yield the journal's records."""
        return records_of(self.path)

    def checkpoint(self) -> Checkpoint | None:
        """Return the last checkpoint, or None before the first."""
        path = self.path / CHECKPOINT
        return Checkpoint.read(path) if is_there(path) else None

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint."""
        checkpoint.write(self.path / CHECKPOINT)

    def _clear(self) -> None:
        """Take an earlier run away; until its journal is emptied, what is left of it can still be resumed."""
        for name in (RESULT, MODEL, CHECKPOINT, REPORT, MLFLOW):
            remove(self.path / name)
        try:
            tensorboard.clear(self.path)
        except OSError as error:
            raise cannot_write(self.path / tensorboard.FOLDER, error) from error
        self.journal.clear()
        remove(self.path / CONFIG)

    def close(self) -> None:
        """Let go of the folder."""
        self.journal.close()


def unborn(path: Path) -> bool:
    """Return whether a run was begun in ``path`` and ended before its first record: nothing of it is worth keeping."""
    if any(is_there(path / name) for name in (CHECKPOINT, MODEL, RESULT)):
        return False
    if is_there(path / JOURNAL):
        return journal.is_empty(path / JOURNAL)
    return is_there(journal.lock_of(path / JOURNAL))


def config_of(path: Path) -> Resolved:
    """Return the configuration of the run in a folder."""
    return resolve(from_mapping(from_yaml(path / CONFIG)))


def must_have_begun(path: Path) -> None:
    """Refuse a folder without a run, and one whose run ended while it was being made."""
    if unborn(path):
        raise RunError(
            f"The run in {path} ended while it was being made. Nothing was trained, sent or charged, so nothing is "
            "lost: give its `tacit run` command again, which starts anew here."
        )
    missing = [name for name in (CONFIG, JOURNAL) if not is_there(path / name)]
    if missing:
        raise RunError(
            f"{path} is not the folder of a run: it has no {' and no '.join(missing)}. "
            "Name the folder that `tacit run --out` wrote."
        )


def records_of(path: Path) -> Iterator[Record]:
    """Yield the records of the journal in a run's folder; one that lost the try of a round that is done is refused.

    A round is charged by its tries. Without one of them, or with one of a kind that nobody knows, less would be counted
    than was released.
    """
    tried: dict[int, int] = {}  # how many tries of each round there are, from the first without a gap
    for record in journal.read(path / JOURNAL):
        if isinstance(record, Attempt):
            count = tried.get(record.round, 0)
            tried[record.round] = count + 1 if record.attempt == count else count
        elif isinstance(record, Round):
            must_have_tried(record, tried.get(record.round, 0), path)
        yield record


def must_have_tried(done: Round, tries: int, path: Path) -> None:
    """Refuse a journal with fewer tries of a round than it took: what the others cost is lost."""
    if tries < max(1, done.attempts):
        raise RunError(
            f"{path / JOURNAL} is damaged: round {done.round} was done at try {done.attempts}, and of its tries, which "
            f"say what they cost, {tries} are there. Restore it, or run anew with --force."
        )
