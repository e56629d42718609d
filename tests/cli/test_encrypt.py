from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.crypto import cipherfile, keyfile, sealing
from tests.cli.common_crypto import INSECURE, Tacit, only, save


def _encrypted(path: Path) -> cipherfile.EncryptedFile:
    return cipherfile.read(path, insecure_key_size=True)


def _opened(keys: Path, path: Path) -> Any:
    private: Any = keyfile.load_private(keys / "a" / "private.key", insecure_key_size=True)
    return private.decrypt(_encrypted(path).vector)


@pytest.mark.parametrize("role", ["public", "private"])
def test_floats(tacit_command: Tacit, keys: Path, tmp_path: Path, role: str) -> None:
    numbers = np.linspace(-1.5, 1.5, 101)
    vector = save(tmp_path / "v.npy", numbers)
    found = tacit_command.json("encrypt", "--key", keys / "a" / f"{role}.key", vector, "-o", "v.tct", INSECURE)
    assert found["clipped"] == np.count_nonzero(np.abs(numbers) > 1)
    assert (found["numbers"], found["type"], found["clip"], found["summands"]) == (101, "floats", 1.0, 128)
    assert (found["flattened"], found["insecure"], found["output"]) == (False, True, "v.tct")
    assert found["bytes"] == Path("v.tct").stat().st_size
    public = keyfile.load_public(keys / "a" / "public.key", insecure_key_size=True)
    assert found["fingerprint"] == public.fingerprint
    assert np.abs(_opened(keys, Path("v.tct")) - np.clip(numbers, -1, 1)).max() <= found["largest_error"] * 1.01
    assert Path("v.tct").stat().st_mode & 0o777 == 0o644


def test_a_private_key_brings_its_own_noise(
    tacit_command: Tacit, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tacit.crypto import paillier

    def never(*_: object, **__: object) -> None:
        raise AssertionError("the public key's table was used")

    monkeypatch.setattr(paillier.PublicKey, "take", never)
    tacit_command.done(
        "encrypt", "--key", keys / "a" / "private.key", save(tmp_path / "v.npy", [0.5]), "-o", "v.tct", INSECURE
    )


def test_what_people_read(tacit_command: Tacit, keys: Path, tmp_path: Path) -> None:
    vector = save(tmp_path / "v.npy", np.full((2, 3), 1.25, np.float32))
    status, out, err = tacit_command("encrypt", "--key", keys / "a" / "public.key", vector, "-o", "v.tct", INSECURE)
    assert status == 0
    assert "INSECURE: a key of 512 bits" in err
    for words in ("6 floats in 1 ciphertext,", "shape (2, 3) was flattened", "clipped 6 of 6", "up to 128", "6e-08"):
        assert words in out
    vector = save(tmp_path / "w.npy", [0.25])
    text = tacit_command.done("encrypt", "--key", keys / "a" / "public.key", vector, "-o", "w.tct", INSECURE)
    assert "1 float in 1 ciphertext" in text
    assert "nothing was beyond the clip of ±1" in text


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "int64", "uint64", ">i4", "<i2"])
def test_integers_are_exact(tacit_command: Tacit, keys: Path, tmp_path: Path, kind: str) -> None:
    vector = save(tmp_path / "v.npy", np.array([0, 1, 100, 7], kind))
    found = tacit_command.json("encrypt", "--key", keys / "a" / "public.key", vector, "-o", "v.tct", INSECURE)
    assert (found["type"], found["largest_error"], found["clip"]) == ("integers", 0.0, 2**31)
    assert _opened(keys, Path("v.tct")).tolist() == [0, 1, 100, 7]


def test_integers_beyond_the_clip_are_refused_unless_asked(tacit_command: Tacit, keys: Path, tmp_path: Path) -> None:
    vector = save(tmp_path / "v.npy", [5, -1001, 2000])
    asked = ("encrypt", "--key", keys / "a" / "public.key", vector, "-o", "v.tct", "--clip", "1000", INSECURE)
    assert "2 of 3 numbers are beyond the clip of 1000" in tacit_command.refused(*asked)
    assert not Path("v.tct").exists()
    assert tacit_command.json(*asked, "--beyond", "clip")["clipped"] == 2
    assert _opened(keys, Path("v.tct")).tolist() == [5, -1000, 1000]


