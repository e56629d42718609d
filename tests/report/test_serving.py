from __future__ import annotations

import json
import shutil
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tacit.errors import ConfigError, RunError
from tacit.report import serving
from tacit.report.serving import LiveServer
from tacit.runs.folder import CONFIG, JOURNAL, RESULT
from tacit.runs.run import run
from tests.report.browser import drawn, look, needs_browser
from tests.runs.common import digits


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "a"
    run(digits(out=out, federate={"rounds": 3, "clients": 4}))
    return out


@pytest.fixture
def half(finished: Path, tmp_path: Path) -> Path:
    """Return a run whose second round is not done yet."""
    folder = tmp_path / "a"
    folder.mkdir()
    shutil.copy(finished / CONFIG, folder / CONFIG)
    lines = (finished / JOURNAL).read_text().splitlines(keepends=True)
    end = next(place for place, line in enumerate(lines) if json.loads(line)["type"] == "round")
    (folder / JOURNAL).write_text("".join(lines[: end + 1]) + '{"type": "att')  # the next record is being written
    return folder


def _content(server: LiveServer, seen: str = "") -> dict[str, object] | None:
    with urllib.request.urlopen(f"{server.address}content?seen={seen}") as answer:
        return None if answer.status == 204 else json.loads(answer.read())


def test_a_run_that_another_process_is_making_is_followed(half: Path, finished: Path) -> None:
    with LiveServer(half) as server:
        first = _content(server)
        assert first is not None
        assert first["state"] == "unfinished"
        assert "1 of 3 rounds" in str(first["main"])
        assert _content(server, str(first["tag"])) is None
        for name in (JOURNAL, RESULT):
            shutil.copy(finished / name, half / name)
        last = _content(server, str(first["tag"]))
        assert last is not None
        assert last["state"] == "finished"
        assert "of 3 rounds" not in str(last["main"])


def test_a_run_that_has_not_begun_is_waited_for(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "later"
    with LiveServer(folder) as server:
        waiting = _content(server)
        assert waiting is not None
        assert waiting["state"] == "waiting"
        assert not folder.exists()  # whoever looks makes nothing
        folder.mkdir()
        (folder / JOURNAL).touch()
        (folder / f".{JOURNAL}.lock").touch()
        assert (_content(server) or {})["state"] == "waiting"
        shutil.copytree(finished, folder, dirs_exist_ok=True)
        assert (_content(server) or {})["state"] == "finished"


def test_what_cannot_be_read_is_said_and_tried_again(half: Path, finished: Path) -> None:
    (half / JOURNAL).write_text("no journal\n")
    with LiveServer(half) as server:
        broken = _content(server)
        assert broken is not None
        assert broken["state"] == "damaged"
        assert "is damaged in line 1" in str(broken["main"])
        shutil.copy(finished / JOURNAL, half / JOURNAL)
        assert (_content(server) or {})["state"] != "damaged"


def test_nobody_is_served_who_does_not_know_the_address(finished: Path) -> None:
    with LiveServer(finished) as server:
        assert server.address.startswith(f"http://127.0.0.1:{server.port}/")
        for path in ("", "content", "0" * 32 + "/"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"http://127.0.0.1:{server.port}/{path}")
        connection = HTTPConnection("127.0.0.1", server.port)
        connection.request("GET", server.address.split(str(server.port))[1], headers={"Host": "elsewhere.example"})
        assert connection.getresponse().status == 404
        connection.close()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{server.address}../../etc/passwd")
        with urllib.request.urlopen(server.address) as answer:
            assert answer.headers["Cache-Control"] == "no-store"


def test_a_peer_that_says_nothing_or_leaves_costs_no_thread_and_no_word(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(serving, "_PATIENCE", 0.05)  # of this server only: on a busy machine nobody speaks that soon
        with LiveServer(finished) as server, socket.create_connection((serving.HOST, server.port)) as silent:
            silent.settimeout(60)
            assert silent.recv(1) == b""  # it is hung up on
    with LiveServer(finished) as server, socket.create_connection((serving.HOST, server.port)):
        with socket.create_connection((serving.HOST, server.port)) as gone:
            path = server.address.partition(str(server.port))[2]
            gone.sendall(f"GET {path} HTTP/1.0\r\nHost: {serving.HOST}:{server.port}\r\n\r\n".encode())
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # so that the write fails
        assert _content(server) is not None  # others are served
    assert capfd.readouterr().err == ""


def test_a_port_that_is_taken_and_a_file_are_refused(finished: Path) -> None:
    with LiveServer(finished) as server, pytest.raises(ConfigError, match=f"Can't listen on port {server.port}"):
        LiveServer(finished, port=server.port)
    with pytest.raises(RunError, match="is not a folder"):
        LiveServer(finished / JOURNAL)


def _when(condition: Callable[[], bool], then: Callable[[], object]) -> threading.Thread:
    def wait() -> None:
        end = time.monotonic() + 60
        while not condition() and time.monotonic() < end:
            time.sleep(0.001)
        then()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


@needs_browser
def test_a_browser_sees_the_rounds_come_and_may_reload(half: Path, finished: Path) -> None:
    def go_on() -> None:
        for name in (JOURNAL, RESULT):
            shutil.copy(finished / name, half / name)

    with LiveServer(half) as server:
        thread = _when(lambda: server.asked > 0, go_on)  # after the page was drawn and has asked for news once
        seen = look(server.address)
        thread.join()
        for page in (seen, look(server.address)):
            assert page.trouble == ""
            assert 'data-live="finished"' in page.root
            assert "of 3 rounds" not in page.dom
            assert drawn(page) >= 3


@needs_browser
def test_a_browser_says_when_nobody_answers_any_more(finished: Path) -> None:
    server = LiveServer(finished)
    _when(lambda: server.asked > 0, server.close)
    seen = look(server.address, budgets=(300_000,))
    assert 'data-live="gone"' in seen.root
    assert "Nobody answers any more" in seen.dom
    assert drawn(seen) >= 3  # what was shown stays
