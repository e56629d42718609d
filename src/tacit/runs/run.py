"""Begin a run, or go on with one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.config.run_config import RunConfig
from tacit.errors import DataError, RunError, TacitError
from tacit.modes.catalogue import resolve
from tacit.modes.settings import suited
from tacit.randomness import Randomness
from tacit.runs.folder import RunFolder, config_of, must_have_begun
from tacit.runs.journal import Resume, Stopped
from tacit.runs.observer import Observer, watching
from tacit.runs.progress import Progress, complete
from tacit.runs.result import Result

GIVEN = "given"  # the data set's name where a user's own arrays or data sets were passed


def is_own(dataset: str | None) -> bool:
    """Return whether data are a user's own, given in memory or in a file, and not one of the public data sets."""
    return dataset == GIVEN or (dataset or "").lower().endswith(".csv")


if TYPE_CHECKING:
    from collections.abc import Iterator

    from tacit.runs.book import Book
    from tacit.runs.connection import Connection
    from tacit.runs.job import Job
    from tacit.runs.runner import Runner


def run(config: RunConfig, *, observer: Observer | None = None, force: bool = False, quiet: bool = False) -> Result:
    """Train as ``config`` says and return the result; a line per round says how far it is.

    With ``config.out`` the run is kept in that folder and can be resumed; without it nothing is written.

    Args:
        config: what to run.
        observer: is told of every round, in place of the lines.
        force: replace a run that the folder holds already.
        quiet: print nothing.
    """
    observer = watching(observer, quiet=quiet)
    observer.doing("loading PyTorch")
    from tacit.runs import job as jobs
    from tacit.runs import logged

    logged.check(config)
    randomness = Randomness.of(seed=config.seed)

    def build(asked: RunConfig, *told: str) -> Job:
        full, said = suited(asked)
        for note in said:
            observer.note(note)
        return jobs.build(resolve(full), randomness, observer, notes=told + said)

    def build_or_fall_back() -> Job:
        """Go on with `digits` where MNIST can't be had and nobody named it, and say so."""
        try:
            return build(config)
        except DataError as error:
            if "name" in config.data.model_fields_set or config.data.folder is not None:
                raise
            note = f"MNIST can't be had, so this run uses the small `digits` set instead. {error}"
        observer.note(note)
        return build(config.model_copy(update={"data": config.data.model_copy(update={"name": "digits"})}), note)

    return execute(build_or_fall_back, randomness, config.out, observer, force=force)


def execute(
    build: Callable[[], Job],
    randomness: Randomness,
    out: Path | None,
    observer: Observer,
    *,
    force: bool = False,
    connect: Callable[[Job], Connection] | None = None,
    about: Callable[[], Mapping[str, Any]] = dict,
    book: Book | None = None,
) -> Result:
    """Build a job and run it from its first round, in the folder ``out`` if there is one.

    ``connect`` makes the way to the parties; by default the configuration says which. ``about`` returns what else the
    journal's first record says, once the job is built. ``book`` holds what was released about the same clients before,
    and is added to.
    """
    from tacit.runs import environment
    from tacit.runs.logged import logged

    start = time.perf_counter()
    if out is not None:
        RunFolder.check(out, force=force)  # before the data are loaded: a refusal should come at once
    job = build()
    folder = None
    try:
        observer.doing("preparing the parties")  # keys, where there are any
        connection = (connect or _connection)(job)
        if out is not None:
            folder = RunFolder.create(out, config=job.config.to_yaml(), force=force)
            folder.journal.append(replace(environment.beginning(job, randomness), **about()))
            for record in [] if book is None else book.earlier():
                folder.journal.append(record)
        with _reasons_kept(folder), logged(job.config, observer) as told:
            runner = _runner(job)(
                job=job,
                connection=connection,
                randomness=randomness,
                folder=folder,
                observer=told,
                earlier=() if book is None else book.attempts,
                book=book,
            )
            return runner.run(None, (), setup_seconds=time.perf_counter() - start)
    finally:
        job.close()
        if folder is not None:
            folder.close()