def test_the_layout_is_as_asked(tacit_command: Tacit, keys: Path, tmp_path: Path) -> None:
    vector = save(tmp_path / "v.npy", [0.5, 3.0])
    tacit_command.done(
        *("encrypt", "--key", keys / "a" / "public.key", vector, "-o", "v.tct", INSECURE),
        *("--clip", "4", "--bits", "16", "--summands", "10"),
    )
    layout = _encrypted(Path("v.tct")).vector.layout
    assert (layout.clip, layout.bound, layout.summands) == (4.0, 2**15 - 1, 10)


def test_a_threshold_key_travels_whole(tacit_command: Tacit, keys: Path, tmp_path: Path) -> None:
    vector = save(tmp_path / "v.npy", [0.5])
    found = tacit_command.json("encrypt", "--key", keys / "t" / "public.key", vector, "-o", "v.tct", INSECURE)
    public = keyfile.load_public(keys / "t" / "public.key", insecure_key_size=True)
    assert _encrypted(Path("v.tct")).public == public
    assert found["fingerprint"] == public.fingerprint


def test_a_share_encrypts_as_its_public_key(tacit_command: Tacit, keys: Path, tmp_path: Path) -> None:
    vector = save(tmp_path / "v.npy", [0.5])
    tacit_command.done("encrypt", "--key", keys / "t" / "share-1.key", vector, "-o", "v.tct", INSECURE)
    assert _encrypted(Path("v.tct")).public == keyfile.load_public(keys / "t/public.key", insecure_key_size=True)


def test_a_sealed_key(tacit_command: Tacit, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = keyfile.load_private(keys / "a" / "private.key", insecure_key_size=True)
    keyfile.save(tmp_path / "sealed.key", private, passphrase="correct horse", cost=sealing.Cost(n=1024))
    vector = save(tmp_path / "v.npy", [0.5])
    asked = ("encrypt", "--key", tmp_path / "sealed.key", vector, "-o", "v.tct", INSECURE)
    monkeypatch.setattr("tacit.cli.passphrases.sys.stdin", type("Pipe", (), {"isatty": lambda _: False})())
    assert "no terminal to ask at" in tacit_command.refused(*asked)
    monkeypatch.setenv("TACIT_PASSPHRASE", "wrong horse")
    assert "passphrase is wrong" in tacit_command.refused(*asked)
    assert not Path("v.tct").exists()
    (tmp_path / "words").write_text("correct horse\n")
    tacit_command.done(*asked, "--passphrase-file", tmp_path / "words")  # a file goes before the environment
    assert _opened(keys, Path("v.tct")).tolist() == pytest.approx([0.5], abs=1e-7)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([0.5, np.nan], "Number 1 of the vector is nan"),
        ([np.inf], "Number 0 of the vector is inf"),
        (np.array([1e4000], np.longdouble), "is inf"),
        (np.array([{}, 1], object), "Python objects are never read"),
        (np.array([(1, 2)], [("a", "i4"), ("b", "O")]), "Python objects are never read"),
        ([1j], "values of type complex128, expected floats or integers"),
        ([True], "values of type bool"),
        (["a"], "values of type <U1"),
        ([], "0 values"),
        (np.array([2**63], np.uint64), "expected integers below 2^63"),
    ],
    ids=range(10),
)
def test_vectors_that_are_refused(tacit_command: Tacit, keys: Path, tmp_path: Path, numbers: Any, words: str) -> None:
    vector = save(tmp_path / "v.npy", numbers)
    assert words in tacit_command.refused(
        "encrypt", "--key", keys / "a" / "public.key", vector, "-o", "v.tct", INSECURE
    )
    only(tmp_path, "v.npy")


