from __future__ import annotations

import hashlib
import os
import resource
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tacit.crypto import cipherfile, elgamal, groups, paillier, threshold
from tacit.crypto.primes import safe_prime
from tacit.errors import CipherError, KeysError, StorageError


@pytest.fixture(scope="module")
def public() -> paillier.PublicKey:
    return paillier.generate(bits=512, insecure_key_size=True)[0]


@pytest.fixture(scope="module")
def packed(public: paillier.PublicKey) -> bytes:
    return cipherfile.pack(public, public.encrypt(np.linspace(-1, 1, 20)))


def _read(path: Path) -> cipherfile.EncryptedFile:
    return cipherfile.read(path, insecure_key_size=True)


def test_what_is_packed_is_read(public: paillier.PublicKey, packed: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.tct").write_bytes(packed)
    file = _read(tmp_path / "a.tct")
    assert (file.public, file.vector.key, file.vector.layout.length) == (public, public, 20)
    assert cipherfile.pack(file.public, file.vector) == packed


def test_a_threshold_key_is_read_whole(tmp_path: Path) -> None:
    together, _ = threshold.generate(shares=3, threshold=2, bits=512, insecure_key_size=True)
    (tmp_path / "a.tct").write_bytes(cipherfile.pack(together, together.key.encrypt([0.5])))
    file = _read(tmp_path / "a.tct")
    assert (file.public, file.vector.key) == (together, together.key)


def test_elgamal_keys_have_no_vectors(packed: bytes, tmp_path: Path) -> None:
    key, _ = elgamal.generate(groups.own(safe_prime(256), insecure_key_size=True), insecure_key_size=True)
    (tmp_path / "a.tct").write_bytes(cipherfile.wrapped(cipherfile.key_header(key, cipherfile.VECTOR), b""))
    with pytest.raises(KeysError, match="The key is of ElGamal"):
        _read(tmp_path / "a.tct")


def test_what_is_no_plain_file_is_refused_at_once(tmp_path: Path) -> None:
    """A pipe waits for a writer, and one that claims 2^36 bytes, or a device, would be given the memory for them."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(StorageError, match=f"Can't read {path}: "):
            _read(path)


def test_a_pipe_that_claims_much_gets_no_memory(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    claim = struct.pack(">8sBIQ", cipherfile.MAGIC, cipherfile.VERSION, 2, 1 << 36)
    keeps_it_open = os.open(tmp_path / "pipe", os.O_RDWR)
    os.write(keeps_it_open, claim)
    try:
        with pytest.raises(StorageError, match="expected a plain file"):
            _read(tmp_path / "pipe")
    finally:
        os.close(keeps_it_open)


def test_a_file_that_is_larger_than_memory_is_refused(tmp_path: Path) -> None:
    """A file with holes takes no room on the disk, and its length is the one that it claims."""
    with (tmp_path / "holes.tct").open("wb") as stream:
        stream.write(struct.pack(">8sBIQ", cipherfile.MAGIC, cipherfile.VERSION, 2, 1 << 36))
        stream.truncate(21 + 2 + (1 << 36) + 32)
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 35, before[1]))
    try:
        with pytest.raises(StorageError, match=r"68719476791 bytes, more than this machine has memory for"):
            _read(tmp_path / "holes.tct")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_anywhere_is_found(packed: bytes, tmp_path: Path, data: st.DataObject) -> None:
    raw = bytearray(packed)
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= data.draw(st.integers(1, 255))
    (tmp_path / "a.tct").write_bytes(raw)
    with pytest.raises(CipherError):
        _read(tmp_path / "a.tct")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_forgery_anywhere_is_an_error_or_a_vector(packed: bytes, tmp_path: Path, data: st.DataObject) -> None:
    """Whoever changes a file mends its checksum as well: nothing else than our errors may come of it."""
    raw = bytearray(packed[:-32])
    place = data.draw(st.integers(0, len(raw) - 1))
    match data.draw(st.sampled_from(["change", "cut", "insert"])):
        case "change":
            raw[place : place + 4] = data.draw(st.binary(min_size=4, max_size=4))
        case "cut":
            del raw[place:]
        case _:
            raw[place:place] = data.draw(st.binary(min_size=1, max_size=8))
    (tmp_path / "a.tct").write_bytes(bytes(raw) + hashlib.sha256(raw).digest())
    try:
        file = _read(tmp_path / "a.tct")
    except (CipherError, KeysError):
        return
    assert file.vector.layout.rows == len(file.vector.rows)
