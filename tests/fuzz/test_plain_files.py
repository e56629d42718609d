"""Pipes, devices, sockets and folders in place of files: refused at once, by every reader of files of others."""

from __future__ import annotations

import gzip
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tacit import foreign
from tacit.cli.arrays import read_vector
from tacit.config import run_config as config
from tacit.config.sections import Paillier
from tacit.crypto import cipherfile, keyfile
from tacit.errors import TacitError
from tacit.parties.operator import pin_of
from tacit.runs import journal
from tacit.runs.folder import Checkpoint
from tacit.runs.result import Result
from tacit.tasks import femnist

READERS: dict[str, Callable[[Path], object]] = {
    "key file": keyfile.read,
    "ciphertexts": cipherfile.read,
    "configuration": config.from_yaml,
    "journal": lambda path: list(journal.read(path)),
    "result": Result.read,
    "checkpoint": Checkpoint.read,
    "array": read_vector,
    "data set": lambda path: list(femnist._read_file(path)),
    "pin": lambda path: pin_of({"tacit-pin": str(path)}, Paillier()),
}


@pytest.fixture(params=["pipe", "device", "socket", "folder"])
def no_file(request: pytest.FixtureRequest) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "it"
        match request.param:
            case "pipe":
                os.mkfifo(path)
            case "device":
                path.symlink_to("/dev/zero")
            case "folder":
                path.mkdir()
            case _:
                with socket.socket(socket.AF_UNIX) as bound:
                    bound.bind(str(path))
        yield path


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_what_is_no_plain_file_is_refused_at_once(reader: Callable[[Path], object], no_file: Path) -> None:
    caught: list[BaseException] = []

    def read() -> None:
        try:
            reader(no_file)
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=read, daemon=True)  # one that waits would keep the tests from ending
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert isinstance(caught[0], TacitError | OSError), caught


def test_a_small_file_that_unpacks_to_much_is_refused_before_it_has(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.gz"
    bomb.write_bytes(gzip.compress(bytes(64 << 20)))
    assert bomb.stat().st_size < 1 << 17
    with gzip.GzipFile(bomb) as stream, pytest.raises(OSError, match="longer than 1048576 bytes"):
        foreign.read_all(stream, largest=1 << 20)
