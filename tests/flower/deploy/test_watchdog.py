"""A deployment that is killed, played with small processes in place of Flower's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tacit.flower.deploy.watchdog import VARIABLE, marked, watched

# As `tacit deploy local` does: a watchdog, folders with keys in them, and children that start children in other
# groups and sessions, one of which has lost its parent already.
_DEPLOYMENT = """
import sys, time
from pathlib import Path
from tacit.flower.deploy.processes import Processes
from tacit.flower.deploy.watchdog import VARIABLE, watched

folder = Path(sys.argv[1])
keys = folder / "keys"
keys.mkdir()
(keys / "private.key").write_text("secret")
child = '''
import subprocess, sys, time, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
middle = "import subprocess, sys; subprocess.Popen(" + repr(sleep) + ", start_new_session=True)"
subprocess.run([sys.executable, "-c", middle], check=True)
subprocess.Popen(sleep, start_new_session=True)
subprocess.Popen(sleep)
print("up", flush=True)
time.sleep(600)
'''
with watched(keys) as watchdog:
    processes = Processes(folder=folder, environment={VARIABLE: watchdog.mark})
    for name in ("one", "two"):
        processes.start(name, [sys.executable, "-c", child], home=folder)
    for name in ("one", "two"):
        while "up" not in processes.log(name).read_text():
            time.sleep(0.01)
    print(watchdog.mark, watchdog.pid, flush=True)
    sys.stdin.read()
    processes.stop()
"""


def _deployment(folder: Path) -> tuple[subprocess.Popen[str], str, int]:
    process = subprocess.Popen(
        [sys.executable, "-c", _DEPLOYMENT, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    mark, pid = process.stdout.readline().split()
    return process, mark, int(pid)


def _until(done: Callable[[], bool], seconds: float = 120.0) -> bool:
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        time.sleep(0.02)
    return done()


def _is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_a_deployment_that_is_killed_leaves_neither_processes_nor_keys(tmp_path: Path) -> None:
    process, mark, watchdog = _deployment(tmp_path)
    assert len(marked(mark)) == 8  # two children, each with a child, a detached one, and one without a parent
    process.kill()  # kill -9
    process.communicate()
    assert _until(lambda: not marked(mark))
    assert _until(lambda: not (tmp_path / "keys").exists())
    assert _until(lambda: not _is_there(watchdog))


def test_ctrl_c_or_the_end_of_the_terminal_does_not_end_the_watchdog(tmp_path: Path) -> None:
    process, mark, watchdog = _deployment(tmp_path)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(watchdog, number)
    process.kill()
    process.communicate()
    assert _until(lambda: not marked(mark))


def test_a_deployment_that_ends_by_itself_leaves_nothing_either_and_its_watchdog_goes(tmp_path: Path) -> None:
    process, mark, watchdog = _deployment(tmp_path)
    process.communicate("")
    assert process.returncode == 0
    assert not marked(mark)
    assert not _is_there(watchdog)
    assert not (tmp_path / "keys").exists()


def test_the_end_of_a_watchdog_does_not_end_what_it_watches(tmp_path: Path) -> None:
    with watched(tmp_path / "keys") as watchdog:
        os.kill(watchdog.pid, signal.SIGKILL)
        assert _until(lambda: not _is_there(watchdog.pid))
    assert VARIABLE not in os.environ
