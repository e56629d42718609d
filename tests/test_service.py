"""Frames over a Unix socket: who may speak, what is refused, and what is left after a death."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tacit import service as services
from tacit.errors import LinkError, RunError, StorageError
from tacit.service import Code, Message, Service, ServiceError, call


def _echo(request: Message) -> Message:
    return Message(head={"was": dict(request.head)}, body=request.body[::-1])


@contextmanager
def _serving(path: Path, answer: Callable[[Message], Message] = _echo, **options: int) -> Iterator[Service]:
    with Service(path=path, answer=answer, patience=5, **options) as service:
        thread = threading.Thread(target=service.run)
        thread.start()
        try:
            yield service
        finally:
            service.stop()
            thread.join()


def _raw(path: Path, data: bytes) -> bytes:
    """Send bytes that no honest peer sends, and return what comes back."""
    with socket.socket(socket.AF_UNIX) as peer, services._address(path) as address:
        peer.connect(address)
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        found = b""
        with contextlib.suppress(ConnectionResetError):  # after a code, where not all was read
            while part := peer.recv(1 << 16):
                found += part
    return found


def test_a_request_gets_its_reply(tmp_path: Path) -> None:
    with _serving(tmp_path / "socket"):
        reply = call(tmp_path / "socket", Message(head={"party": 3}, body=b"abc"))
        assert reply == Message(head={"was": {"party": 3}}, body=b"cba")
        large = os.urandom(3 << 20)
        assert call(tmp_path / "socket", Message(body=large)).body == large[::-1]


def test_several_services_share_a_process_and_none_the_answers(tmp_path: Path) -> None:
    paths = [tmp_path / name / "socket" for name in "abc"]

    def service(path: Path) -> Service:
        return Service(path=path, answer=lambda _: Message(body=path.parent.name.encode()))

    with contextlib.ExitStack() as stack:
        first, *others = (stack.enter_context(service(path)) for path in paths)
        thread = threading.Thread(target=first.run, args=others)
        thread.start()
        assert [call(path, Message()).body for path in paths] == [b"a", b"b", b"c"]
        assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [".socket.lock", "socket"]
        first.stop()
        thread.join()
    assert not any(path.exists() for path in paths)


def test_many_ask_at_once_and_each_gets_its_own(tmp_path: Path) -> None:
    found: dict[int, bytes] = {}

    def ask(number: int) -> None:
        found[number] = call(tmp_path / "socket", Message(body=b"%d!" % number)).body

    with _serving(tmp_path / "socket", at_once=20):
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {number: (b"%d!" % number)[::-1] for number in range(20)}


def test_the_socket_is_for_its_owner_or_a_group(tmp_path: Path) -> None:
    with _serving(tmp_path / "a" / "socket"):
        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "a" / "socket").stat().st_mode) == 0o600
    with _serving(tmp_path / "b" / "socket", group=os.getgid()):
        assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o710
        assert stat.S_IMODE((tmp_path / "b" / "socket").stat().st_mode) == 0o660
    assert not (tmp_path / "b" / "socket").exists()
    with pytest.raises(StorageError, match="no group 'nobody-has-this-group'"):
        Service(path=tmp_path / "c", answer=_echo, group="nobody-has-this-group")


def test_a_folder_that_is_there_is_left_as_it_is_and_one_of_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    for mode, refused in ((0o755, False), (0o777, True), (0o1777, True), (0o770, True)):
        (tmp_path / "theirs").chmod(mode)
        if refused:
            with pytest.raises(StorageError, match="Others can write in"):
                Service(path=tmp_path / "theirs" / "socket", answer=_echo).__enter__()
        else:
            with _serving(tmp_path / "theirs" / "socket"):
                pass
        assert stat.S_IMODE((tmp_path / "theirs").stat().st_mode) == mode


def test_a_stranger_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "_user_of", lambda _: os.getuid() + 1)
    with _serving(tmp_path / "socket"), pytest.raises(ServiceError) as refused:
        call(tmp_path / "socket", Message(body=b"abc"))
    assert refused.value.code is Code.STRANGER


_HEADER = struct.Struct(">4sBBHIQ")


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"", Code.DAMAGED),
        (b"GET / HTTP/1.1\r\n\r\n", Code.DAMAGED),
        (_HEADER.pack(b"TCTS", 2, 0, 0, 0, 0), Code.DAMAGED),
        (_HEADER.pack(b"TCTS", 1, 99, 0, 0, 0), Code.DAMAGED),
        (_HEADER.pack(b"TCTS", 1, 0, 1, 0, 0), Code.DAMAGED),
        (_HEADER.pack(b"TCTS", 1, 0, 0, 0, 100) + b"too few", Code.DAMAGED),
        (_HEADER.pack(b"TCTS", 1, 0, 0, 4, 0) + b"[[[[", Code.DAMAGED),
        (_HEADER.pack(b"TCTS", 1, 0, 0, 0, 1 << 62), Code.TOO_LARGE),
        (_HEADER.pack(b"TCTS", 1, 0, 0, (1 << 32) - 1, 0), Code.TOO_LARGE),
        (_HEADER.pack(b"TCTS", 1, 0, 0, 0, 1001) + bytes(1001), Code.TOO_LARGE),
    ],
    ids=["nothing", "web", "version", "code", "zero", "short", "json", "huge-body", "huge-head", "limit"],
)
def test_what_is_no_request_gets_a_code(tmp_path: Path, sent: bytes, code: Code) -> None:
    with _serving(tmp_path / "socket", largest=1000):
        assert _raw(tmp_path / "socket", sent) == _HEADER.pack(b"TCTS", 1, code, 0, 0, 0)
        assert call(tmp_path / "socket", Message(body=bytes(1000))).code is Code.ANSWERED  # and it goes on


def test_a_claimed_length_takes_no_memory(tmp_path: Path) -> None:
    before = _resident()
    with _serving(tmp_path / "socket"), socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(tmp_path / "socket"))
        peer.sendall(_HEADER.pack(b"TCTS", 1, 0, 0, 0, 1 << 29) + b"and then nothing")
        assert call(tmp_path / "socket", Message()).code is Code.ANSWERED
        assert _resident() - before < 1 << 28
        peer.close()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_words_of_an_error_stay_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: Message) -> Message:
        raise ValueError("patient 17 is 93 years old")

    with _serving(tmp_path / "socket", fails):
        found = _raw(tmp_path / "socket", b"".join(Message(body=b"x").pieces()))
    assert found == _HEADER.pack(b"TCTS", 1, Code.FAILED, 0, 0, 0)
    assert "patient 17" in caplog.text


def test_one_too_many_is_told_so(tmp_path: Path) -> None:
    begun, end = threading.Event(), threading.Event()

    def waits(_: Message) -> Message:
        begun.set()
        end.wait()
        return Message()

    with _serving(tmp_path / "socket", waits, at_once=1):
        first = threading.Thread(target=call, args=(tmp_path / "socket", Message()))
        first.start()
        begun.wait()
        with pytest.raises(ServiceError) as refused:
            call(tmp_path / "socket", Message(body=bytes(1 << 20)))
        end.set()
        first.join()
    assert refused.value.code is Code.BUSY


def test_nobody_there_and_one_who_ends_are_told_apart_from_answers(tmp_path: Path) -> None:
    with pytest.raises(LinkError, match="No service answers at"):
        call(tmp_path / "socket", Message())
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "socket"))
        silent.listen()
        with pytest.raises(LinkError, match="ended, or answered something else"):
            call(tmp_path / "socket", Message(), patience=0.05)


def test_a_socket_in_use_is_left_alone_and_a_stale_one_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with _serving(path):
        with pytest.raises(RunError, match=f"in use by another process \\(process {os.getpid()}.*stop the other first"):
            Service(path=path, answer=_echo).__enter__()
        assert call(path, Message(body=b"ab")).body == b"ba"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    with _serving(path):
        assert call(path, Message(body=b"ab")).body == b"ba"
    path.write_text("somebody's file")
    with pytest.raises(StorageError, match="is there and no socket"):
        Service(path=path, answer=_echo).__enter__()
    assert path.read_text() == "somebody's file"


def test_a_path_too_long_for_a_socket_works(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 120) / "socket"
    with _serving(path):
        assert call(path, Message(body=b"ab")).body == b"ba"
    assert not path.exists()


_PROCESS = """
import sys, time
from pathlib import Path
from tacit.service import Message, Service, stopped_by_signals
def answer(request):
    if request.body == b"slow":
        print("begun", flush=True)
        time.sleep(0.3)
    return Message(body=request.body)
service = Service(path=Path(sys.argv[1]), answer=answer)
with service, stopped_by_signals(service):
    print("ready", flush=True)
    service.run()
print("ended", flush=True)
"""


def test_sigterm_lets_what_has_begun_be_answered_and_kill_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    command = [sys.executable, "-c", _PROCESS, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed:
        _hear(killed, "ready")
        killed.kill()
    assert path.exists()
    found: list[bytes] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        _hear(process, "ready")
        asking = threading.Thread(target=lambda: found.append(call(path, Message(body=b"slow")).body))
        asking.start()
        _hear(process, "begun")
        process.terminate()
        asking.join()
        _hear(process, "ended")
    assert found == [b"slow"]
    assert process.returncode == 0
    assert not path.exists()


def _hear(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{word}\n"
