from __future__ import annotations

import json
import os
import stat
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tacit.crypto import elgamal, groups, keyfile, paillier, threshold
from tacit.crypto.keyfile import AnyKey
from tacit.crypto.primes import safe_prime
from tacit.crypto.sealing import Cost
from tacit.errors import ConfigError, KeysError, StorageError

CHEAP = Cost(n=1024)
WORDS = "correct horse"


@pytest.fixture(scope="module")
def made() -> dict[str, AnyKey]:
    public, private = paillier.generate(bits=512, insecure_key_size=True)
    together, shares = threshold.generate(shares=3, threshold=2, bits=512, insecure_key_size=True)
    counting, opening = elgamal.generate(groups.own(safe_prime(256), insecure_key_size=True), insecure_key_size=True)
    return {
        "paillier public": public,
        "paillier private": private,
        "threshold public": together,
        "threshold share": shares[1],
        "elgamal public": counting,
        "elgamal private": opening,
    }


KINDS = ["paillier public", "paillier private", "threshold public", "threshold share", "elgamal public"]
KINDS.append("elgamal private")
SECRET = [name for name in KINDS if not name.endswith("public")]


def _load(path: Path, *, passphrase: str | None = None) -> AnyKey:
    file = keyfile.read(path, insecure_key_size=True)
    return file.public if file.kind.role == "public" else file.unlock(passphrase)


