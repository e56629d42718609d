from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
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


def test_what_a_killed_process_left_is_taken_away_and_what_another_is_writing_is_not(tmp_path: Path) -> None:
    (tmp_path / ".file.a1b2c3d4.part").write_bytes(b"of a killed process")
    (tmp_path / ".file.mine.part").write_bytes(b"not of ours")
    (tmp_path / ".other.a1b2c3d4.part").write_bytes(b"of another file")
    busy = (tmp_path / ".file.b1b2c3d4.part").open("wb")
    fcntl.flock(busy, fcntl.LOCK_EX)
    write_atomically(tmp_path / "file", b"new")
    names = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert names == {"file", ".file.mine.part", ".other.a1b2c3d4.part", ".file.b1b2c3d4.part"}
    busy.close()
    write_atomically(tmp_path / "file", b"newer")
    assert not (tmp_path / ".file.b1b2c3d4.part").exists()


def test_many_who_write_one_file_do_not_take_each_others_parts(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tacit.storage import write_atomically\n"
        "for n in range(150): write_atomically(Path(sys.argv[1]), bytes([n]) * 1000)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "file")]) for _ in range(4)]
    assert [writer.wait() for writer in writers] == [0, 0, 0, 0]
    assert (tmp_path / "file").read_bytes() == bytes([149]) * 1000
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["file"]


@pytest.mark.parametrize("name", ["x" * 250, "ü" * 125])
def test_a_long_name_has_a_temporary_one_that_is_not_too_long(tmp_path: Path, name: str) -> None:
    write_atomically(tmp_path / name, b"new")
    assert (tmp_path / name).read_bytes() == b"new"


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES])
@pytest.mark.parametrize("call", ["open", "write", "fchmod", "fsync", "replace", "mkdir"])
def test_whatever_the_system_refuses_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(StorageError, match=rf"Can't write .*{os.strerror(code)}"):
        write_atomically(tmp_path / "folder" / "file", b"new")
    monkeypatch.undo()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_will_do_for_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def unable(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    (tmp_path / ".file.a1b2c3d4.part").write_bytes(b"perhaps somebody is at it")
    monkeypatch.setattr(fcntl, "flock", unable)
    write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert (tmp_path / ".file.a1b2c3d4.part").exists()


def test_a_name_that_is_not_forced_to_disk_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def fails_on_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fails_on_folders)
    with pytest.raises(StorageError, match=r"is written, but may not outlast a power cut: Input/output error"):
        write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_whose_folders_know_no_fsync_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def unable(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", unable)
    write_atomically(tmp_path / "new" / "file", b"new")


def test_everybody_may_read_unless_told_otherwise(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", b"")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


def test_a_pipe_or_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    """``tacit encrypt -o /dev/full --force``, by root, once made a plain file of the device."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="pipe or a device, expected a plain file"):
        write_atomically(tmp_path / "pipe", b"new")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert list(tmp_path.iterdir()) == [tmp_path / "pipe"]
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    write_atomically(tmp_path / "link", b"new")  # the link is a name, and takes another meaning
    assert (tmp_path / "link").read_bytes() == b"new"
