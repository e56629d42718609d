from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tacit.crypto import cipherfile, container, elgamal, groups, paillier, threshold
from tacit.crypto.safe_primes import safe_prime
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
    (tmp_path / "a.tct").write_bytes(container.pack(cipherfile.key_header(key, cipherfile.HOLDS), b""))
    with pytest.raises(KeysError, match="The key is of ElGamal"):
        _read(tmp_path / "a.tct")


def test_a_pipe_can_be_read(packed: bytes, tmp_path: Path) -> None:
    import os
    import threading

    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(packed,))
    writer.start()
    assert _read(tmp_path / "pipe").vector.summands == 1
    writer.join()


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="Can't read"):
        _read(tmp_path)


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
