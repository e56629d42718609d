"""Makes the runs of a study that are not made yet, several at once where there are several workers.

Every worker is a process. One that dies takes down the run it was at and no other: that run is reported as failed, and
a new process goes on with those that wait. Workers end with the process that started them, however that ended.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection as connections
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from tacit.config import run_config as configuration
from tacit.errors import ConfigError, RunError, TacitError
from tacit.limits import cores
from tacit.runs.folder import JOURNAL, RESULT
from tacit.runs.observer import Silent
from tacit.runs.result import Result, RoundRecord
from tacit.storage import is_there, remove, write_atomically
from tacit.studies.folder import claim, most_together, place_of
from tacit.studies.plan import Study, with_values
from tacit.studies.results import Repeat

TRACEBACK = "traceback.txt"
Settings = Mapping[str, Any]  # all of a run's, nested; `out` is its folder
OnRound = Callable[[int, int], None]  # a run's place, and how many of its rounds are done
OnDone = Callable[[int, Repeat], None]  # a run's place, and what came of it


@dataclass(frozen=True, kw_only=True)
class PoolResult:
    """What came of a run: its result, or what went wrong."""

    index: int  # its place among those that were to be made
    result: Result | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Performed:
    """What came of a study."""

    runs: tuple[Repeat, ...]  # in the order of the plan
    together: int  # how many went on at a time, at the most, over all sessions


def perform(
    study: Study,
    *,
    out: Path,
    workers: int | None = None,
    force: bool = False,
    on_done: OnDone | None = None,
    on_round: OnRound | None = None,
) -> Performed:
    """Make every run of a study that ``out`` does not hold yet, and return what came of all of them.

    A run that fails is reported in its place; the others go on. Stopped at any moment, the same call goes on.

    Args:
        study: what to run.
        out: the folder of the study, with a folder for each run below ``runs/``.
        workers: processes; by default one per core, or a single one on a GPU.
        force: begin anew in a folder that holds a study of this kind.
        on_done: is told of every run that has come to its end, by its place in the plan; those of an earlier session
            come first.
        on_round: is told how many rounds a run has done, by its place in the plan; none when it begins.
    """
    workers = workers_for(workers, study.runs[0].settings, len(study.runs))
    claim(out, study, force=force)
    done: dict[int, Repeat] = {}

    def keep(place: int, result: Result | None, error: str | None = None) -> None:
        run = study.runs[place]
        folder = str(place_of(out, run))
        done[place] = Repeat(name=run.name, folder=folder, seed=run.seed, result=result, error=error)
        if on_done is not None:
            on_done(place, done[place])

    left: list[int] = []
    for place, run in enumerate(study.runs):
        result = finished(place_of(out, run))
        if result is None:
            left.append(place)
        else:
            keep(place, result)
    jobs = [with_values(study.runs[place].settings, {"out": str(place_of(out, study.runs[place]))}) for place in left]
    at_a_time = most_together(out, min(workers, len(left)))

    def moved(index: int, rounds: int) -> None:
        if on_round is not None:
            on_round(left[index], rounds)

    with closing(run_all(jobs, workers=workers, on_round=moved)) as outcomes:
        for outcome in outcomes:
            keep(left[outcome.index], outcome.result, outcome.error)
    return Performed(runs=tuple(done[place] for place in range(len(study.runs))), together=at_a_time)


def finished(folder: Path) -> Result | None:
    """Return the result of a run that is complete, or None."""
    try:
        return Result.read(folder / RESULT)
    except (OSError, RunError):
        return None


def workers_for(asked: int | None, settings: Mapping[str, Any], runs: int) -> int:
    """Return how many processes to use: as many as were asked for, or one per core, or a single one on a GPU."""
    if asked is not None and asked < 1:
        raise ConfigError(f"Expected one worker or more, got {asked}.")
    if asked is None:
        on_gpu = configuration.from_mapping(settings).gpu >= 0
        asked = 1 if on_gpu else cores()
    return min(asked, runs)


def run_all(
    runs: Sequence[Settings], *, workers: int, on_round: OnRound | None = None
) -> Generator[PoolResult, None, None]:
    """Make runs, several at once where there are several workers, and yield each as it is done."""
    on_round = on_round or (lambda _index, _rounds: None)
    jobs = [_Job(index=index, settings=settings) for index, settings in enumerate(runs)]
    if workers == 1 or len(jobs) <= 1:
        for job in jobs:
            on_round(job.index, 0)
            yield _attempt(job, on_round)
        return
    narrow = [_Job(index=job.index, settings=_narrow(job.settings)) for job in jobs]
    yield from _together(narrow, min(workers, len(jobs)), on_round)


@dataclass(frozen=True, kw_only=True)
class _Job:
    """A run as a worker is handed it."""

    index: int
    settings: Settings

    @property
    def folder(self) -> Path:
        """Where the run is to be."""
        return Path(self.settings["out"])


class _Worker:
    """A process that makes one run after another."""

    def __init__(self) -> None:
        context = get_context("spawn")
        self.connection, far = context.Pipe()
        self._process: SpawnProcess = context.Process(target=_serve, args=(far,), daemon=True)
        with _deaf_to_interrupts():  # the child inherits it: Ctrl-C is for the parent, who ends its workers
            self._process.start()
        far.close()
        self.job: _Job | None = None

    def give(self, job: _Job) -> None:
        """Hand it a run; one that has died meanwhile is noticed when it should answer."""
        self.job = job
        with suppress(OSError):
            self.connection.send(job)

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
        if self.job is not None:
            self._process.terminate()
        self._process.join()


def _together(jobs: Sequence[_Job], workers: int, on_round: OnRound) -> Generator[PoolResult, None, None]:
    waiting = list(jobs)
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
                assert worker.job is not None
                told: tuple[int, int] | PoolResult
                try:
                    told = ready.recv()
                except (EOFError, OSError):
                    told = PoolResult(index=worker.job.index, error=worker.epitaph())
                    del busy[ready]
                    worker.job = None
                    worker.end()
                    next_run()
                else:
                    if isinstance(told, PoolResult):
                        del busy[ready]
                        worker.job = None
                        next_run(worker)
                if isinstance(told, PoolResult):
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
            job: _Job = connection.recv()
        except EOFError:
            return
        connection.send((job.index, 0))  # so that whoever watches can name it while it loads
        connection.send(_attempt(job, lambda index, rounds: connection.send((index, rounds))))


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


def _narrow(settings: Settings) -> Settings:
    """Return a run with one training thread, unless a number was asked for: the processes fill the cores."""
    if (settings.get("train") or {}).get("workers") is not None:
        return settings
    return with_values(settings, {"train.workers": 1})


def _attempt(job: _Job, on_round: OnRound) -> PoolResult:
    try:
        return PoolResult(index=job.index, result=_result(job, _Counting(job.index, on_round)))
    except TacitError as error:
        return PoolResult(index=job.index, error=str(error))
    except Exception as error:  # a fault of a user's model, or ours, must not lose the other runs
        path = job.folder / TRACEBACK
        with suppress(TacitError):
            write_atomically(path, traceback.format_exc().encode())
        return PoolResult(
            index=job.index, error=f"{type(error).__name__}: {error} (an unexpected error; its place is in {path})"
        )


def _result(job: _Job, observer: _Counting) -> Result:
    """Go on with a run that has begun, or begin it where there is none that can go on."""
    from tacit.runs import run as start

    if is_there(job.folder / JOURNAL):
        remove(job.folder / RESULT)  # one that could be read would not be run again
        try:
            return start.resume(job.folder, observer=observer)
        except (ConfigError, RunError):
            pass  # damaged, or stopped before its first round; what is wrong with the settings shows again below
    return start.run(configuration.from_mapping(job.settings), observer=observer, force=True)


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
