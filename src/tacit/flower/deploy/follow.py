"""Watch a run that another process is at: its journal tells of rounds, Flower's log of the rest."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.config.defaults import resolve
from tacit.config.run_config import RunConfig
from tacit.errors import RunError
from tacit.flower.deploy.processes import Processes
from tacit.flower.marks import ERROR, NOTE
from tacit.runs import journal
from tacit.runs.folder import JOURNAL, RESULT, records_of
from tacit.runs.observer import Observer
from tacit.runs.result import Result, RoundRecord

_PAUSE = 0.2
_LAST_WORDS = 30.0  # seconds for Flower to pass on what was said at the end


def follow(
    config: RunConfig,
    processes: Processes,
    *,
    run: str,
    superlink: str,
    observer: Observer,
    earlier: Sequence[journal.Record] = (),
) -> Result:
    """Pass a run's progress to ``observer`` and return its result.

    Args:
        config: the run's; names its folder.
        processes: has the process that sent the run, which prints its log and ends with it, and the SuperLink.
        run: the name of the former.
        superlink: of the latter.
        observer: is told.
        earlier: what the journal held before, of a run that goes on.
    """
    assert config.out is not None
    lines = _Lines(path=processes.log(run))
    records = _Records(path=config.out / JOURNAL, _read=len(earlier))
    rounds = resolve(config).federate.rounds
    while True:
        ended = processes.status(run) is not None  # before the last look, so that nothing is missed
        failure = _tell_lines(lines, observer)
        complete = _tell_records(records, observer, rounds, earlier)
        if failure is not None:
            raise RunError(failure)
        if complete and (config.out / RESULT).exists():
            result = Result.read(config.out / RESULT)
            end = time.monotonic() + _LAST_WORDS
            while processes.status(run) is None and time.monotonic() < end:
                time.sleep(_PAUSE)
            _tell_lines(lines, observer)
            observer.finished(result)
            return result
        if processes.status(superlink) is not None:
            raise RunError(f"The SuperLink ended. The end of its log:\n{processes.last_lines(superlink)}")
        if ended:
            raise RunError(
                f"The run ended without a result. What Flower said of it:\n{processes.last_lines(run)}\n"
                f"The end of the SuperLink's log:\n{processes.last_lines(superlink)}"
            )
        time.sleep(_PAUSE)


@dataclass(kw_only=True)
class _Lines:
    """Whole new lines of a file that grows."""

    path: Path
    _read: int = 0

    def new(self) -> list[str]:
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.decode(errors="replace").splitlines()


@dataclass(kw_only=True)
class _Records:
    """New records of a journal."""

    path: Path
    _read: int = 0

    def new(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        records = list(records_of(self.path.parent))[self._read :]
        self._read += len(records)
        return records


def _tell_lines(lines: _Lines, observer: Observer) -> str | None:
    """Pass notes on, and return why the run failed if it did."""
    for line in lines.new():
        if line.startswith(NOTE):
            observer.note(line.removeprefix(NOTE))
        elif line.startswith(ERROR):
            return line.removeprefix(ERROR)
    return None


def _tell_records(records: _Records, observer: Observer, rounds: int, earlier: Sequence[journal.Record]) -> bool:
    """Pass rounds on, and return whether the last is done."""
    complete = False
    for record in records.new():
        if record["type"] in ("start", "resume"):
            began = next((one for one in earlier if one["type"] == "start"), record)
            done = {one["round"]: RoundRecord.of(one) for one in earlier if one["type"] == "round"}
            observer.started(title=began["title"], rounds=rounds, done=tuple(done[number] for number in sorted(done)))
        elif record["type"] == "attempt":
            observer.progress(replied=0, asked=record["clients"])
        elif record["type"] == "round":
            observer.round_done(RoundRecord.of(record))
        complete = complete or record["type"] == "end"
    return complete
