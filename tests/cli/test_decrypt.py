from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.crypto import cipherfile, keyfile, paillier, sealing, threshold
from tests.cli.common_crypto import INSECURE, Tacit, only, save

pytestmark = pytest.mark.usefixtures("tmp_path")  # the commands write where they stand

NUMBERS = np.linspace(-1, 1, 30)


def _encrypted(tacit_command: Tacit, key: Path, name: str, numbers: Any = NUMBERS) -> Path:
    vector = save(Path("vector.npy"), numbers)
    tacit_command.done("encrypt", "--key", key, vector, "-o", name, INSECURE)
    vector.unlink()
    return Path(name)


@pytest.fixture
def private(keys: Path) -> Path:
    return keys / "a" / "private.key"


@pytest.fixture
def sum_file(tacit_command: Tacit, keys: Path) -> Path:
    """Return the sum of two vectors under the key a."""
    files = [_encrypted(tacit_command, keys / "a" / "public.key", name) for name in ("a.tct", "b.tct")]
    tacit_command.done("sum", *files, "-o", "s.tct", INSECURE)
    for file in files:
        file.unlink()
    return Path("s.tct")


@pytest.fixture
def shared(tacit_command: Tacit, keys: Path) -> Path:
    """Return a vector under the threshold key."""
    return _encrypted(tacit_command, keys / "t" / "public.key", "t.tct")


def _parts(tacit_command: Tacit, keys: Path, source: Path, *numbers: int, prove: bool = True) -> list[Path]:
    parts = []
    for number in numbers:
        parts.append(Path(f"{number}.part"))
        key = keys / "t" / f"share-{number}.key"
        options = ["--prove"] if prove else []
        tacit_command.done("decrypt", "--key", key, "--partial", source, "-o", parts[-1], INSECURE, *options)
    return parts


def test_a_sum_of_floats(tacit_command: Tacit, private: Path, sum_file: Path) -> None:
    found = tacit_command.json("decrypt", "--key", private, sum_file, "-o", "s.npy", INSECURE)
    assert (found["vectors"], found["numbers"], found["type"]) == (2, 30, "floats")
    opened = np.load("s.npy", allow_pickle=False)
    assert opened.dtype == np.float64
    assert np.abs(opened - 2 * NUMBERS).max() <= found["largest_error"] <= 1.3e-7
    only(Path(), "s.tct", "s.npy")


def test_a_vector_of_integers(tacit_command: Tacit, keys: Path, private: Path) -> None:
    path = _encrypted(tacit_command, keys / "a" / "public.key", "a.tct", [[1, -2], [3, 2**31]])
    text = tacit_command.done("decrypt", "--key", private, path, "-o", "a.npy", INSECURE)
    assert "the sum of 1 vector of 4 numbers, exact" in text
    assert "one vector alone" in text
    opened = np.load("a.npy", allow_pickle=False)
    assert (opened.dtype, opened.tolist()) == (np.int64, [1, -2, 3, 2**31])


def test_what_people_read(tacit_command: Tacit, private: Path, sum_file: Path) -> None:
    text = tacit_command.done("decrypt", "--key", private, sum_file, "-o", "s.npy", INSECURE)
    assert "the sum of 2 vectors of 30 numbers, within 1.2e-07" in text
    assert "alone" not in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a/public.key", "holds a Paillier public key, expected a private key"),
        ("b/private.key", "s.tct is of key"),
        ("e/private.key", "s.tct is of key"),
        ("e/public.key", "holds an ElGamal public key, expected a private key"),
        ("t/public.key", "holds a threshold Paillier public key, expected a private key"),
        ("t/share-1.key", "Got 1 share, expected 2 of 3"),
        ("none.key", "There is no key file"),
    ],
)
def test_keys_that_do_not_open_it(tacit_command: Tacit, keys: Path, sum_file: Path, name: str, words: str) -> None:
    assert words in tacit_command.refused("decrypt", "--key", keys / name, sum_file, "-o", "s.npy", INSECURE)
    only(Path(), "s.tct")


def test_shares_of_another_key(tacit_command: Tacit, keys: Path, sum_file: Path) -> None:
    pair = ("--key", keys / "t" / "share-1.key", "--key", keys / "t" / "share-2.key")
    assert "s.tct is of key" in tacit_command.refused("decrypt", *pair, sum_file, "-o", "s.npy", INSECURE)


def test_a_short_key(tacit_command: Tacit, private: Path, sum_file: Path) -> None:
    assert "expected at least 2048" in tacit_command.refused("decrypt", "--key", private, sum_file, "-o", "s.npy")


