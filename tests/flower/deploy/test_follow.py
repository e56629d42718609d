"""What deploy makes of processes that come up, end or say nothing, without Flower in them."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from tacit.errors import LinkError, RunError
from tacit.flower.deploy.certificates import write_certificates
from tacit.flower.deploy.local import follow, wait_for
from tacit.flower.deploy.processes import Processes, free_ports
from tacit.modes.catalogue import resolve
from tacit.runs.folder import records_of
from tacit.runs.run import run
from tests.runs.common import Watching, digits

_WAIT = "import time; time.sleep(600)"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(folder=tmp_path, environment={})
    yield made
    made.stop()


def _start(processes: Processes, name: str, code: str) -> None:
    processes.start(name, [sys.executable, "-c", code], home=processes.folder)


def _follow(processes: Processes, out: Path, watching: Watching) -> object:
    return follow(resolve(digits(out=out)), processes, run="run", superlink="superlink", observer=watching)


def test_rounds_come_from_the_journal_and_notes_from_the_log(processes: Processes, tmp_path: Path) -> None:
    expected = run(digits(out=tmp_path / "out"))
    _start(processes, "superlink", _WAIT)
    _start(
        processes,
        "run",
        "print('INFO: x'); print('tacit note: one'); print('tacit: round 1'); print('tacit note: two')",
    )
    watching = Watching()
    assert _follow(processes, tmp_path / "out", watching) == expected
    assert watching.notes == ["one", "two"]
    assert watching.records == list(expected.rounds)
    assert (watching.title, watching.rounds) == ("Digits (8x8), logistic, 5 clients (iid)", 2)
    assert watching.result == expected
    assert watching.progressed == [(0, 5), (0, 5)]


def test_of_a_run_that_goes_on_what_was_done_before_is_told_as_done(processes: Processes, tmp_path: Path) -> None:
    expected = run(digits(out=tmp_path / "out"))
    path = tmp_path / "out" / "journal.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    last = next(number for number, record in enumerate(records) if record["type"] == "round") + 1
    records.insert(last, {"type": "resume"})
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    earlier = list(records_of(path.parent))[:last]
    _start(processes, "superlink", _WAIT)
    _start(processes, "run", "print('INFO: x')")
    watching = Watching()
    out = digits(out=tmp_path / "out")
    follow(resolve(out), processes, run="run", superlink="superlink", observer=watching, earlier=earlier)
    assert (watching.done, watching.records) == (expected.rounds[:1], list(expected.rounds[1:]))
    assert watching.title.startswith("Digits")


def test_a_failure_of_the_server_is_told_in_its_words(processes: Processes, tmp_path: Path) -> None:
    _start(processes, "superlink", _WAIT)
    _start(processes, "run", "print('tacit error: Node 5 refused: no key.'); import time; time.sleep(600)")
    with pytest.raises(RunError, match=r"^Node 5 refused: no key\.$"):
        _follow(processes, tmp_path / "out", Watching())


def test_a_run_that_ends_without_a_result_shows_what_was_said(processes: Processes, tmp_path: Path) -> None:
    _start(processes, "superlink", "print('link is fine', flush=True); import time; time.sleep(600)")
    _start(processes, "run", "print('Failed to start run')")
    with pytest.raises(RunError, match=r"(?s)ended without a result.*Failed to start run.*SuperLink"):
        _follow(processes, tmp_path / "out", Watching())


def test_a_superlink_that_ends_ends_the_run(processes: Processes, tmp_path: Path) -> None:
    _start(processes, "superlink", "print('out of memory')")
    _start(processes, "run", _WAIT)
    with pytest.raises(RunError, match=r"(?s)SuperLink ended.*out of memory"):
        _follow(processes, tmp_path / "out", Watching())


def test_a_journal_that_is_being_written_is_read_by_whole_lines(processes: Processes, tmp_path: Path) -> None:
    expected = run(digits(out=tmp_path / "out"))
    journal = tmp_path / "out" / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text(lines[0][:20])
    finish = f"""
import json, time, pathlib
path, lines = pathlib.Path({str(journal)!r}), json.loads({json.dumps(json.dumps(lines))})
for count in range(1, len(lines) + 1):
    path.write_text("".join(lines[:count]))
    time.sleep(0.05)
"""
    _start(processes, "superlink", _WAIT)
    _start(processes, "run", finish)
    watching = Watching()
    _follow(processes, tmp_path / "out", watching)
    assert watching.records == list(expected.rounds)


def test_a_superlink_that_does_not_come_up_is_given_up_with_its_last_words(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(monotonic=partial(next, itertools.count(step=0.2)), sleep=lambda _: None)
    monkeypatch.setattr("tacit.flower.deploy.local.time", clock)
    authority = write_certificates(tmp_path / "tls", ["127.0.0.1"], days=1).authority
    address = f"127.0.0.1:{free_ports(1)[0]}"
    _start(processes, "superlink", "print('still thinking', flush=True); import time; time.sleep(600)")
    notes: list[str] = []
    while "thinking" not in processes.log("superlink").read_text():
        pass
    with pytest.raises(LinkError, match=rf"(?s){address} can't be reached after 0\.5 s: .*refused.*still thinking"):
        wait_for(address, authority, processes, note=notes.append, patience=0.5, tell_after=0.1)
    assert [note.partition(":")[0] for note in notes] == ["The SuperLink at 127.0.0.1"]
    assert "Trying for up to 0.5 s" in notes[0]


def test_a_superlink_that_ends_at_once_is_not_waited_for(processes: Processes, tmp_path: Path) -> None:
    authority = write_certificates(tmp_path / "tls", ["127.0.0.1"], days=1).authority
    _start(processes, "superlink", "raise SystemExit('Port 8000 is taken')")
    with pytest.raises(LinkError, match=r"(?s)ended while it started.*Port 8000 is taken"):
        wait_for(f"127.0.0.1:{free_ports(1)[0]}", authority, processes, note=print, patience=600)
