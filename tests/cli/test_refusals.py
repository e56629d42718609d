"""Whatever the operating system refuses is a sentence and status 1, in every command that reads or writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.cli import main as command_line
from tacit.runs.folder import RunFolder
from tests.runs.common import STARTED, digits

TACIT = [sys.executable, "-c", "from tacit.cli.main import main; main()"]
LONG = "x" * 300
HIDDEN = b"\xff\xfe"


def _tacit(words: list[str | bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command in this process; return what it says on stderr. Its status has to be 1 or 2."""
    monkeypatch.setattr(
        sys, "argv", ["tacit", *(w if isinstance(w, str) else w.decode(errors="surrogateescape") for w in words)]
    )
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    assert ended.value.code in (1, 2)
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["run", LONG],
        ["run", f"{LONG}.yaml"],
        ["run", "--data", "digits", "--out", LONG],
        ["run", "--data", "digits", "--out", f"{LONG}/a"],
        ["train", "--data", "digits", "--epsilon", "3", "--out", LONG],
        ["resume", LONG],
        ["report", LONG],
        ["ledger", LONG],
        ["compare", LONG],
        ["compare", LONG, LONG],
        ["sweep", "federate.rounds=1,2", "--data", "digits", "--out", LONG],
        ["keys", "new", "--out", LONG],
        ["encrypt", LONG, "--key", LONG, "-o", LONG],
        ["run", b"data.name=\xff\xfe"],
        ["run", "--data", HIDDEN],
        ["run", b"\xff.yaml"],
        ["resume", HIDDEN],
        ["report", HIDDEN],
        ["ledger", HIDDEN],
        ["config", b"data.folder=\xff"],
    ],
    ids=lambda words: " ".join(str(word)[:20] for word in words),
)
def test_names_that_no_file_can_have_are_refused(
    words: list[str | bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _tacit(words, monkeypatch, capsys)
    assert "error" in said.lower()
    assert "Traceback" not in said
    assert len(said) < 2000


def test_output_that_can_not_be_printed_is_a_sentence() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*TACIT, "config"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "error: The system refused: No space left on device. Is there space left, and may you write there?\n"
    )


def test_a_second_run_in_a_folder_is_refused_and_told_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    folder = RunFolder.create(out, config=digits(out=out).to_yaml(), force=False)
    folder.journal.append(STARTED)
    command = [*TACIT, "run", "--data", "digits", "--quiet", "--force", "--out", str(out)]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert f"is in use by another process (process {os.getpid()} on " in second.stderr
    assert "in use by another process" in _tacit(["resume", str(out)], monkeypatch, capsys)
    folder.close()
