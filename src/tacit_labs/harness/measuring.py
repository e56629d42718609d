"""How the cryptography labs' operations are timed: the best of several, on one thread."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeVar

from tacit.crypto.backend import VARIABLE, describe
from tacit_labs.bench import machine
from tacit_labs.bench.machine import Machine
from tacit_labs.bench.worker import Worker, WorkerError
from tacit_labs.harness.experiment import Progress

T = TypeVar("T")


class Row(Protocol):
    """What one job gave: a frozen value that knows who computed it."""

    @property
    def by(self) -> str:
        """A backend, or ``textbook``."""


def best(action: Callable[[], object], *, repeats: int) -> float:
    """Return the smallest processor time of an action, in seconds: what else runs on the machine changes it little."""
    found = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        found.append(time.process_time() - start)
    return min(found)


def each(action: Callable[[], object], *, count: int, repeats: int) -> float:
    """Return the processor time of one of ``count`` equal actions, the best of ``repeats`` passes."""

    def several() -> None:
        for _ in range(count):
            action()

    return best(several, repeats=repeats) / count


@dataclass(frozen=True, kw_only=True)
class Here:
    """The machine and the arithmetic that computes on it."""

    machine: Machine
    backend: str
    backend_reason: str

    def words(self) -> str:
        """Return it as a sentence or two."""
        return (
            f"{self.machine.processor}, {self.machine.cores} cores, Python {self.machine.python}. Tacit computed with "
            f"its {self.backend} backend ({self.backend_reason}; `tacit doctor` shows it, `{VARIABLE}` changes it)."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self.machine) | {"backend": self.backend, "backend_reason": self.backend_reason}


def here() -> Here:
    """Return what computes in this process."""
    choice = describe()
    return Here(machine=machine.describe(["gmpy2"]), backend=choice.backend.name, backend_reason=choice.reason)


def duration(seconds: float) -> str:
    """Return a time with three digits and a unit that suits it.

    >>> duration(1.234e-5), duration(0.0421), duration(1600)
    ('12.3 µs', '42.1 ms', '1,600 s')
    """
    for unit, size in (("µs", 1e-6), ("ms", 1e-3)):
        if seconds < 999.5 * size:
            return f"{digits(seconds / size)} {unit}"
    return f"{digits(seconds)} s"


def times(ratio: float) -> str:
    """Return a ratio.

    >>> times(1234.5), times(0.52)
    ('1,234x', '0.52x')
    """
    return f"{digits(ratio)}x"


def digits(number: float) -> str:
    """Return a number with three digits, or all of those before the point.

    >>> digits(0.1234), digits(12.0), digits(98765.4)
    ('0.123', '12', '98,765')
    """
    return f"{number:,.0f}" if abs(number) >= 99.95 else f"{number:.3g}"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One question to a worker."""

    makes: Callable[..., Row]  # is given the arguments, ``by`` and the answer
    by: str  # a backend, or whoever computes alike on all of them
    name: str
    arguments: Mapping[str, Any]
    words: str  # what is measured, for the progress


def asked(
    module: str, jobs: Callable[[Sequence[str]], Sequence[Job]], progress: Progress
) -> tuple[list[Row], dict[str, str]]:
    """Put jobs to a worker per backend; return what was measured, and why backends that do not run here are absent.

    Args:
        module: what the workers run.
        jobs: is given the names of the backends that run here.
        progress: is told what is being measured.
    """
    with contextlib.ExitStack() as stack:
        workers, absent = {}, {}
        for name in ("gmpy2", "native"):
            worker = stack.enter_context(Worker(module, settings={VARIABLE: name}))
            try:
                worker.ask("which")
            except WorkerError as error:
                absent[name] = str(error)
            else:
                workers[name] = worker
        measured = []
        wanted = jobs(list(workers))
        for done, job in enumerate(wanted):
            progress(f"{job.words}, {job.by}", done=done, total=len(wanted))
            answer = workers.get(job.by, next(iter(workers.values()))).ask(job.name, **job.arguments)
            measured.append(job.makes(**(dict(job.arguments) | {"by": job.by} | answer)))
    return measured, absent


def named(by: str) -> str:
    """Return the name of whoever computed."""
    return by if by.startswith("textbook") else f"Tacit, {by}"


def pick(rows: Iterable[T], **wanted: object) -> T:
    """Return the one row whose fields have the values that are asked for."""
    (row,) = (row for row in rows if all(getattr(row, name) == value for name, value in wanted.items()))
    return row


def makers(rows: Iterable[Row]) -> list[str]:
    """Return who computed, in the order of the first time."""
    return list(dict.fromkeys(row.by for row in rows))
