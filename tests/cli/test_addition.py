from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.crypto import cipherfile, keyfile, paillier
from tests.cli.common_crypto import INSECURE, Tacit, only, save

pytestmark = pytest.mark.usefixtures("tmp_path")  # the commands write where they stand


def encrypt(
    tacit_command: Tacit, key: Path, numbers: Any, name: str, *options: str, folder: Path | None = None
) -> Path:
    """Encrypt a vector and leave only its .tct."""
    folder = folder or Path()
    vector = save(folder / "vector.npy", numbers)
    tacit_command.done("encrypt", "--key", key, vector, "-o", folder / name, INSECURE, *options)
    vector.unlink()
    return folder / name


@pytest.fixture
def public(keys: Path) -> Path:
    return keys / "a" / "public.key"


def test_a_sum(tacit_command: Tacit, public: Path, keys: Path) -> None:
    vectors = [np.linspace(-1, 1, 50) * factor for factor in (0.25, 0.5, -1.0)]
    files = [encrypt(tacit_command, public, vector, f"{place}.tct") for place, vector in enumerate(vectors)]
    found = tacit_command.json("sum", *files, "-o", "s.tct", INSECURE)
    key = keyfile.load_public(public, insecure_key_size=True)
    assert found == {
        "output": "s.tct",
        "files": 3,
        "vectors": 3,
        "room": 128,
        "numbers": 50,
        "ciphertexts": 4,
        "repeated": [],
        "pinned": False,
        "fingerprint": key.fingerprint,
        "insecure": True,
    }
    tacit_command.done("sum", "s.tct", files[0], "-o", "s2.tct", INSECURE, "--key", public)  # sums of sums
    private: Any = keyfile.load_private(keys / "a" / "private.key", insecure_key_size=True)
    total = private.decrypt(cipherfile.read(Path("s2.tct"), insecure_key_size=True).vector)
    assert np.abs(total - (vectors[0] * 2 + vectors[1] + vectors[2])).max() < 4 * 6e-8


def test_what_people_read(tacit_command: Tacit, public: Path) -> None:
    files = [encrypt(tacit_command, public, [0.5, 0.25], name) for name in ("a.tct", "b.tct")]
    text = tacit_command.done("sum", *files, "-o", "s.tct", INSECURE)
    assert "the sum of 2 vectors of 2 numbers (room for 128), re-randomised" in text
    assert "pin it with --key" in text
    assert "as in the key file" in tacit_command.done("sum", *files, "-o", "t.tct", INSECURE, "--key", public)


def test_a_sum_is_randomised_anew(tacit_command: Tacit, public: Path) -> None:
    files = [encrypt(tacit_command, public, [0.5], name) for name in ("a.tct", "b.tct")]
    vectors = [cipherfile.read(file, insecure_key_size=True).vector for file in files]
    sums = []
    for name in ("s.tct", "t.tct"):
        tacit_command.done("sum", *files, "-o", name, INSECURE)
        sums.append(cipherfile.read(Path(name), insecure_key_size=True).vector.rows.tobytes())
    assert len({*sums, paillier.total(vectors).rows.tobytes()}) == 3


def test_a_vector_twice_is_warned_of(tacit_command: Tacit, public: Path) -> None:
    a, b = (encrypt(tacit_command, public, [0.5], name) for name in ("a.tct", "b.tct"))
    (Path("copy.tct")).write_bytes(a.read_bytes())
    status, _, err = tacit_command("sum", a, b, "copy.tct", "-o", "s.tct", INSECURE)
    assert status == 0
    assert "a.tct and copy.tct are the same ciphertexts" in err
    assert tacit_command.json("sum", a, b, a, "-o", "t.tct", INSECURE)["repeated"] == [["a.tct", "a.tct"]]


def test_vectors_of_different_keys(tacit_command: Tacit, public: Path, keys: Path, tmp_path: Path) -> None:
    a = encrypt(tacit_command, public, [0.5], "a.tct")
    b = encrypt(tacit_command, keys / "b" / "public.key", [0.5], "b.tct")
    words = tacit_command.refused("sum", a, b, "-o", "s.tct", INSECURE)
    assert "b.tct is of key" in words
    assert "vectors of different keys can't be added" in words
    words = tacit_command.refused("sum", b, "-o", "s.tct", INSECURE, "--key", public)
    assert "b.tct is of key" in words
    only(tmp_path, "a.tct", "b.tct")


@pytest.mark.parametrize(
    ("numbers", "options"),
    [([0.5], ()), ([0.5, 0.5], ("--clip", "2")), ([0.5, 0.5], ("--bits", "20")), ([0.5, 0.5], ("--summands", "99"))],
)
def test_vectors_of_different_layouts(
    tacit_command: Tacit, public: Path, numbers: list[float], options: tuple[str, ...]
) -> None:
    a = encrypt(tacit_command, public, [0.5, 0.5], "a.tct")
    b = encrypt(tacit_command, public, numbers, "b.tct", *options)
    words = tacit_command.refused("sum", a, b, "-o", "s.tct", INSECURE)
    assert "b.tct has Layout(" in words
    assert "same clip, bits, summands and length" in words


def test_more_summands_than_the_layout_has_room_for(tacit_command: Tacit, public: Path, tmp_path: Path) -> None:
    files = [encrypt(tacit_command, public, [0.5], name, "--summands", "2") for name in ("a.tct", "b.tct", "c.tct")]
    words = tacit_command.refused("sum", *files, "-o", "s.tct", INSECURE)
    assert "3 summands, and the layout has room for 2" in words
    only(tmp_path, "a.tct", "b.tct", "c.tct")


