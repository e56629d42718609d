from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tacit.errors import ConfigError, RunError
from tacit.flower.deploy import processes as module
from tacit.flower.deploy.processes import Processes, alive, check_free, ended_by_signals, free_ports

_FAMILY = """
import subprocess, sys, time
command = [sys.executable, "-c", "import time; time.sleep(600)"]
children = [subprocess.Popen(command), subprocess.Popen(command, start_new_session=True)]
print(*[child.pid for child in children], flush=True)
time.sleep(600)
"""
_DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""


def _processes(folder: Path) -> Processes:
    return Processes(folder=folder, environment={"SAID": "hello"})


def _first_line(processes: Processes, name: str) -> str:
    while "\n" not in (text := processes.log(name).read_text()):
        assert processes.status(name) is None, text
        time.sleep(0.01)
    return text.splitlines()[0]


def _is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_stopping_ends_children_of_children_too(tmp_path: Path) -> None:
    processes = _processes(tmp_path)
    processes.start("family", [sys.executable, "-c", _FAMILY], home=tmp_path)
    grandchildren = [int(word) for word in _first_line(processes, "family").split()]
    group = processes.group("family")
    assert processes.look() == {group, grandchildren[1]}
    assert all(map(_is_there, grandchildren))
    processes.stop()
    assert not alive(group)
    assert not any(map(_is_there, grandchildren))


def test_what_has_lost_its_parent_is_ended_where_it_was_seen_before(tmp_path: Path) -> None:
    processes = _processes(tmp_path)
    processes.start("family", [sys.executable, "-c", _FAMILY], home=tmp_path)
    _, detached = map(int, _first_line(processes, "family").split())
    processes.look()
    os.killpg(processes.group("family"), signal.SIGKILL)
    assert _is_there(detached)
    processes.stop()
    assert not _is_there(detached)


def test_one_can_be_ended_and_the_others_go_on(tmp_path: Path) -> None:
    processes = _processes(tmp_path)
    for name in ("one", "other"):
        processes.start(name, [sys.executable, "-c", _DEAF], home=tmp_path)
    group = processes.group("one")
    processes.end("one")
    assert not alive(group)
    assert processes.status("other") is None
    assert processes.look() == {processes.group("other")}
    os.killpg(processes.group("other"), signal.SIGKILL)
    processes.stop()


def test_who_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GRACE", 0.2)
    processes = _processes(tmp_path)
    processes.start("deaf", [sys.executable, "-c", _DEAF], home=tmp_path)
    _first_line(processes, "deaf")
    group = processes.group("deaf")
    processes.stop()
    assert not alive(group)


def test_output_goes_to_the_log_and_the_environment_along(tmp_path: Path) -> None:
    processes = _processes(tmp_path)
    code = "import os; print(os.environ['SAID'], os.environ['FLWR_HOME'])"
    processes.start("one", [sys.executable, "-c", code], home=tmp_path / "home")
    assert _first_line(processes, "one") == f"hello {tmp_path / 'home'}"
    assert "hello" in processes.last_lines("one")
    assert processes.last_lines("nobody") == "(it said nothing)"
    processes.stop()


def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    processes = _processes(tmp_path)
    assert processes.call([sys.executable, "-c", "print(1)"], home=tmp_path, patience=60) == "1\n"
    with pytest.raises(RunError, match=r"(?s)failed:.*no such thing"):
        processes.call([sys.executable, "-c", "raise SystemExit('no such thing')"], home=tmp_path, patience=60)
    with pytest.raises(RunError, match=r"took longer than 0\.2 s"):
        processes.call([sys.executable, "-c", "import time; time.sleep(60)"], home=tmp_path, patience=0.2)


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"Port {port} of 127\.0\.0\.1 can't be used: Address already in use"):
            check_free(port)
        assert port not in free_ports(20)
    check_free(port)


def test_a_number_that_is_no_port_is_refused() -> None:
    with pytest.raises(ConfigError, match="Port 70000"):
        check_free(70_000)


def test_free_ports_are_different_ones_that_no_connection_takes_before_they_are_used() -> None:
    found = free_ports(10)
    assert len(set(found)) == 10
    assert all(20_000 <= port < 32_768 for port in found)


def test_a_port_that_is_taken_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = free_ports(2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first))
        drawn = iter([first, second])
        monkeypatch.setattr("tacit.randomness.system_below", lambda _: next(drawn) - 20_000)
        assert free_ports(1) == [second]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_end_it_as_ctrl_c_does(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), ended_by_signals():
        signal.raise_signal(number)
    assert signal.getsignal(number) is before


def test_a_process_that_has_ended_and_waits_to_be_asked_about_is_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    assert alive(child.pid)
    assert child.stdin is not None
    child.stdin.close()
    end = time.monotonic() + 120
    while alive(child.pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert not alive(child.pid)  # though nobody has asked for its status
    assert child.wait() is not None
