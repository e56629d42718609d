"""Ends what a deployment has started, also where the deployment itself was killed, and takes its folders away.

A process that is killed (``kill -9``, out of memory) ends nothing any more. So beside a deployment there is this one,
in a session of its own::

    python -m tacit.flower.deploy.watchdog MARK FOLDER...

Its standard input is a pipe that only the deployment holds, and that is closed however the deployment ends. Then every
process with the mark in its environment is killed, which all that a deployment starts inherits, whatever group or
session it went to; and what those were seen to have started: a process that gives itself another title, as Ray's do,
writes it over its environment. The folders, which hold keys, are removed. It needs ``/proc``: on other systems a
deployment that was killed leaves its processes.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

Started = tuple[int, str]  # a process, and when it began
VARIABLE = "TACIT_DEPLOYMENT"
_LOOK = 2.0  # seconds between looks at what there is
_PAUSE = 0.1
_QUIET_LOOKS = 3  # so many looks in a row find nothing: what was just being started is there by then
_PATIENCE = 30.0


@dataclass(frozen=True, kw_only=True)
class Watchdog:
    """What watches a deployment.

    Attributes:
        mark: the value of the environment variable ``TACIT_DEPLOYMENT`` in all that the deployment starts.
        pid: the process that watches.
    """

    mark: str
    pid: int


@contextmanager
def watched(*folders: Path) -> Iterator[Watchdog]:
    """Have this process watched: when the context or this process ends, nothing with the mark is left, nor a folder."""
    mark = uuid4().hex
    process = subprocess.Popen(
        [sys.executable, "-m", "tacit.flower.deploy.watchdog", mark, *map(str, folders)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C and the end of the terminal are not for it
    )
    assert process.stdin is not None
    try:
        yield Watchdog(mark=mark, pid=process.pid)
    finally:
        process.stdin.close()
        process.wait()


def end(mark: str, seen: frozenset[Started] = frozenset()) -> None:
    """Kill every process that bears the mark, or that was seen before, until none is left."""
    quiet, last = 0, time.monotonic() + _PATIENCE
    while quiet < _QUIET_LOOKS and time.monotonic() < last:
        found = marked(mark) | {pid for pid, began in seen if _began(pid) == began}
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        quiet = 0 if found else quiet + 1
        time.sleep(_PAUSE)


def marked(mark: str) -> set[int]:
    """Return the processes that bear the mark; what has ended has no environment any more."""
    entry = f"{VARIABLE}={mark}".encode()
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # somebody else's, or it has ended since
            if entry in path.read_bytes().split(b"\0"):
                found.add(int(path.parent.name))
    return found - {os.getpid()}


def below(roots: set[int]) -> frozenset[Started]:
    """Return all that processes have started, and what that has, with the moments they began."""
    found: set[Started] = set()
    fresh = roots
    while fresh:
        children: set[int] = set()
        for pid in fresh:
            for path in Path(f"/proc/{pid}/task").glob("*/children"):
                with contextlib.suppress(OSError):  # it has ended since
                    children |= set(map(int, path.read_text().split()))
        known = {pid for pid, _ in found}
        fresh = children - known
        found |= {(pid, began) for pid in fresh if (began := _began(pid)) is not None}
    return frozenset(found)


def _began(pid: int) -> str | None:
    """Return when a process began, in the kernel's ticks: numbers are given out again, with another moment."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else fields[18]


def main(words: Sequence[str]) -> None:
    """Wait for the end of the deployment, then clear up."""
    mark, *folders = words
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    seen: frozenset[Started] = frozenset()
    while not select.select([sys.stdin], [], [], _LOOK)[0]:  # nothing is ever written there: it is closed
        seen = below(marked(mark))
    end(mark, seen)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
