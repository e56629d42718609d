from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.errors import RunError, StorageError
from tacit.runs.journal import Journal, read


def test_records_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal(path) as journal:
        journal.append({"type": "a", "n": 1})
        assert read(path) == [{"type": "a", "n": 1}]  # on disk at once
        journal.append({"type": "b", "text": "é\n"})
    with Journal(path) as journal:
        journal.append({"type": "c"})
    assert [record["type"] for record in read(path)] == ["a", "b", "c"]
    assert read(path)[1]["text"] == "é\n"


@pytest.mark.parametrize("cut", range(1, 15))
def test_a_torn_last_line_is_as_if_it_had_not_been_begun(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "j"
    with Journal(path) as journal:
        journal.append({"n": 1})
        journal.append({"n": 22222222})
    path.write_bytes(path.read_bytes()[:-cut])
    assert read(path) == [{"n": 1}]
    with Journal(path) as journal:
        journal.append({"n": 3})
    assert read(path) == [{"n": 1}, {"n": 3}]


def test_an_empty_journal_and_one_torn_line_are_no_records(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(b"")
    assert read(path) == []
    path.write_bytes(b'{"n": ')
    assert read(path) == []


@pytest.mark.parametrize("damage", [b'{"n": \n', b"\x00\x00\x00\n", b"\xff\n", b"\n"])
def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "j"
    path.write_bytes(b'{"n": 1}\n' + damage + b'{"n": 3}\n')
    with pytest.raises(RunError, match="damaged in line 2"):
        read(path)


def test_a_missing_journal_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"Is .* the folder of a run"):
        read(tmp_path / "j")


def test_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal, pytest.raises(ValueError, match="not JSON compliant"):
        journal.append({"loss": float("nan")})
    assert read(tmp_path / "j") == []


@pytest.mark.parametrize("call", ["fsync"])
def test_a_disk_that_fails_leaves_the_journal_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "j"
    with Journal(path) as journal:
        journal.append({"n": 1})
        with monkeypatch.context() as patch:

            def full(*_: object) -> None:
                raise OSError(errno.ENOSPC, "No space left on device")

            patch.setattr(os, call, full)
            with pytest.raises(StorageError, match=r"No space left.*Free some space"):
                journal.append({"n": 2})
        assert read(path) == [{"n": 1}]
        journal.append({"n": 3})
    assert read(path) == [{"n": 1}, {"n": 3}]


def test_a_disk_that_is_really_full_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    """A limit on the size of files fails a write half-way, as a full disk does; nothing may come later either."""
    path = tmp_path / "j"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(path) as journal:
        journal.append({"n": 1})
        resource.setrlimit(resource.RLIMIT_FSIZE, (12, limits[1]))
        try:
            with pytest.raises(StorageError, match="File too large"):
                journal.append({"n": 2, "text": "x" * 100})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert path.read_bytes() == b'{"n": 1}\n'
    assert path.read_bytes() == b'{"n": 1}\n'


def test_a_second_process_is_locked_out(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tacit.runs.journal import Journal\n"
        "try: Journal(Path(sys.argv[1]))\nexcept Exception as error: print(type(error).__name__, error)"
    )
    with Journal(tmp_path / "j"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "j")], capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith("RunError")
        assert "in use by another process" in done.stdout
        with pytest.raises(RunError, match="in use"):
            Journal(tmp_path / "j")
    Journal(tmp_path / "j").__exit__(None, None, None)


def test_a_folder_that_is_not_there_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        Journal(tmp_path / "no" / "j")
