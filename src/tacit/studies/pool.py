"""Many runs, each in a folder of its own, several at once where there are several workers.

Every worker is a process. One that dies takes down the run it was at and no other: that run is reported as failed, and
a new process goes on with those that wait. Workers end with the process that started them, however that ended.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import connection as connections
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from tacit.config import overrides
from tacit.config import run_config as configuration
from tacit.errors import ConfigError, RunError, TacitError
from tacit.runs.folder import JOURNAL, RESULT
from tacit.runs.observer import Silent
from tacit.runs.result import Result, RoundRecord
from tacit.storage import is_there, remove, write_atomically

TRACEBACK = "traceback.txt"
OnRound = Callable[[int, int], None]  # a run's index, and how many of its rounds are done


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One run that is to be made."""

    index: int
    settings: dict[str, Any]
    folder: Path  # settings["out"] too


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a run: its result, or what went wrong."""

    index: int
    result: Result | None = None
    error: str | None = None


def finished(folder: Path) -> Result | None:
    """Return the result of a run that is complete, or None."""
    try:
        return Result.read(folder / RESULT)
    except (OSError, RunError):
        return None


def workers_for(asked: int | None, settings: Mapping[str, Any], runs: int) -> int:
    """Return how many processes to use: as many as were asked for, or one a core, or a single one on a GPU."""
    if asked is not None and asked < 1:
        raise ConfigError(f"Expected one worker or more, got {asked}.")
    if asked is None:
        on_gpu = configuration.from_mapping(settings).gpu >= 0
        affinity = getattr(os, "sched_getaffinity", None)  # not on every system
        cores = (len(affinity(0)) if affinity is not None else os.cpu_count()) or 1
        asked = 1 if on_gpu else cores
    return min(asked, runs)


def with_values(settings: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with some dotted keys set; ``settings`` stay as they are."""
    full = {key: dict(value) if isinstance(value, Mapping) else value for key, value in settings.items()}
    for key, value in values.items():
        overrides.put(full, key, value)
    return full


def run_all(
    planned: Sequence[Planned], *, workers: int, on_round: OnRound | None = None
) -> Generator[Outcome, None, None]:
    """Make runs, several at once where there are several workers, and yield each as it is done."""
    on_round = on_round or (lambda _index, _rounds: None)
    if workers == 1 or len(planned) <= 1:
        for one in planned:
            yield _attempt(one, on_round)
        return
    yield from _together([_narrow(one) for one in planned], min(workers, len(planned)), on_round)


class _Worker:
    """A process that makes one run after another."""

    def __init__(self) -> None:
        context = get_context("spawn")
        self.connection, far = context.Pipe()
        self._process: SpawnProcess = context.Process(target=_serve, args=(far,), daemon=True)
        with _deaf_to_interrupts():  # the child inherits it: Ctrl-C is for the parent, who ends its workers
            self._process.start()
        far.close()
        self.planned: Planned | None = None

    def give(self, planned: Planned) -> None:
        """Hand it a run; one that has died meanwhile is noticed when it should answer."""
        self.planned = planned
        with suppress(OSError):
            self.connection.send(planned)

    def epitaph(self) -> str:
        """Return how the process ended."""
        self._process.join()
        code = self._process.exitcode or 0
        how = (
            f"was killed by signal {-code}; was there too little memory?" if code < 0 else f"ended with status {code}."
        )
        return f"Its process {how} The same command goes on with it, perhaps with fewer --workers."

    def end(self) -> None:
        """Stop the process, at once if it is at a run."""
        self.connection.close()
        if self.planned is not None:
            self._process.terminate()
        self._process.join()


def _together(planned: Sequence[Planned], workers: int, on_round: OnRound) -> Generator[Outcome, None, None]:
    waiting = list(planned)
    busy: dict[Connection, _Worker] = {}

    def next_run(worker: _Worker | None = None) -> None:
        if waiting:
            worker = worker or _Worker()
            worker.give(waiting.pop(0))
            busy[worker.connection] = worker
        elif worker is not None:
            worker.end()

    try:
        for _ in range(workers):
            next_run()
        while busy:
            for ready in connections.wait(list(busy)):
                assert isinstance(ready, Connection)
                worker = busy[ready]
                assert worker.planned is not None
                told: tuple[int, int] | Outcome
                try:
                    told = ready.recv()
                except (EOFError, OSError):
                    told = Outcome(index=worker.planned.index, error=worker.epitaph())
                    del busy[ready]
                    worker.planned = None
                    worker.end()
                    next_run()
                else:
                    if isinstance(told, Outcome):
                        del busy[ready]
                        worker.planned = None
                        next_run(worker)
                if isinstance(told, Outcome):
                    yield told
                else:
                    on_round(*told)
    finally:
        for worker in busy.values():
            worker.end()


def _serve(connection: Connection) -> None:
    """Make the runs that come over the connection until it is closed."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch, not yet loaded, keeps to one thread
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            planned: Planned = connection.recv()
        except EOFError:
            return
        connection.send(_attempt(planned, lambda index, rounds: connection.send((index, rounds))))


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connections.wait([parent.sentinel])
        os._exit(1)  # a run is safe at any moment; going on unseen would keep its folder from the next session


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _narrow(planned: Planned) -> Planned:
    """Return the run with one training thread, unless a number was asked for: the processes fill the cores."""
    if (planned.settings.get("train") or {}).get("workers") is not None:
        return planned
    return replace(planned, settings=with_values(planned.settings, {"train.workers": 1}))


def _attempt(planned: Planned, on_round: OnRound) -> Outcome:
    try:
        return Outcome(index=planned.index, result=_result(planned, _Counting(planned.index, on_round)))
    except TacitError as error:
        return Outcome(index=planned.index, error=str(error))
    except Exception as error:  # a fault of a user's model, or ours, must not lose the other runs
        path = planned.folder / TRACEBACK
        with suppress(TacitError):
            write_atomically(path, traceback.format_exc().encode())
        return Outcome(
            index=planned.index, error=f"{type(error).__name__}: {error} (an unexpected error; its place is in {path})"
        )


def _result(planned: Planned, observer: _Counting) -> Result:
    """Go on with a run that has begun, or begin it where there is none that can go on."""
    from tacit.runs import run as start

    if is_there(planned.folder / JOURNAL):
        remove(planned.folder / RESULT)  # one that could be read would not be run again
        try:
            return start.resume(planned.folder, observer=observer)
        except (ConfigError, RunError):
            pass  # damaged, or stopped before its first round; what is wrong with the settings shows again below
    return start.run(configuration.from_mapping(planned.settings), observer=observer, force=True)


class _Counting(Silent):
    """Tells how many rounds are done."""

    def __init__(self, index: int, on_round: OnRound) -> None:
        self._index = index
        self._on_round = on_round
        self._done = 0

    def started(self, *, title: str, rounds: int, done: tuple[RoundRecord, ...]) -> None:
        """Count the rounds of an earlier session."""
        del title, rounds
        self._done = len(done)
        self._on_round(self._index, self._done)

    def round_done(self, record: RoundRecord) -> None:
        """Count one more."""
        del record
        self._done += 1
        self._on_round(self._index, self._done)
