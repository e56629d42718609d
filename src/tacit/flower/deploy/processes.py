"""Processes of a deployment: each in a group of its own, which ends as a whole, with all that it started.

Flower's SuperLink gives what it starts another group again, so the tree is looked through too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tacit.errors import ConfigError, RunError

LOOPBACK = "127.0.0.1"
_GRACE = 2.0  # seconds a group has to end by itself; nothing it holds is needed any more
_PAUSE = 0.05
_UNASKED = range(20_000, 32_768)  # ports above those of Ray's workers, below those that Linux gives to connections
_TAIL = 15  # lines of a log that an error shows


@dataclass(frozen=True, kw_only=True)
class Processes:
    """Starts processes and stops all of them, with whatever they started.

    Attributes:
        folder: where their logs go.
        environment: what they are given beside this process's own.
    """

    folder: Path
    environment: Mapping[str, str]
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _groups: set[int] = field(default_factory=set)

    def start(self, name: str, command: Sequence[str], *, home: Path) -> None:
        """Start a process whose output goes to its log, with a Flower home of its own."""
        with self.log(name).open("wb") as log:
            self._running[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(home),
                start_new_session=True,  # a group of its own; Ctrl-C is ours alone
            )
        self._groups.add(self._running[name].pid)

    def look(self) -> frozenset[int]:
        """Return the groups of all that was started, and of what those started."""
        self._groups.update(_groups_below({process.pid for process in self._running.values()}))
        return frozenset(self._groups)

    def call(self, command: Sequence[str], *, home: Path, patience: float) -> str:
        """Run a short command to its end and return what it printed."""
        words = " ".join([Path(command[0]).name, *command[1:]])
        try:
            done = subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                env=self._environment(home),
                timeout=patience,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired as error:
            raise RunError(f"`{words}` took longer than {patience:g} s.") from error
        if done.returncode != 0:
            said = "\n".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-_TAIL:])
            raise RunError(f"`{words}` failed:\n{said}")
        return done.stdout

    def status(self, name: str) -> int | None:
        """Return the exit status of a process, None while it runs."""
        return self._running[name].poll()

    def group(self, name: str) -> int:
        """Return the number of a process's group."""
        return self._running[name].pid

    def log(self, name: str) -> Path:
        """Return the file that a process's output goes to."""
        return self.folder / f"{name}.log"

    def last_lines(self, name: str) -> str:
        """Return the end of a process's log."""
        try:
            lines = self.log(name).read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        return "\n".join(line for line in lines[-_TAIL:] if line.strip()) or "(it said nothing)"

    def end(self, name: str) -> None:
        """Kill one process with its group, and forget it."""
        process = self._running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._groups.discard(process.pid)  # its number may be somebody else's soon

    def stop(self) -> None:
        """End all groups: first they are asked to, then they are killed; another Ctrl-C does not stop this."""
        with _uninterrupted():
            self._stop()

    def _stop(self) -> None:
        groups = list(self.look())
        for number, grace in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, _GRACE)):
            for group in groups:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, number)
            end = time.monotonic() + grace
            while time.monotonic() < end:
                for process in self._running.values():
                    process.poll()  # reaps it
                groups = [group for group in groups if alive(group)]
                if not groups:
                    break
                time.sleep(_PAUSE)
        for process in self._running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
        self._running.clear()
        self._groups.clear()

    def _environment(self, home: Path) -> dict[str, str]:
        here = str(Path(sys.executable).parent)
        path = os.environ.get("PATH", "")
        return os.environ | self.environment | {"FLWR_HOME": str(home), "PATH": f"{here}{os.pathsep}{path}"}


def alive(group: int) -> bool:
    """Return whether a process of the group still runs; one that has ended and that nobody has asked about does not."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # a process of somebody else that was given the number since
        return False
    table = _table()
    return not table or any(of == group and not ended for _, of, ended in table.values())


def _groups_below(roots: set[int]) -> set[int]:
    """Return the groups of all descendants of ``roots``, but this process's own."""
    table = _table()
    found, fresh = set[int](), set(roots)
    while fresh:
        fresh = {pid for pid, (parent, *_) in table.items() if parent in fresh}
        found |= {table[pid][1] for pid in fresh}
    return found - {os.getpgid(0)}


def _table() -> dict[int, tuple[int, int, bool]]:
    """Return the parent and the group of every process here, and whether it has ended already."""
    table = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended since
            state, parent, group = path.read_text().rpartition(")")[2].split()[:3]
            table[int(path.parent.name)] = int(parent), int(group), state in "ZX"
    if not table:  # a system without /proc
        listed = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid=,pgid=,stat="], capture_output=True, text=True, check=False
        )
        rows = (line.split() for line in listed.stdout.splitlines())
        table = {int(pid): (int(parent), int(group), state[0] == "Z") for pid, parent, group, state in rows}
    return table


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback address that nobody listens at now, and that nobody is given without asking."""
    from tacit.randomness import system_below

    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            port = _UNASKED[system_below(len(_UNASKED))]
            with contextlib.suppress(OSError):
                stack.enter_context(socket.socket()).bind((LOOPBACK, port))
                found.append(port)
    return found


def check_free(port: int) -> None:
    """Refuse a port that can't be listened at."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: one that closed is no obstacle
        try:
            probe.bind((LOOPBACK, port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(
                f"Port {port} of {LOOPBACK} can't be used: {reason}. End what listens there, give another --port, or "
                "leave it out for a free one."
            ) from error


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end this process as Ctrl-C does, so that what it started ends too."""
    if threading.current_thread() is not threading.main_thread():  # signals are not for this one
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C and its likes off, in the thread that gets them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
