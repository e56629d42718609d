from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import pytest

from tacit.cli import run as run_command
from tacit.cli import watch
from tacit.runs.run import run
from tests.cli.common_crypto import Tacit
from tests.runs.common import digits

QUICK = ("--data", "digits", "--rounds", "1", "--clients", "3", "--seed", "1")


@pytest.fixture
def visited(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a reader come where people would press Ctrl-C, and return what they saw."""
    addresses: list[str] = []
    pages: list[str] = []
    before = watch.told

    def told(server: object, what: str) -> None:
        addresses.append(server.address)  # type: ignore[attr-defined]
        before(server, what)  # type: ignore[arg-type]

    def visit() -> None:
        with urllib.request.urlopen(addresses[-1]) as answer:
            pages.append(answer.read().decode())

    for module in (watch, run_command):
        monkeypatch.setattr(module, "told", told)
        monkeypatch.setattr(module, "until_interrupted", visit)
    return pages


def test_a_run_is_followed_and_its_page_stays(tacit_command: Tacit, tmp_path: Path, visited: list[str]) -> None:
    status, out, err = tacit_command("run", *QUICK, "--live", "--out", tmp_path / "a")
    assert status == 0, err
    assert len(set(re.findall(r"http://127\.0\.0\.1:\d+/[0-9a-f]{32}/", err))) == 1
    assert "written to" in out
    assert 'data-live="finished"' in visited[0]


def test_a_finished_run_and_one_to_come_are_watched(tacit_command: Tacit, tmp_path: Path, visited: list[str]) -> None:
    run(digits(out=tmp_path / "a"))
    for name, state in (("a", "finished"), ("b", "waiting")):
        status, _, err = tacit_command("watch", tmp_path / name)
        assert status == 0, err
        assert f'data-live="{state}"' in visited[-1]
    assert not (tmp_path / "b").exists()


def test_what_makes_no_sense_is_refused(tacit_command: Tacit, tmp_path: Path) -> None:
    assert "--port 8000 has no effect without --live" in tacit_command.refused("run", *QUICK, "--port", "8000")
    (tmp_path / "file").touch()
    assert "is not a folder" in tacit_command.refused("watch", tmp_path / "file")