def _repacked(path: Path, change: Any) -> None:
    """Change a file as a person would who knows about both checksums."""
    file = cipherfile.read(path, insecure_key_size=True)
    rows = file.vector.rows.copy()
    change(rows, file.vector.key)
    forged = paillier.CiphertextVector(
        key=file.vector.key, layout=file.vector.layout, summands=file.vector.summands, rows=rows
    )
    path.write_bytes(cipherfile.pack(file.public, forged))


def _number(rows: Any, place: int, number: int) -> None:
    rows[place] = np.frombuffer(number.to_bytes(rows.shape[1], "big"), np.uint8)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows, key: _number(rows, 1, 0), "Ciphertext 1 of 2 is 0"),
        (lambda rows, key: _number(rows, 0, key.square), "Ciphertext 0 of 2 is not below n^2"),
        (lambda rows, key: _number(rows, 0, key.n), "divisor in common with n"),
    ],
)
def test_forged_ciphertexts_are_named(tacit_command: Tacit, public: Path, change: Any, words: str) -> None:
    files = [encrypt(tacit_command, public, np.zeros(20), name) for name in ("a.tct", "b.tct", "c.tct")]
    _repacked(files[1], change)
    found = tacit_command.refused("sum", *files, "-o", "s.tct", INSECURE)
    assert "b.tct: " in found
    assert words in found
    assert not Path("s.tct").exists()


@pytest.mark.parametrize("change", ["cut", "start", "long", "flip", "other", "empty", "version", "lengths"])
def test_files_that_are_no_ciphertexts(tacit_command: Tacit, public: Path, change: str) -> None:
    path = encrypt(tacit_command, public, [0.5], "a.tct")
    raw = path.read_bytes()
    path.write_bytes(
        {
            "cut": raw[:-1],
            "start": raw[:12],
            "long": raw + b"\0",
            "flip": raw[:-40] + bytes([raw[-40] ^ 1]) + raw[-39:],
            "other": b"\x93NUMPY" + raw,
            "empty": b"",
            "version": raw[:8] + b"\x02" + raw[9:],
            "lengths": raw[:9] + b"\xff" * 12 + raw[21:],
        }[change]
    )
    words = {
        "cut": "is cut off: expected",
        "start": "is cut off after 12 bytes",
        "long": "is too long: expected",
        "flip": "is damaged: its checksum",
        "other": "is no file of ciphertexts",
        "empty": "is no file of ciphertexts",
        "version": "has version 2 of ciphertext files, expected 1",
        "lengths": "damaged",
    }[change]
    assert words in tacit_command.refused("sum", path, "-o", "s.tct", INSECURE)
    assert not Path("s.tct").exists()


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({}, "holds 'None', expected 'encrypted vector'"),
        ({"holds": "partial decryption"}, "holds 'partial decryption', expected 'encrypted vector'"),
        ({"holds": "encrypted vector"}, "carries no public key"),
        ({"holds": "encrypted vector", "key": []}, "carries no public key"),
        ({"holds": "encrypted vector", "key": {"kind": "paillier private"}}, "carries no public key"),
        ({"holds": "encrypted vector", "key": {"kind": "paillier public"}}, "can't be used: Expected n, h"),
        ({"holds": "encrypted vector", "key": {"kind": "paillier public", "public": 7}}, "can't be used"),
        ({"holds": "encrypted vector", "key": {"kind": "threshold public", "public": {}}}, "can't be used"),
    ],
)
def test_headers_that_make_no_sense(tacit_command: Tacit, header: dict[str, Any], words: str) -> None:
    Path("a.tct").write_bytes(cipherfile.wrapped(header, b""))
    assert words in tacit_command.refused("sum", "a.tct", "-o", "s.tct", INSECURE)


def test_a_vector_under_another_key_than_its_file_says(tacit_command: Tacit, public: Path, keys: Path) -> None:
    path = encrypt(tacit_command, public, [0.5], "a.tct")
    other = keyfile.load_public(keys / "b" / "public.key", insecure_key_size=True)
    path.write_bytes(cipherfile.pack(other, cipherfile.read(path, insecure_key_size=True).vector))
    assert "a.tct: The vector is encrypted with key" in tacit_command.refused("sum", path, "-o", "s.tct", INSECURE)


def test_short_keys_and_wrong_keys(tacit_command: Tacit, public: Path, keys: Path) -> None:
    path = encrypt(tacit_command, public, [0.5], "a.tct")
    assert "is of a key of 512 bits, expected at least 2048" in tacit_command.refused("sum", path, "-o", "s.tct")
    words = tacit_command.refused("sum", path, "-o", "s.tct", INSECURE, "--key", keys / "a" / "private.key")
    assert "holds a Paillier private key, expected a public key" in words


def test_outputs_and_missing_files(tacit_command: Tacit, public: Path) -> None:
    path = encrypt(tacit_command, public, [0.5], "a.tct")
    assert "Can't read none.tct: No such file" in tacit_command.refused("sum", path, "none.tct", "-o", "s", INSECURE)
    before = path.read_bytes()
    assert "or replace it with --force" in tacit_command.refused("sum", path, "-o", path, INSECURE)
    assert path.read_bytes() == before
    tacit_command.done("sum", path, "-o", path, "--force", INSECURE)
    assert path.read_bytes() != before
    assert "Can't write" in tacit_command.refused("sum", path, "-o", path / "s.tct", INSECURE)
    only(Path(), "a.tct")