@contextmanager
def _reasons_kept(folder: RunFolder | None) -> Iterator[None]:
    """Leave in the journal why a run stopped, so that its report can say so; the error goes on."""
    try:
        yield
    except (TacitError, KeyboardInterrupt) as error:
        if folder is not None:
            reason = "It was interrupted." if isinstance(error, KeyboardInterrupt) else str(error)
            with suppress(TacitError):  # a full disk is told of once
                folder.journal.append(Stopped(reason=reason))
        raise


def _connection(job: Job) -> Connection:
    """Return the way to the parties that the configuration asks for."""
    from tacit.runs.connection import InProcess

    if job.config.engine == "flower":
        from tacit.flower.simulation import Simulation

        return Simulation(job)
    return InProcess(job)


def _runner(job: Job) -> type[Runner]:
    """Return what runs a job: rounds of a federation, or one data holder alone."""
    from tacit.runs.runner import Runner
    from tacit.runs.single_holder import SingleHolderRunner

    return SingleHolderRunner if job.config.single_holder else Runner


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """A run whose parties are on other machines.

    Attributes:
        build: makes its job, with the randomness that the run began with.
        connect: makes the way to the parties.
    """

    build: Callable[[Randomness], Job]
    connect: Callable[[Job], Connection]


def resume(
    path: Path | str, *, observer: Observer | None = None, elsewhere: Elsewhere | None = None, quiet: bool = False
) -> Result:
    """Go on with the run in ``path`` after a crash or an interruption; a finished run's result is returned as it is."""
    path = Path(path)
    observer = watching(observer, quiet=quiet)
    must_have_begun(path)
    result = complete(path)  # asks for no lock and writes nothing: the folder may be an archive's
    if result is not None:
        observer.note(f"{path} is complete: all {len(result.rounds)} rounds are done.")
        observer.finished(result)
        return result
    folder = RunFolder.open(path)
    try:
        return _go_on(folder, observer, elsewhere)
    finally:
        folder.close()


def _go_on(folder: RunFolder, observer: Observer, elsewhere: Elsewhere | None) -> Result:
    start = time.perf_counter()
    observer.doing("loading PyTorch")
    from tacit.runs import environment, logged
    from tacit.runs import job as jobs

    config = config_of(folder.path).model_copy(update={"out": folder.path})  # it may have been moved since
    logged.check(config)
    progress = Progress.of(folder)
    began = progress.start
    if elsewhere is None and began.deployed:
        raise RunError(
            f"The clients of {folder.path} are SuperNodes: go on with it where it was begun, by the same command "
            f"(`flwr run`, or `tacit deploy local` with --out {folder.path})."
        )
    if elsewhere is None and began.dataset == GIVEN:
        raise RunError(
            f"{folder.path} was trained by Federation.fit on data that were given in memory, which it does not hold. "
            "Its last model is in model.safetensors."
        )
    if progress.unrecorded is not None:
        folder.journal.append(progress.unrecorded)  # the crash came between the checkpoint and the journal
    randomness = Randomness(key=bytes.fromhex(began.key), simulation=began.simulation)
    job = jobs.build(config, randomness, observer) if elsewhere is None else elsewhere.build(randomness)
    try:
        if elsewhere is None and (job.dataset, len(job.holdings.labels)) != (
            began.dataset,
            began.examples,
        ):
            raise RunError(
                f"The run began on {began.dataset} with {began.examples} examples; now it is {job.dataset} with "
                f"{len(job.holdings.labels)}. Bring the same data back to resume."
            )
        folder.journal.append(Resume(time=environment.now(), environment=environment.here()))
        with _reasons_kept(folder), logged.logged(job.config, observer) as told:
            runner = _runner(job)(
                job=job,
                connection=_connection(job) if elsewhere is None else elsewhere.connect(job),
                randomness=randomness,
                folder=folder,
                observer=told,
                earlier=folder.records(),
            )
            return runner.run(progress.checkpoint, progress.done, setup_seconds=time.perf_counter() - start)
    finally:
        job.close()
