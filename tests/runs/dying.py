"""Runs of every mode that die at chosen calls and are resumed, each in a process forked from one that has imported all.

``python -m tests.runs.dying FOLDER HOW_MANY MODE...`` leaves below FOLDER/MODE the run that was not disturbed
(``whole``) and one folder for each call that was died at, beside it what the journal held then (``.at-death``),
and a file with one byte for each time that something was sent to clients (``.sent``).
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit.config.run_config import RunConfig
from tacit.errors import RunError
from tacit.runs.folder import JOURNAL
from tacit.runs.run import resume, run
from tacit.runs.runner import Runner
from tests.runs.common import digits
from tests.runs.disk import DEAD, Disk, dying

MODES: dict[str, dict[str, Any]] = {
    "plain": {"server": {"name": "fedadam", "lr": 0.02}},
    "dp": {"dp": {"noise": 0.2, "clip": "adaptive"}},
    "correlated": {
        "mode": "dp",
        "federate": {"clients": 3, "rounds": 3, "separation": 2},
        "dp": {"noise": 0.2, "correlation": "banded"},
    },
    "local-dp": {"dp": {"noise": 0.1}},
    "dp-sgd": {"dp": {"noise": 1.0}, "dpsgd": {"steps": 2, "batch_size": 16}},
    "signds": {},
    "nbafl": {},
    "paillier": {"paillier": {"bits": 256, "insecure_key_size": True}},
    "masks": {},
    "train": {"mode": "dp-sgd", "single_holder": True, "dp": {"noise": 1.0}, "dpsgd": {"steps": 4, "batch_size": 64}},
}


def config(mode: str, out: Path | None) -> RunConfig:
    """Return a small run of a mode; ``train`` is one data holder alone."""
    sections: dict[str, Any] = {"mode": mode, "federate": {"clients": 1 if mode == "train" else 3}}
    return digits(out=out, evaluate={"train": False}, **(sections | MODES[mode]))


def forked(work: Callable[[], None]) -> int:
    """Do something in a process of its own and return its status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        work()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def main(place: Path, mode: str, count: int) -> None:
    """Let ``count`` runs die, evenly over all calls, or one at each call if ``count`` is 0; resume them."""
    place.mkdir()
    calls = place / "calls"
    run(config(mode, None))  # imports what is slow to import, before there are children
    gc.collect()  # ends the threads of what has gone
    assert threading.active_count() == 1, threading.enumerate()

    def undisturbed() -> None:
        disk = Disk(place / "whole")
        with disk.watched():
            run(config(mode, place / "whole"))
        calls.write_text(str(len(disk.calls)))

    assert forked(undisturbed) == 0
    total = int(calls.read_text())
    # Modes share what they call, so each begins at a place of its own: together they die at many more than ``count``.
    first = (1 + 2 * [*MODES].index(mode)) * total // (2 * count * len(MODES)) if count else 0
    numbers = range(1, total + 1) if not count else [1 + first + i * total // count for i in range(count)]
    for number in numbers:
        assert forked(lambda number=number: _die(place / str(number), mode, number)) == DEAD  # type: ignore[misc]
        journal = place / str(number) / JOURNAL
        (place / f"{number}.at-death").write_bytes(journal.read_bytes() if journal.exists() else b"")
        assert forked(lambda number=number: _go_on(place / str(number), mode)) == 0  # type: ignore[misc]


def _die(out: Path, mode: str, number: int) -> None:
    sent = os.open(out.parent / f"{number}.sent", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    exchange = Runner._exchange

    def counted(*arguments: Any) -> Any:
        os.write(sent, b".")
        return exchange(*arguments)

    setattr(Runner, "_exchange", counted)  # noqa: B010 - a method is no variable
    with Disk(out, dying(number)).watched():
        run(config(mode, out))


def _go_on(out: Path, mode: str) -> None:
    try:
        resume(out)
    except RunError as error:
        if "nothing is lost" not in str(error) and "is not the folder of a run" not in str(error):
            raise
        run(config(mode, out))


if __name__ == "__main__":
    for each in sys.argv[3:]:
        main(Path(sys.argv[1]) / each, each, int(sys.argv[2]))
