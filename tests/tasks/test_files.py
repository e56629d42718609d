from __future__ import annotations

import errno
import gzip
import hashlib
import os
from pathlib import Path

import pytest

from tacit.errors import DataError
from tacit.tasks.files import DataFile

CONTENT = bytes(range(256)) * 40
PUBLISHED = gzip.compress(CONTENT, mtime=7)
FILE = DataFile(
    name="numbers.gz",
    size=len(PUBLISHED),
    sha256=hashlib.sha256(PUBLISHED).hexdigest(),
    content_size=len(CONTENT),
    content_sha256=hashlib.sha256(CONTENT).hexdigest(),
)
TEXT = DataFile(
    name="rows.data",
    size=8,
    sha256=hashlib.sha256(b"1,2\n3,4\n").hexdigest(),
    content_size=8,
    content_sha256=hashlib.sha256(b"1,2\n3,4\n").hexdigest(),
)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("numbers.gz", PUBLISHED),
        ("numbers", CONTENT),
        ("numbers.gz", gzip.compress(CONTENT, mtime=99, compresslevel=1)),
    ],
    ids=["as published", "decompressed", "compressed anew"],
)
def test_every_right_copy_is_accepted(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    path = FILE.find(tmp_path)
    assert path == tmp_path / name
    assert FILE.read(path, advice="") == CONTENT


def test_line_ends_of_a_text_may_be_those_of_windows(tmp_path: Path) -> None:
    (tmp_path / "rows.data").write_bytes(b"1,2\r\n3,4\r\n")
    assert TEXT.read(tmp_path / "rows.data", advice="") == b"1,2\n3,4\n"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (PUBLISHED[:-20], "it ends early"),
        (PUBLISHED[:50] + bytes([PUBLISHED[50] ^ 1]) + PUBLISHED[51:], "damaged|content"),
        (gzip.compress(CONTENT[:-1], mtime=7), "its content is another"),
        (gzip.compress(CONTENT * 3, mtime=7), "it holds too much"),
        (b"<html>not found</html>", "22 bytes long"),
        (b"", "0 bytes long"),
    ],
)
def test_a_wrong_copy_is_refused_with_both_hashes(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "numbers.gz"
    path.write_bytes(data)
    with pytest.raises(DataError, match=reason) as caught:
        FILE.read(path, advice="Delete it.")
    message = str(caught.value)
    assert str(path) in message
    assert hashlib.sha256(data).hexdigest() in message
    assert FILE.sha256 in message or FILE.content_sha256 in message
    assert message.endswith("Delete it.")


def test_a_folder_without_permission_is_a_data_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may look everywhere, so the refusal is put in by hand.
    def refuse(self: Path, **_: object) -> os.stat_result:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(DataError, match=r"Permission denied.*TACIT_DATA"):
        FILE.find(tmp_path)


def test_a_file_without_permission_is_a_data_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match="Permission denied"):
        FILE.read(tmp_path / "numbers.gz", advice="")