def _change(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what a file says as a person would who knows about the checksum."""
    plain = json.loads(path.read_text())
    change(plain)
    path.write_bytes(keyfile.to_bytes({name: value for name, value in plain.items() if name != "checksum"}))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("passphrase", [None, WORDS])
def test_what_is_saved_is_loaded(made: dict[str, AnyKey], tmp_path: Path, name: str, passphrase: str | None) -> None:
    path = tmp_path / "new" / "some.key"
    keyfile.save(path, made[name], passphrase=passphrase, cost=CHEAP)
    assert _load(path, passphrase=passphrase) == made[name]
    assert json.loads(path.read_text())["kind"] == name
    assert os.listdir(path.parent) == ["some.key"]  # noqa: PTH208


@pytest.mark.parametrize("name", KINDS)
def test_secrets_are_for_their_owner_only(made: dict[str, AnyKey], tmp_path: Path, name: str) -> None:
    before = os.umask(0)  # the most open there is
    try:
        keyfile.save(tmp_path / "some.key", made[name])
    finally:
        os.umask(before)
    mode = stat.S_IMODE((tmp_path / "some.key").stat().st_mode)
    assert mode == (0o644 if name.endswith("public") else 0o600)


def test_a_secret_is_never_readable_by_others_not_for_an_instant(
    made: dict[str, AnyKey], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    for name in ("write", "fchmod", "fsync"):
        true = getattr(os, name)

        def watched(descriptor: int, *rest: Any, _true: Any = true) -> Any:
            seen.append(os.fstat(descriptor).st_mode)
            done = _true(descriptor, *rest)
            seen.append(os.fstat(descriptor).st_mode)
            return done

        monkeypatch.setattr(os, name, watched)
    keyfile.save(tmp_path / "private.key", made["paillier private"])
    files = [mode for mode in seen if stat.S_ISREG(mode)]
    assert len(files) >= 6
    assert not any(mode & 0o077 for mode in files)


def test_nothing_is_overwritten(made: dict[str, AnyKey], tmp_path: Path) -> None:
    path = tmp_path / "private.key"
    keyfile.save(path, made["paillier private"])
    before = path.read_bytes()
    with pytest.raises(StorageError, match=r"is there already and is left as it was.*Choose another folder"):
        keyfile.save(path, made["elgamal private"])
    assert path.read_bytes() == before
    assert list(tmp_path.glob("*.key")) == [path]
    assert not list(tmp_path.glob(".*"))


def test_a_passphrase_hides_the_secret(made: dict[str, AnyKey], tmp_path: Path) -> None:
    private = made["paillier private"]
    assert isinstance(private, paillier.PrivateKey)
    keyfile.save(tmp_path / "open.key", private)
    keyfile.save(tmp_path / "sealed.key", private, passphrase=WORDS, cost=CHEAP)
    assert f"{private.p:x}" in (tmp_path / "open.key").read_text()
    sealed = (tmp_path / "sealed.key").read_text()
    assert not any(f"{secret:x}" in sealed for secret in (private.p, private.q, private.order_p))
    assert keyfile.read(tmp_path / "sealed.key", insecure_key_size=True).public == private.public
    keyfile.save(tmp_path / "again.key", private, passphrase=WORDS, cost=CHEAP)
    one, other = (json.loads((tmp_path / name).read_text())["sealed"] for name in ("sealed.key", "again.key"))
    assert all(one[part] != other[part] for part in ("salt", "nonce", "ciphertext"))


@pytest.mark.parametrize("name", SECRET)
def test_a_wrong_passphrase(made: dict[str, AnyKey], tmp_path: Path, name: str) -> None:
    path = tmp_path / "some.key"
    keyfile.save(path, made[name], passphrase=WORDS, cost=CHEAP)
    with pytest.raises(KeysError, match="passphrase is wrong"):
        _load(path, passphrase="correct house")
    with pytest.raises(KeysError, match="sealed with a passphrase"):
        _load(path)


def test_a_passphrase_is_asked_for_only_where_it_is_needed(made: dict[str, AnyKey], tmp_path: Path) -> None:
    asked: list[Path] = []

    def ask(path: Path) -> str:
        asked.append(path)
        return WORDS

    keyfile.save(tmp_path / "open.key", made["paillier private"])
    keyfile.save(tmp_path / "sealed.key", made["paillier private"], passphrase=WORDS, cost=CHEAP)
    for name in ("open.key", "sealed.key"):
        assert keyfile.load_private(tmp_path / name, passphrase=ask, insecure_key_size=True) == made["paillier private"]
    assert asked == [tmp_path / "sealed.key"]


def test_a_passphrase_too_short(made: dict[str, AnyKey], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least 8 characters, got 7"):
        keyfile.save(tmp_path / "some.key", made["paillier private"], passphrase="1234567")
    assert not list(tmp_path.glob("*.key"))


def test_an_accent_typed_in_either_way(made: dict[str, AnyKey], tmp_path: Path) -> None:
    keyfile.save(tmp_path / "some.key", made["paillier private"], passphrase="d\u00e9j\u00e0 vu encore", cost=CHEAP)
    assert _load(tmp_path / "some.key", passphrase="de\u0301ja\u0300 vu encore") == made["paillier private"]


@pytest.mark.parametrize("part", ["salt", "nonce", "ciphertext", "fingerprint", "kind"])
def test_a_passphrase_authenticates_the_whole_file(made: dict[str, AnyKey], tmp_path: Path, part: str) -> None:
    """Whoever changes a sealed file and mends its checksum is found out."""
    path = tmp_path / "some.key"
    keyfile.save(path, made["paillier private"], passphrase=WORDS, cost=CHEAP)
    other, _ = paillier.generate(bits=512, insecure_key_size=True)

    def change(plain: dict[str, Any]) -> None:
        if part in plain["sealed"]:
            text = plain["sealed"][part]
            plain["sealed"][part] = ("0" if text[0] != "0" else "1") + text[1:]
        elif part == "fingerprint":
            plain["fingerprint"], plain["public"] = other.fingerprint, other.to_dict()
        else:
            plain["kind"] = "elgamal private"
            plain["public"] = made["elgamal public"].to_dict()
            plain["fingerprint"] = made["elgamal public"].fingerprint  # type: ignore[union-attr]

    _change(path, change)
    with pytest.raises(KeysError, match="changed on purpose"):
        _load(path, passphrase=WORDS)


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        ({"n": 1 << 40, "r": 8, "p": 1}, "meant to do harm"),
        ({"n": 1 << 17, "r": 1 << 20, "p": 1}, "meant to do harm"),
        ({"n": 1 << 20, "r": 8, "p": 1}, "expected at most 256 MiB"),
        ({"n": 1 << 17, "r": 8, "p": 1 << 20}, "meant to do harm"),
        ({"n": 1000, "r": 8, "p": 1}, "power of two"),
        ({"n": 0, "r": 8, "p": 1}, "at least 1"),
        ({"n": "1024", "r": 8, "p": 1}, "whole number"),
        ({"n": True, "r": 8, "p": 1}, "whole number"),
        ({"n": 1024}, None),
        ({"n": 1024, "r": 8, "p": 1, "x": 1}, "damaged"),
        ([], "damaged"),
        (None, "damaged"),
    ],
)
def test_a_hostile_cost_is_refused_before_it_is_paid(
    made: dict[str, AnyKey], tmp_path: Path, cost: Any, words: str | None
) -> None:
    path = tmp_path / "some.key"
    keyfile.save(path, made["paillier private"], passphrase=WORDS, cost=CHEAP)
    _change(path, lambda plain: plain["sealed"].update(scrypt=cost))
    if words is None:  # left out: the defaults, which are what was used
        assert _load(path, passphrase=WORDS) == made["paillier private"]
        return
    with pytest.raises(KeysError, match=words):
        _load(path, passphrase=WORDS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda box: box.update(cipher="rot13"), "Expected the cipher chacha20-poly1305, got 'rot13'"),
        (lambda box: box.pop("salt"), "damaged"),
        (lambda box: box.update(nonce="zz"), "damaged"),
        (lambda box: box.update(nonce=7), "damaged"),
        (lambda box: box.update(nonce="00"), "wrong length"),
        (lambda box: box.update(salt="00"), "wrong length"),
        (lambda box: box.update(ciphertext="00" * 15), "wrong length"),
    ],
)
def test_a_broken_seal(made: dict[str, AnyKey], tmp_path: Path, change: Callable[[Any], Any], words: str) -> None:
    path = tmp_path / "some.key"
    keyfile.save(path, made["paillier private"], passphrase=WORDS, cost=CHEAP)
    _change(path, lambda plain: change(plain["sealed"]))
    with pytest.raises(KeysError, match=words):
        _load(path, passphrase=WORDS)


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_where_another_is_needed(made: dict[str, AnyKey], tmp_path: Path, name: str) -> None:
    path = tmp_path / "some.key"
    keyfile.save(path, made[name])
    role = name.split()[1]
    loaders: dict[str, Any] = {
        "public": keyfile.load_public,
        "private": keyfile.load_private,
        "share": keyfile.load_share,
    }
    for wanted, load in loaders.items():
        if wanted == role:
            assert load(path, insecure_key_size=True) == made[name]
            continue
        title = keyfile.read(path, insecure_key_size=True).title
        with pytest.raises(KeysError, match=rf"some.key holds an? {title}, expected a {wanted}"):
            load(path, insecure_key_size=True)


def test_a_public_key_has_nothing_to_unlock(made: dict[str, AnyKey], tmp_path: Path) -> None:
    keyfile.save(tmp_path / "some.key", made["paillier public"])
    with pytest.raises(KeysError, match="holds a Paillier public key, expected a private key"):
        keyfile.read(tmp_path / "some.key", insecure_key_size=True).unlock()


@pytest.mark.parametrize("name", KINDS)
def test_a_short_key_is_refused(made: dict[str, AnyKey], tmp_path: Path, name: str) -> None:
    keyfile.save(tmp_path / "some.key", made[name])
    with pytest.raises(KeysError, match=r"a key of \d+ bits, expected at least 2048.*--insecure-key-size"):
        keyfile.read(tmp_path / "some.key")


def test_a_long_key_is_not_refused(tmp_path: Path) -> None:
    public, _ = elgamal.generate("ffdhe2048")
    keyfile.save(tmp_path / "some.key", public)
    assert keyfile.load_public(tmp_path / "some.key") == public


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_others_can_read_a_secret(made: dict[str, AnyKey], tmp_path: Path, mode: int) -> None:
    path = tmp_path / "private.key"
    keyfile.save(path, made["paillier private"], passphrase=WORDS, cost=CHEAP)
    path.chmod(mode)
    with pytest.warns(keyfile.KeyFileWarning, match=rf"mode {mode:o}.*chmod 600"):
        keyfile.load_private(path, passphrase=WORDS, insecure_key_size=True)


def test_only_secrets_are_warned_of(made: dict[str, AnyKey], tmp_path: Path) -> None:
    keyfile.save(tmp_path / "public.key", made["paillier public"])
    keyfile.save(tmp_path / "private.key", made["paillier private"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        keyfile.load_public(tmp_path / "public.key", insecure_key_size=True)
        keyfile.load_private(tmp_path / "private.key", insecure_key_size=True)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no key file of Tacit"),
        (b"-----BEGIN PRIVATE KEY-----\n", "is no key file of Tacit"),
        (b"[1, 2]", "is no key file of Tacit"),
        (b'{"format": "other"}', "is no key file of Tacit"),
        (b"\xff\xfe\x00", "is no key file of Tacit"),
        (b"[" * 100_000, "is no key file of Tacit"),
        (b'{"format": "tacit key", "version": 1,', "is damaged"),
        (b'{"format": "tacit key", "x": ' + b"[" * 100_000, "is damaged"),
        (b'{"format": "tacit key", "version": 2}', "has version 2 of key files, expected 1"),
        (b'{"format": "tacit key", "version": 1}', "is damaged: its checksum"),
        (b" " * ((1 << 20) + 1), "longer than 1048576 bytes"),
    ],
    ids=range(11),
)
def test_files_that_are_no_keys(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "some.key").write_bytes(content)
    with pytest.raises(KeysError, match=words):
        keyfile.read(tmp_path / "some.key")


def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match=r"There is no key file .*none.key"):
        keyfile.read(tmp_path / "none.key")
    with pytest.raises(KeysError, match="Can't read the key file"):
        keyfile.read(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda plain: plain.update(kind="paillier secret"), "holds 'paillier secret', expected one of"),
        (lambda plain: plain.update(kind=["x"]), "expected one of"),
        (lambda plain: plain.update(kind="paillier public"), "does not have the parts of a Paillier public key"),
        (lambda plain: plain.update(share=1), "does not have the parts"),
        (lambda plain: plain.pop("secret"), "does not have the parts"),
        (lambda plain: plain.update(sealed={}), "does not have the parts"),
        (lambda plain: plain.update(fingerprint="00:11"), r"claims the fingerprint 00:11.*was exchanged"),
        (lambda plain: plain.pop("fingerprint"), "claims the fingerprint None"),
        (lambda plain: plain.pop("public"), "Expected n, h, kind and exponents"),
        (lambda plain: plain.update(public=[]), "Expected n, h, kind and exponents"),
        (lambda plain: plain["public"].update(n="xyz"), "Expected n, h, kind and exponents"),
        (lambda plain: plain["public"].update(n="-1f"), "Expected a positive n"),
        (lambda plain: plain["public"].update(n="f" * 100_000), "at most 16384 bits, got one of 400000"),
        (lambda plain: plain["public"].update(h="1"), "h is trivial"),
        (lambda plain: plain["public"].update(kind="magic"), "Unknown kind of Paillier key"),
        (lambda plain: plain.update(secret=[]), "expected named values"),
        (lambda plain: plain["secret"].pop("q"), "Expected public, p, q"),
        (lambda plain: plain["secret"].update(p="7"), "not the prime factors"),
        (lambda plain: plain["secret"].update(order_p="0"), "not positive"),
        (lambda plain: plain["secret"].update(order_q="3"), "do not divide"),
    ],
    ids=range(20),
)
def test_forged_files(
    made: dict[str, AnyKey], tmp_path: Path, change: Callable[[dict[str, Any]], Any], words: str
) -> None:
    path = tmp_path / "some.key"
    keyfile.save(path, made["paillier private"])
    _change(path, change)
    with pytest.raises(KeysError, match=words):
        _load(path)


def test_a_share_under_another_number(made: dict[str, AnyKey], tmp_path: Path) -> None:
    path = tmp_path / "share.key"
    keyfile.save(path, made["threshold share"])
    _change(path, lambda plain: plain.update(share=1))
    with pytest.raises(KeysError, match="belongs to another key than the file says"):
        _load(path)


def test_what_is_no_key_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Expected a key, got int"):
        keyfile.save(tmp_path / "some.key", 7)  # type: ignore[arg-type]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_a_keys_error_or_the_same_key(
    made: dict[str, AnyKey], tmp_path: Path, data: st.DataObject
) -> None:
    """Flip, cut or add bytes anywhere: the file is refused, or the damage was to white space."""
    path = tmp_path / "some.key"
    path.unlink(missing_ok=True)
    keyfile.save(path, made["paillier private"])
    raw = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(raw) - 1))
    match data.draw(st.sampled_from(["flip", "cut", "insert"])):
        case "flip":
            raw[place] ^= data.draw(st.integers(1, 255))
        case "cut":
            del raw[place:]
        case _:
            raw[place:place] = data.draw(st.binary(min_size=1, max_size=8))
    path.write_bytes(raw)
    try:
        key = _load(path)
    except KeysError:
        return
    assert key == made["paillier private"]


@pytest.mark.parametrize("name", ["threshold public", "threshold share"])
def test_a_threshold_key_of_the_first_form_is_refused_by_name(
    made: dict[str, AnyKey], tmp_path: Path, name: str
) -> None:
    """Files that were written before shares were those of Shoup say nothing of their form."""
    path = tmp_path / "old.key"
    keyfile.save(path, made[name])
    _change(path, lambda plain: plain["public"].pop("form"))
    with pytest.raises(KeysError, match=r"old\.key: The threshold key has form 1, expected 2.*Make new keys"):
        keyfile.read(path, insecure_key_size=True)