@pytest.mark.parametrize(
    ("names", "options", "words"),
    [
        (("a/private.key", "a/private.key"), (), "Expected one private key, or shares of one threshold key"),
        (("a/private.key", "t/share-1.key"), (), "Expected one private key, or shares of one threshold key"),
        (("t/share-1.key", "t/public.key"), (), "expected a private key"),
        (("t/public.key",), ("--partial",), "expected a share of a threshold key"),
        (("a/private.key",), ("--partial",), "--partial goes with one share"),
        (("t/share-1.key", "t/share-2.key"), ("--partial",), "--partial goes with one share"),
        (("t/share-1.key", "t/share-2.key"), ("--prove",), "--prove goes with --partial"),
        (("t/share-1.key", "t/share-1.key"), (), "Given more than once: share 1"),
    ],
)
def test_keys_that_do_not_go_together(
    tacit_command: Tacit, keys: Path, shared: Path, names: tuple[str, ...], options: tuple[str, ...], words: str
) -> None:
    given = [part for name in names for part in ("--key", str(keys / name))]
    assert words in tacit_command.refused("decrypt", *given, *options, shared, "-o", "t.npy", INSECURE)
    only(Path(), "t.tct")


def test_shares_of_different_keys(tacit_command: Tacit, keys: Path, shared: Path) -> None:
    _, shares = threshold.generate(shares=3, threshold=2, bits=256, insecure_key_size=True)
    keyfile.save("other.key", shares[2])
    given = ("--key", keys / "t" / "share-1.key", "--key", "other.key")
    assert "are shares of different keys" in tacit_command.refused("decrypt", *given, shared, "-o", "t.npy", INSECURE)