class Trap:
    """Leaves a trace where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (Path("sprung"), "")


def test_nothing_is_ever_unpickled(tacit_command: Tacit, keys: Path, tmp_path: Path) -> None:
    vector = save(tmp_path / "v.npy", np.array([Trap()], object))
    tacit_command.refused("encrypt", "--key", keys / "a" / "public.key", vector, "-o", "v.tct", INSECURE)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("change", ["cut", "long", "header", "text", "npz", "huge", "empty"])
def test_files_that_are_no_vectors(tacit_command: Tacit, keys: Path, tmp_path: Path, change: str) -> None:
    vector = save(tmp_path / "v.npy", np.arange(100.0))
    raw = vector.read_bytes()
    if change == "npz":
        np.savez(tmp_path / "v.npz", np.arange(3.0))
        raw = (tmp_path / "v.npz").read_bytes()
        (tmp_path / "v.npz").unlink()
    vector.write_bytes(
        {
            "cut": raw[:-3],
            "long": raw + b"\0",
            "header": raw[:40],
            "text": b"1.0, 2.0",
            "npz": raw,
            "huge": raw.replace(b"(100,), ", b"(1" + b"0" * 14 + b",), ").replace(b" " * 14 + b"\n", b"\n"),
            "empty": b"",
        }[change]
    )
    words = tacit_command.refused("encrypt", "--key", keys / "a" / "public.key", vector, "-o", "v.tct", INSECURE)
    expected = {"long": "1 bytes after its array", "text": "is no .npy file", "npz": "is no .npy file"}
    assert expected.get(change, "is no .npy file" if change == "empty" else "cut off or damaged") in words
    only(tmp_path, "v.npy")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--clip", "0"), "clip=0.0"),
        (("--clip", "nan"), "clip=nan"),
        (("--bits", "1"), "bits=1 between 2 and 52"),
        (("--bits", "60"), "bits=60"),
        (("--beyond", "wrap"), "Expected --beyond clip or refuse, got 'wrap'"),
        (("--beyond", "refuse", "--clip", "0.25"), "1 of 2 numbers are beyond the clip"),
    ],
)
def test_layouts_that_are_refused(
    tacit_command: Tacit, keys: Path, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    vector = save(tmp_path / "v.npy", [0.5, 0.125])
    asked = ("encrypt", "--key", keys / "a" / "public.key", vector, "-o", "v.tct", INSECURE)
    assert words in tacit_command.refused(*asked, *options)
    only(tmp_path, "v.npy")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--bits", "24"), "--bits is for floats"),
        (("--clip", "1.5"), "whole number of at least 1, got 1.5"),
        (("--clip", "0"), "whole number of at least 1, got 0"),
        (("--clip", "inf"), "whole number of at least 1, got inf"),
    ],
)
def test_layouts_of_integers_that_are_refused(
    tacit_command: Tacit, keys: Path, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    vector = save(tmp_path / "v.npy", [5])
    asked = ("encrypt", "--key", keys / "a" / "public.key", vector, "-o", "v.tct", INSECURE)
    assert words in tacit_command.refused(*asked, *options)


def test_keys_that_are_refused(tacit_command: Tacit, keys: Path, tmp_path: Path) -> None:
    vector = save(tmp_path / "v.npy", [0.5])

    def refused(key: Path | str, *options: str) -> str:
        return tacit_command.refused("encrypt", "--key", key, vector, "-o", "v.tct", *options)

    assert "a key of 512 bits, expected at least 2048" in refused(keys / "a" / "public.key")
    assert "There is no key file none" in refused("none", INSECURE)
    assert "The key is of ElGamal" in refused(keys / "e" / "public.key", INSECURE)
    assert "is no key file" in refused(vector, INSECURE)
    only(tmp_path, "v.npy")


def test_a_secret_that_others_can_read_is_used_with_a_warning(tacit_command: Tacit, keys: Path, tmp_path: Path) -> None:
    shutil.copy(keys / "a" / "private.key", tmp_path / "private.key")
    (tmp_path / "private.key").chmod(0o640)
    status, _, err = tacit_command(
        "encrypt", "--key", tmp_path / "private.key", save(tmp_path / "v.npy", [0.5]), "-o", "v.tct", INSECURE
    )
    assert status == 0
    assert "warning: " in err
    assert "mode 640" in err


def test_outputs(tacit_command: Tacit, keys: Path, tmp_path: Path) -> None:
    vector = save(tmp_path / "v.npy", [0.5])
    asked = ("encrypt", "--key", keys / "a" / "public.key", vector, INSECURE, "-o")
    (tmp_path / "v.tct").write_text("old")
    assert "or replace it with --force" in tacit_command.refused(*asked, "v.tct")
    assert (tmp_path / "v.tct").read_text() == "old"
    tacit_command.done(*asked, "v.tct", "--force")
    assert _encrypted(tmp_path / "v.tct").vector.summands == 1
    assert "is a folder" in tacit_command.refused(*asked, tmp_path, "--force")
    assert "Can't write" in tacit_command.refused(*asked, tmp_path / "v.npy" / "v.tct")
    only(tmp_path, "v.npy", "v.tct")


def test_files_that_are_not_there(tacit_command: Tacit, keys: Path, tmp_path: Path) -> None:
    asked = ("encrypt", "--key", keys / "a" / "public.key", INSECURE, "-o", "v.tct")
    assert "Can't read none.npy: No such file" in tacit_command.refused(*asked, "none.npy")
    assert "Can't read" in tacit_command.refused(*asked, tmp_path)
