"""How the cryptography labs' operations are timed: the best of several, on one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tacit.crypto.backend import VARIABLE, describe
from tacit_labs.bench import machine
from tacit_labs.bench.worker import Worker, WorkerError

Data = Mapping[str, Any]
LAB = "the lab's report (quoted)"


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


def here() -> dict[str, Any]:
    """Return the machine and the arithmetic that computes on it, as plain values."""
    choice = describe()
    return machine.describe(["gmpy2"]) | {"backend": choice.backend.name, "backend_reason": choice.reason}


def here_words(found: dict[str, Any]) -> str:
    """Return the same as a sentence."""
    return (
        f"{found['processor']}, {found['cores']} cores, Python {found['python']}. Tacit computed with its "
        f"{found['backend']} backend ({found['backend_reason']}; `tacit doctor` shows it, `{VARIABLE}` changes it)."
    )


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


def backends(module: str) -> tuple[dict[str, Worker], dict[str, str]]:
    """Start a process for each backend that runs here, and say why the others do not.

    The caller ends them: ``with contextlib.ExitStack() as stack: stack.enter_context(worker)``.
    """
    workers, absent = {}, {}
    for name in ("gmpy2", "native"):
        worker = Worker(module, settings={VARIABLE: name})
        try:
            worker.ask("which")
        except WorkerError as error:
            absent[name] = str(error)
            worker.__exit__(None, None, None)
        else:
            workers[name] = worker
    return workers, absent


def named(by: str) -> str:
    """Return the name of whoever computed."""
    return by if by == "textbook" else f"Tacit, {by}"


def pick(rows: Sequence[Data], **wanted: object) -> Data:
    """Return the one row that is asked for."""
    (row,) = (row for row in rows if all(row[name] == value for name, value in wanted.items()))
    return row


def makers(rows: Sequence[Data]) -> list[str]:
    """Return who computed, in the order of the first time."""
    return list(dict.fromkeys(row["by"] for row in rows))
