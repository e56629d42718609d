"""Key files (open and sealed), files of ciphertexts and partial decryptions, arrays, data sets."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tacit.cli.arrays import npy_bytes, read_vector
from tacit.crypto import cipherfile, keyfile
from tacit.crypto.keyfile import AnyKey
from tacit.crypto.sealing import Cost
from tacit.tasks import femnist
from tacit.tasks.idx import parse_idx
from tests.fuzz.fixed import PRIVATE, PUBLIC, determined, elgamal_keys, encrypted, threshold_key
from tests.fuzz.harness import Target

WORDS = "correct horse battery"


@functools.cache
def folder() -> Path:
    """Return a folder for the files of one process, in memory where there is such a place."""
    memory = Path("/dev/shm")
    made = tempfile.TemporaryDirectory(prefix="tacit-fuzz-", dir=memory if memory.is_dir() else None)
    folder.kept = made  # type: ignore[attr-defined]  # it goes with the process
    return Path(made.name)


def written(name: str, data: bytes) -> Path:
    """Return a file with these bytes."""
    path = folder() / name
    path.touch(mode=0o600)
    path.write_bytes(data)
    return path


@functools.cache
def _keyfiles() -> tuple[bytes, ...]:
    shared, shares = threshold_key()
    made = []
    keys: tuple[AnyKey, ...] = (PUBLIC, PRIVATE, shared, shares[0], *elgamal_keys())
    for place, key in enumerate(keys):
        path = folder() / f"made-{place}.key"
        keyfile.save(path, key)
        made.append(path.read_bytes())
    return tuple(made)


@functools.cache
def _sealed() -> tuple[bytes, ...]:
    with determined():
        made = []
        keys: tuple[AnyKey, ...] = (PRIVATE, threshold_key()[1][0], elgamal_keys()[1])
        for place, key in enumerate(keys):
            path = folder() / f"sealed-{place}.key"
            keyfile.save(path, key, passphrase=WORDS, cost=Cost(n=16))
            made.append(path.read_bytes())
    return tuple(made)


def _mend_key(data: bytes) -> bytes:
    """Return a key file with the checksum of what it holds, written as files are."""
    plain: dict[str, Any] = json.loads(data)
    return keyfile.to_bytes({name: plain[name] for name in plain if name != "checksum"})


def _key(data: bytes) -> None:
    """What is read is written the same again, and a secret belongs to its public half."""
    file = keyfile.read(written("a.key", data), insecure_key_size=True)
    key = file.public if file.kind.role == "public" else file.unlock(WORDS)
    again = folder() / "again.key"
    again.unlink(missing_ok=True)
    keyfile.save(again, key)
    read = keyfile.read(again, insecure_key_size=True)
    assert (read.public if file.kind.role == "public" else read.unlock()) == key


def _cipherfiles() -> list[bytes]:
    return [cipherfile.pack(PUBLIC, encrypted(1)), cipherfile.pack(threshold_key()[0], encrypted(1, shared=True))]


def _mend_container(data: bytes) -> bytes:
    """Return a file whose lengths and checksum fit."""
    header = data.index(b'"}}') + 3 - 21
    packed = data[:9] + struct.pack(">IQ", header, len(data) - 21 - 32 - header) + data[21:-32]
    return packed + hashlib.sha256(packed).digest()


def _cipher(data: bytes) -> None:
    file = cipherfile.read(written("a.tct", data), insecure_key_size=True)
    assert file.vector.layout.rows == len(file.vector.rows)
    again = written("again.tct", cipherfile.pack(file.public, file.vector))
    read = cipherfile.read(again, expected=file.public, insecure_key_size=True)
    assert np.array_equal(read.vector.rows, file.vector.rows)


def _partialfiles() -> list[bytes]:
    public, shares = threshold_key()
    with determined(7):
        partial = shares[0].partial(encrypted(1, shared=True), prove=True)
    return [cipherfile.pack_partial(public, partial)]


def _partial(data: bytes) -> None:
    cipherfile.read_partial(written("a.part", data), threshold_key()[0], insecure_key_size=True)


def _arrays() -> list[bytes]:
    return [npy_bytes(np.linspace(-1, 1, 5)), npy_bytes(np.arange(6).reshape(2, 3))]


def _array(data: bytes) -> None:
    flat, shape = read_vector(written("a.npy", data))
    assert flat.shape == (int(np.prod(shape)),)


def _idx_seeds() -> list[bytes]:
    return [bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), bytes([0, 0, 12, 1, 0, 0, 0, 1, 0, 0, 0, 9])]


def _idx(data: bytes) -> None:
    assert parse_idx(data, file="a file", dimensions=1).nbytes <= len(data)


def _leaf_seeds() -> list[bytes]:
    user = {"x": [[0.0] * 784], "y": [3]}
    return [json.dumps({"users": ["f01"], "user_data": {"f01": user}, "num_samples": [1]}).encode()]


def _packed(read: Callable[[Path], object]) -> Callable[[bytes], None]:
    def check(data: bytes) -> None:
        read(written("a.json", data))
        read(written("a.json.gz", gzip.compress(data, 1)))

    return check


def _leaf(path: Path) -> None:
    for _, pixels, labels in femnist._read_file(path):
        assert len(pixels) == len(labels)


TARGETS = (
    Target(name="keyfiles", seeds=_keyfiles, check=_key, mend=_mend_key, form="json", inputs=2000),
    # what a file may ask of scrypt is bounded at some seconds
    Target(name="sealed", seeds=_sealed, check=_key, mend=_mend_key, form="json", inputs=600, seconds=20),
    Target(name="cipherfiles", seeds=_cipherfiles, check=_cipher, mend=_mend_container, inputs=2000),
    Target(name="partialfiles", seeds=_partialfiles, check=_partial, mend=_mend_container, inputs=1500),
    Target(name="arrays", seeds=_arrays, check=_array, inputs=1500),
    Target(name="idx", seeds=_idx_seeds, check=_idx, inputs=3000),
    Target(name="leaf", seeds=_leaf_seeds, check=_packed(_leaf), form="json", inputs=400),
)
