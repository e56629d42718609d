from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tacit.errors import StorageError
from tacit.storage import write_atomically


def test_written_whole_and_alone(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a" / "b" / "file", b"new")
    write_atomically(tmp_path / "a" / "b" / "file", b"newer")
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["file"]
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"newer"


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    write_atomically(tmp_path / "file", b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


@pytest.mark.parametrize("stage", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    (tmp_path / "file").write_bytes(b"old")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(*((Path, "replace") if stage == "replace" else (os, stage)), full)  # type: ignore[call-overload]
    with pytest.raises(StorageError, match=r"No space left.*Free some space"):
        write_atomically(tmp_path / "file", b"new")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_an_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", b"new")
    assert not [path for path in tmp_path.iterdir() if path.is_file()]


def test_a_folder_that_is_a_file_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"")
    with pytest.raises(StorageError, match="another disk"):
        write_atomically(tmp_path / "cache" / "file", b"new", advice="Choose another disk.")


@pytest.mark.parametrize("links", [True, False])
def test_only_a_free_name_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    if not links:

        def unable(*_: object) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", unable)
    write_atomically(tmp_path / "file", b"first", replace=False, mode=0o600)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    with pytest.raises(StorageError, match=r"is there already and is left as it was. Take another."):
        write_atomically(tmp_path / "file", b"second", replace=False, advice="Take another.")
    assert (tmp_path / "file").read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["file"]


def test_a_name_that_was_held_is_free_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unable(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", unable)
    monkeypatch.setattr(Path, "replace", unable)
    with pytest.raises(StorageError, match="not permitted"):
        write_atomically(tmp_path / "file", b"first", replace=False)
    assert not [path for path in tmp_path.iterdir() if path.is_file()]


def test_everybody_may_read_unless_told_otherwise(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", b"")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644