def test_a_sealed_key(tacit_command: Tacit, private: Path, sum_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = keyfile.load_private(private, insecure_key_size=True)
    keyfile.save("sealed.key", key, passphrase="correct horse", cost=sealing.Cost(n=1024))
    asked = ("decrypt", "--key", "sealed.key", sum_file, "-o", "s.npy", INSECURE)
    monkeypatch.setenv("TACIT_PASSPHRASE", "wrong horse")
    assert "Can't open sealed.key: The passphrase is wrong" in tacit_command.refused(*asked)
    assert not Path("s.npy").exists()
    monkeypatch.setenv("TACIT_PASSPHRASE", "correct horse")
    tacit_command.done(*asked)


def test_damaged_and_open_keys(tacit_command: Tacit, private: Path, sum_file: Path) -> None:
    raw = private.read_text()
    Path("damaged.key").write_text(raw.replace('"p": "', '"p": "0'))
    asked = (sum_file, "-o", "s.npy", INSECURE)
    Path("damaged.key").chmod(0o600)
    assert "damaged.key is damaged" in tacit_command.refused("decrypt", "--key", "damaged.key", *asked)
    shutil.copy(private, "open.key")
    Path("open.key").chmod(0o604)
    status, _, err = tacit_command("decrypt", "--key", "open.key", *asked)
    assert (status, "mode 604" in err) == (0, True)


def test_a_sum_that_no_honest_clients_made(tacit_command: Tacit, private: Path, sum_file: Path) -> None:
    file = cipherfile.read(sum_file, insecure_key_size=True)
    forged = paillier.CiphertextVector(
        key=file.vector.key, layout=file.vector.layout, summands=1, rows=(file.vector * 60).rows
    )
    sum_file.write_bytes(cipherfile.pack(file.public, forged))
    words = tacit_command.refused("decrypt", "--key", private, sum_file, "-o", "s.npy", INSECURE)
    assert "can't be one" in words
    only(Path(), "s.tct")


def test_outputs(tacit_command: Tacit, private: Path, sum_file: Path) -> None:
    Path("s.npy").write_text("old")
    asked = ("decrypt", "--key", private, sum_file, INSECURE, "-o")
    assert "or replace it with --force" in tacit_command.refused(*asked, "s.npy")
    assert Path("s.npy").read_text() == "old"
    tacit_command.done(*asked, "s.npy", "--force")
    assert len(np.load("s.npy")) == 30
    assert "Can't write" in tacit_command.refused(*asked, sum_file / "s.npy")
    assert "Can't read none.tct" in tacit_command.refused(
        "decrypt", "--key", private, "none.tct", "-o", "x.npy", INSECURE
    )
    assert "is no file of ciphertexts" in tacit_command.refused(
        "decrypt", "--key", private, "s.npy", "-o", "x.npy", INSECURE
    )


@pytest.mark.parametrize("numbers", [(1, 2), (3, 1), (1, 2, 3)])
def test_one_who_holds_enough_shares(tacit_command: Tacit, keys: Path, shared: Path, numbers: tuple[int, ...]) -> None:
    given = [part for number in numbers for part in ("--key", str(keys / "t" / f"share-{number}.key"))]
    tacit_command.done("decrypt", *given, shared, "-o", "t.npy", INSECURE)
    assert np.abs(np.load("t.npy") - NUMBERS).max() < 6e-8


@pytest.mark.parametrize("verify", [(), ("--verify",)])
def test_holders_apart(tacit_command: Tacit, keys: Path, shared: Path, verify: tuple[str, ...]) -> None:
    parts = _parts(tacit_command, keys, shared, 3, 1)
    found = tacit_command.json("combine", shared, *parts, "-o", "t.npy", INSECURE, *verify)
    assert (found["used"], found["wrong"], found["numbers"]) == ([1, 3], [], 30)
    assert np.abs(np.load("t.npy") - NUMBERS).max() < 6e-8
    only(Path(), "t.tct", "t.npy", "1.part", "3.part")


def test_what_a_part_says(tacit_command: Tacit, keys: Path, shared: Path) -> None:
    asked = ("decrypt", "--key", keys / "t" / "share-2.key", "--partial", shared, INSECURE, "-o")
    text = tacit_command.done(*asked, "2.part", "--prove")
    assert "share 2's part of decrypting t.tct, the sum of 1 vector, with a proof" in text
    assert "2 such parts open it" in text
    found = tacit_command.json(*asked, "plain.part")
    assert (found["share"], found["proved"], found["output"]) == (2, False, "plain.part")


def test_too_few_parts(tacit_command: Tacit, keys: Path, shared: Path) -> None:
    parts = _parts(tacit_command, keys, shared, 2)
    words = tacit_command.refused("combine", shared, *parts, "-o", "t.npy", INSECURE)
    assert "Got share 2, expected 2 of 3: 1 too few" in words
    assert not Path("t.npy").exists()


def _forge(path: Path, keys: Path) -> None:
    """Exchange a number of a part for another one, with every checksum right."""
    public = keyfile.load_public(keys / "t" / "public.key", insecure_key_size=True)
    assert isinstance(public, threshold.ThresholdPublic)
    part = cipherfile.read_partial(path, public, insecure_key_size=True)
    rows = part.rows.copy()
    rows[0, -1] ^= 2
    forged = threshold.PartialDecryption(
        identity=part.identity, index=part.index, ciphertext=part.ciphertext, rows=rows, proof=part.proof
    )
    path.write_bytes(cipherfile.pack_partial(public, forged))


def test_a_wrong_part_is_named(tacit_command: Tacit, keys: Path, shared: Path) -> None:
    parts = _parts(tacit_command, keys, shared, 1, 2, 3)
    _forge(parts[0], keys)
    status, _, err = tacit_command("combine", shared, *parts, "-o", "t.npy", "--verify", INSECURE)
    assert (status, "1.part is wrong and was left out" in err) == (0, True)
    assert np.abs(np.load("t.npy") - NUMBERS).max() < 6e-8
    words = tacit_command.refused("combine", shared, *parts[:2], "-o", "u.npy", "--verify", INSECURE)
    assert "share 1" in words
    assert not Path("u.npy").exists()


def test_parts_without_the_proof_that_is_demanded(tacit_command: Tacit, keys: Path, shared: Path) -> None:
    parts = _parts(tacit_command, keys, shared, 1, 2, prove=False)
    words = tacit_command.refused("combine", shared, *parts, "-o", "t.npy", "--verify", INSECURE)
    assert "Without a proof: shares 1, 2" in words


def test_parts_of_another_ciphertext(tacit_command: Tacit, keys: Path, shared: Path) -> None:
    parts = _parts(tacit_command, keys, shared, 1, 2)
    other = _encrypted(tacit_command, keys / "t" / "public.key", "u.tct")
    assert "Of another ciphertext" in tacit_command.refused("combine", other, *parts, "-o", "t.npy", INSECURE)


def test_what_can_not_be_combined(tacit_command: Tacit, keys: Path, shared: Path, sum_file: Path) -> None:
    parts = _parts(tacit_command, keys, shared, 1, 2)
    asked = ("-o", "t.npy", INSECURE)
    assert "not encrypted with a threshold key" in tacit_command.refused("combine", sum_file, *parts, *asked)
    assert "holds 'partial decryption', expected" in tacit_command.refused("combine", parts[0], *parts, *asked)
    assert "holds 'encrypted vector', expected" in tacit_command.refused("combine", shared, shared, *asked)
    assert "t.tct is of key" in tacit_command.refused(
        "combine", shared, *parts, *asked, "--key", keys / "a" / "public.key"
    )
    tacit_command.done("combine", shared, *parts, *asked, "--key", keys / "t" / "public.key")
    raw = parts[0].read_bytes()
    parts[0].write_bytes(raw[:-1])
    assert "1.part is cut off" in tacit_command.refused("combine", shared, *parts, "-o", "u.npy", INSECURE)


def test_a_part_of_another_key(tacit_command: Tacit, keys: Path, shared: Path) -> None:
    parts = _parts(tacit_command, keys, shared, 1)
    public, shares = threshold.generate(shares=3, threshold=2, bits=512, insecure_key_size=True)
    foreign = shares[1].partial(public.key.encrypt(NUMBERS))
    Path("2.part").write_bytes(cipherfile.pack_partial(public, foreign))
    words = tacit_command.refused("combine", shared, *parts, "2.part", "-o", "t.npy", INSECURE)
    assert "2.part is of key" in words
