from __future__ import annotations

import functools
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.crypto import elgamal, keyfile, paillier, sealing, threshold
from tacit.crypto.keyfile import AnyKey
from tacit.errors import KeysError
from tests.cli.common_crypto import INSECURE, Tacit, only

pytestmark = pytest.mark.usefixtures("tmp_path")  # the commands write where they stand

WORDS = "correct horse"
SHORT = ("--bits", "512", INSECURE)


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make guessing a passphrase cheap, and tests fast."""
    monkeypatch.setattr(sealing, "Cost", functools.partial(sealing.Cost, n=1024))


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_pair(tacit_command: Tacit, tmp_path: Path) -> None:
    text = tacit_command.done("keys", "new", "paillier", *SHORT, "--out", tmp_path / "k")
    public = keyfile.load_public(tmp_path / "k" / "public.key", insecure_key_size=True)
    private = keyfile.load_private(tmp_path / "k" / "private.key", insecure_key_size=True)
    assert private.public == public
    assert (_mode(tmp_path / "k" / "public.key"), _mode(tmp_path / "k" / "private.key")) == (0o644, 0o600)
    only(tmp_path / "k", "public.key", "private.key")
    for words in (public.fingerprint[:47], public.fingerprint[48:], public.assumption, "INSECURE", "not sealed"):
        assert words in text
    assert "tacit encrypt --key" in text


def test_what_json_says_of_a_new_pair(tacit_command: Tacit) -> None:
    made = tacit_command.json("keys", "new", "paillier", *SHORT)
    public = keyfile.load_public("keys/public.key", insecure_key_size=True)
    assert made == {
        "kind": "paillier public",
        "title": "Paillier public key",
        "variant": "standard, half exponents",
        "bits": 512,
        "security": None,
        "insecure": True,
        "fingerprint": public.fingerprint,
        "assumption": public.assumption,
        "sealed": False,
        "files": ["keys/public.key", "keys/private.key"],
    }


def test_options_of_paillier_keys(tacit_command: Tacit) -> None:
    tacit_command.done("keys", "new", "paillier", "--bits", "1024", INSECURE, "--kind", "subgroup", "--out", "s")
    tacit_command.done("keys", "new", "paillier", "--bits", "1024", INSECURE, "--exponents", "short", "--out", "e")
    kinds = []
    for name in ("s", "e"):
        key = keyfile.load_public(f"{name}/public.key", insecure_key_size=True)
        assert isinstance(key, paillier.PublicKey)
        kinds.append((key.kind, key.exponents))
    assert kinds == [("subgroup", "half"), ("standard", "short")]
    assert "not a standard assumption" in tacit_command.done("keys", "show", "s/private.key")
    assert tacit_command.json("keys", "show", "s/private.key")["security"] == 80


def test_shares(tacit_command: Tacit, tmp_path: Path) -> None:
    text = tacit_command.done("keys", "new", "paillier", *SHORT, "--shares", "2/3", "--out", tmp_path / "k")
    only(tmp_path / "k", "public.key", "share-1.key", "share-2.key", "share-3.key")
    for number in (1, 2, 3):
        share = keyfile.load_share(tmp_path / "k" / f"share-{number}.key", insecure_key_size=True)
        assert (share.index, share.public.threshold, share.public.shares) == (number, 2, 3)
        assert _mode(tmp_path / "k" / f"share-{number}.key") == 0o600
    assert "any 2 of 3 shares decrypt" in text
    assert "one for each holder" in text
    shown = tacit_command.json("keys", "show", tmp_path / "k" / "share-2.key")
    assert (shown["kind"], shown["share"]) == ("threshold share", 2)


def test_elgamal_in_a_named_group(tacit_command: Tacit) -> None:
    tacit_command.done("keys", "new", "elgamal", "--group", "ffdhe2048", "--exponents", "full")
    key = keyfile.load_public("keys/public.key")
    assert isinstance(key, elgamal.PublicKey)
    assert (key.group.name, key.exponents) == ("ffdhe2048", "full")
    assert isinstance(keyfile.load_private("keys/private.key"), elgamal.PrivateKey)
    shown = tacit_command.json("keys", "show", "keys/private.key")
    assert (shown["bits"], shown["security"], shown["insecure"]) == (2048, 112, False)


def test_elgamal_in_a_group_of_ones_own(tacit_command: Tacit) -> None:
    tacit_command.done("keys", "new", "elgamal", "--bits", "128", INSECURE)
    assert tacit_command.json("keys", "show", "keys/public.key")["variant"].startswith("group own-")


def test_the_defaults_are_of_3072_bits(tacit_command: Tacit) -> None:
    assert tacit_command.json("keys", "new", "elgamal", "--out", "e")["bits"] == 3072
    made = tacit_command.json("keys", "new", "paillier", "--out", "p")
    assert (made["bits"], made["security"], made["insecure"]) == (3072, 128, False)


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("shares", [(), ("--shares", "2/2")])
def test_a_passphrase_from_a_file_seals(tacit_command: Tacit, tmp_path: Path, shares: tuple[str, ...]) -> None:
    (tmp_path / "words").write_text(f"{WORDS}\nanother line\n")
    made = tacit_command.json("keys", "new", "paillier", *SHORT, *shares, "--passphrase-file", tmp_path / "words")
    assert made["sealed"] is True
    for name, words in zip(made["files"][1:], (WORDS, "another line"), strict=False):
        assert "secret" not in json.loads(Path(name).read_text())
        assert "sealed with a passphrase" in tacit_command.done("keys", "show", name)  # and none is asked for
        keyfile.read(name, insecure_key_size=True).unlock(words)
    assert "sealed" not in json.loads(Path(made["files"][0]).read_text())


@pytest.mark.usefixtures("cheap")
def test_a_share_has_words_of_its_own(tacit_command: Tacit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = ("keys", "new", "paillier", *SHORT, "--shares", "2/2")
    for lines in (f"{WORDS}\n", f"{WORDS}\n{WORDS}\n"):
        (tmp_path / "words").write_text(lines)
        assert "Expected 2 different passphrases" in tacit_command.refused(*new, "--passphrase-file", "words")
    monkeypatch.setenv("TACIT_PASSPHRASE", WORDS)
    assert "Expected 2 different passphrases" in tacit_command.refused(*new)
    command = f"{sys.executable} -c \"import os; print('words of', os.environ['TACIT_KEY_FILE'])\""
    tacit_command.done(*new, "--passphrase-command", command)
    for number in (1, 2):
        keyfile.load_share(
            f"keys/share-{number}.key", passphrase=f"words of keys/share-{number}.key", insecure_key_size=True
        )


@pytest.mark.usefixtures("cheap")
def test_a_key_is_sealed_anew_by_words_from_a_descriptor(
    tacit_command: Tacit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tacit_command.done("keys", "new", "paillier", *SHORT)
    for number, words in enumerate(("first of all words", "second of all words")):
        (tmp_path / f"{number}").write_text(words)
    seal = ("keys", "seal", "keys/private.key", "--new-passphrase-file")
    assert "is sealed with the new passphrase" in tacit_command.done(*seal, "0")
    old = os.open(tmp_path / "0", os.O_RDONLY)  # which the command closes
    tacit_command.done(*seal, "1", "--passphrase-fd", str(old))
    keyfile.load_private("keys/private.key", passphrase="second of all words", insecure_key_size=True)
    assert Path("keys/private.key").stat().st_mode & 0o777 == 0o600
    assert "passphrase is wrong" in tacit_command.refused(*seal, "0", "--passphrase-file", "0")
    assert "failed" in tacit_command.refused(*seal, "0", "--passphrase-command", "false")
    both = ("--passphrase-command", "false", "--passphrase-file", "0")
    assert "--passphrase-file and --passphrase-command" in tacit_command.refused(*seal, "0", *both)
    keyfile.load_private("keys/private.key", passphrase="second of all words", insecure_key_size=True)
    monkeypatch.setattr("tacit.cli.passphrases.sys.stdin", type("Pipe", (), {"isatty": lambda _: False})())
    assert "no terminal to ask at" in tacit_command.refused(*seal, "0")


def test_an_identity_signs_and_is_listed(tacit_command: Tacit) -> None:
    from tacit.protocols.signatures import read_identities, read_identity

    said = tacit_command.done("keys", "identity", "st-mary", "--out", "mary.key")
    own = read_identity(Path("mary.key").read_bytes(), where="test").public_key().public_bytes_raw()
    assert read_identities(Path("mary.key.pub").read_text(), where="test") == {own}
    assert said.endswith("st-mary")
    assert Path("mary.key").stat().st_mode & 0o777 == 0o600
    assert "there already" in tacit_command.refused("keys", "identity", "st-mary", "--out", "mary.key")
    assert "Expected a name" in tacit_command.refused("keys", "identity", "a\nb", "--out", "other.key")


@pytest.mark.usefixtures("cheap")
def test_a_passphrase_from_the_environment_seals(tacit_command: Tacit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACIT_PASSPHRASE", WORDS)
    tacit_command.done("keys", "new", "paillier", *SHORT)
    keyfile.load_private("keys/private.key", passphrase=WORDS, insecure_key_size=True)


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("second", [WORDS, "correct house"])
def test_a_passphrase_is_asked_for_twice(
    tacit_command: Tacit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, second: str
) -> None:
    answers = iter([WORDS, second])
    monkeypatch.setattr("getpass.getpass", lambda _: next(answers))
    monkeypatch.setattr("tacit.cli.passphrases.sys.stdin", type("Terminal", (), {"isatty": lambda _: True})())
    if second == WORDS:
        assert "sealed with the passphrase" in tacit_command.done("keys", "new", "paillier", *SHORT, "--passphrase")
        keyfile.load_private("keys/private.key", passphrase=WORDS, insecure_key_size=True)
        return
    assert "differ" in tacit_command.refused("keys", "new", "paillier", *SHORT, "--passphrase")
    assert not (tmp_path / "keys").exists()


def test_no_terminal_to_ask_at(tacit_command: Tacit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.cli.passphrases.sys.stdin", type("Pipe", (), {"isatty": lambda _: False})())
    words = tacit_command.refused("keys", "new", "paillier", *SHORT, "--passphrase")
    assert "no terminal to ask at" in words
    assert "TACIT_PASSPHRASE" in words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("rsa",), "There is no scheme 'rsa'. Expected paillier or elgamal"),
        (("paillier", "--bits", "512"), "A key of 512 bits is not secure: expected at least 2048"),
        (("elgamal", "--bits", "512"), "not secure: expected at least 2048"),
        (("paillier", "--bits", "2049"), "even key length"),
        (("paillier", *SHORT, "--kind", "magic"), "do not exist"),
        (("paillier", *SHORT, "--exponents", "long"), "do not exist"),
        (("paillier", *SHORT, "--kind", "subgroup"), "Subgroup keys are defined for"),
        (("paillier", *SHORT, "--group", "ffdhe2048"), "--group does not go with paillier"),
        (("elgamal", "--kind", "subgroup"), "--kind does not go with elgamal"),
        (("elgamal", "--shares", "2/3"), "--shares does not go with elgamal"),
        (("elgamal", "--group", "ffdhe1"), "There is no group 'ffdhe1'"),
        (("elgamal", "--group", "modp1536"), "A group of 1536 bits is not secure"),
        (("elgamal", "--group", "ffdhe2048", "--bits", "2048"), "got both"),
        (("elgamal", "--exponents", "half"), "Unknown exponents"),
        (("paillier", *SHORT, "--shares", "3"), "Expected shares T/L such as 3/5"),
        (("paillier", *SHORT, "--shares", "4/3"), "got threshold=4 of shares=3"),
        (("paillier", *SHORT, "--shares", "0/3"), "got threshold=0 of shares=3"),
        (("paillier", *SHORT, "--shares", "-1/3"), "got '-1/3'"),
        (("paillier", *SHORT, "--shares", "2/101"), "shares=101"),
        (("paillier", *SHORT, "--shares", "2/3", "--kind", "subgroup"), "Threshold keys are of kind standard"),
        (("paillier", *SHORT, "--shares", "2/3", "--exponents", "short"), "Threshold keys are of kind standard"),
        (("paillier", *SHORT, "--passphrase-file", "none"), "Can't read the passphrase file none"),
        (("paillier", *SHORT, "--passphrase", "--passphrase-file", "none"), "got both"),
    ],
)
def test_new_keys_that_are_refused(
    tacit_command: Tacit, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    assert words in tacit_command.refused("keys", "new", *arguments)
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize("content", ["short", ""])
def test_a_passphrase_too_short(tacit_command: Tacit, tmp_path: Path, content: str) -> None:
    (tmp_path / "words").write_text(content)
    words = tacit_command.refused("keys", "new", "paillier", *SHORT, "--passphrase-file", tmp_path / "words")
    assert f"at least 8 characters, got {len(content)}" in words
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize("name", ["public.key", "private.key"])
def test_nothing_is_overwritten_nor_made_beside_it(tacit_command: Tacit, tmp_path: Path, name: str) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / name).write_text("old")
    assert "is there already, and keys are never" in tacit_command.refused("keys", "new", "paillier", *SHORT)
    assert (tmp_path / "keys" / name).read_text() == "old"
    only(tmp_path / "keys", name)


def test_a_folder_that_is_a_file(tacit_command: Tacit, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("")
    assert "no folder you can write to" in tacit_command.refused("keys", "new", "paillier", *SHORT)


@pytest.mark.parametrize("shares", [(), ("--shares", "2/2")])
def test_all_keys_are_written_or_none(
    tacit_command: Tacit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shares: tuple[str, ...]
) -> None:
    save = keyfile.save

    def full(path: Path, key: AnyKey, **options: str) -> None:
        if isinstance(key, paillier.PublicKey | threshold.ThresholdPublic):
            raise KeysError("No space left.")
        save(path, key)

    monkeypatch.setattr(keyfile, "save", full)
    assert "No space left" in tacit_command.refused("keys", "new", "paillier", *SHORT, *shares)
    only(tmp_path / "keys")


@pytest.mark.parametrize(
    "name", ["a/public.key", "a/private.key", "t/public.key", "t/share-3.key", "e/public.key", "e/private.key"]
)
def test_show_and_fingerprint(tacit_command: Tacit, keys: Path, name: str) -> None:
    file = keyfile.read(keys / name, insecure_key_size=True)
    print_ = file.public.fingerprint
    assert tacit_command("keys", "fingerprint", keys / name) == (0, print_ + "\n", "")
    assert tacit_command.json("keys", "fingerprint", keys / name) == {"fingerprint": print_}
    status, text, err = tacit_command("keys", "show", keys / name)
    assert (status, err) == (0, "")
    for words in (file.title, print_[:47], print_[48:], "INSECURE", "no security"):
        assert words in text
    shown = json.dumps(tacit_command.json("keys", "show", keys / name))
    plain = json.loads((keys / name).read_text())
    for secret in plain.get("secret", {}).values():
        assert len(str(secret)) < 8 or (str(secret) not in text and str(secret) not in shown)
    assert plain["fingerprint"] == print_


def test_show_warns_of_a_secret_that_others_can_read(tacit_command: Tacit, keys: Path, tmp_path: Path) -> None:
    shutil.copy(keys / "a" / "private.key", tmp_path / "private.key")
    (tmp_path / "private.key").chmod(0o644)
    status, out, err = tacit_command("keys", "show", tmp_path / "private.key")
    assert (status, "chmod 600" in err, "Paillier private key" in out) == (0, True, True)


@pytest.mark.parametrize("command", ["show", "fingerprint"])
def test_files_that_are_no_keys(tacit_command: Tacit, keys: Path, tmp_path: Path, command: str) -> None:
    assert "There is no key file none.key" in tacit_command.refused("keys", command, "none.key")
    (tmp_path / "cut.key").write_bytes((keys / "a" / "public.key").read_bytes()[:-40])
    assert "is damaged" in tacit_command.refused("keys", command, "cut.key")
    (tmp_path / "other.key").write_text("ssh-ed25519 AAAA")
    assert "is no key file of Tacit" in tacit_command.refused("keys", command, "other.key")


def test_help_loads_nothing_heavy() -> None:
    modules = ("addition", "combine", "decrypt", "encrypt", "keys")
    code = f"import sys; {'; '.join(f'import tacit.cli.{module}' for module in modules)}"
    code += "; print([m for m in ('numpy', 'gmpy2', 'cryptography', 'tacit.crypto') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.usefixtures("cheap")
def test_shares_are_made_fresh(tacit_command: Tacit, tmp_path: Path) -> None:
    (tmp_path / "words").write_text("words of one\nwords of two\nwords of three\n")
    made = tacit_command.json("keys", "new", "paillier", *SHORT, "--shares", "2/3", "--passphrase-file", "words")
    before = tacit_command.json("keys", "show", "keys/public.key")["fingerprint"]
    for number, sender in enumerate(("one", "two"), 1):
        Path("old").write_text(f"words of {sender}")
        start = ["keys", "refresh", "start", f"keys/share-{number}.key", "--passphrase-file", "old", "--out"]
        tacit_command.done(*start, sender)
        assert "there already" in tacit_command.refused(*start, sender)
    tacit_command.done(*start, "again")  # a holder that contributes twice counts once
    assert Path("one/for-3.refresh").stat().st_mode & 0o777 == 0o600
    assert "expected a share" in tacit_command.refused("keys", "refresh", "start", "keys/public.key", "--out", "no")
    fingerprints = set()
    for number, words in ((1, "words of one"), (3, "words of three")):
        Path("old").write_text(words)
        Path("new").write_text(f"fresh words of {number}")
        finish = ["keys", "refresh", "finish", f"keys/share-{number}.key", "--out", f"new-{number}"]
        files = [f"{sender}/for-{number}.refresh" for sender in ("one", "two")]
        secret: tuple[str, ...] = ("--passphrase-file", "old")
        assert "words of its own" in tacit_command.refused(*finish, *files, *secret)
        secret = (*secret, "--new-passphrase-file", "new")
        assert "at least 2 different holders" in tacit_command.refused(*finish, files[0], *secret)
        twice = (f"two/for-{number}.refresh", f"again/for-{number}.refresh")
        assert "at least 2 different holders" in tacit_command.refused(*finish, *twice, *secret)
        assert "to share 2 of a key" in tacit_command.refused(*finish, files[0], "two/for-2.refresh", *secret)
        assert "is no contribution" in tacit_command.refused(*finish, files[0], "keys/public.key", *secret)
        assert "Can't read the contribution none" in tacit_command.refused(*finish, files[0], "none", *secret)
        tacit_command.done(*finish, *files, *secret)
        fingerprints.add(tacit_command.json("keys", "fingerprint", f"new-{number}/public.key")["fingerprint"])
        keyfile.load_share(
            f"new-{number}/share-{number}.key", passphrase=f"fresh words of {number}", insecure_key_size=True
        )
    assert len(fingerprints) == 1
    assert before not in fingerprints
    assert len(made["files"]) == 4
    tacit_command.done("keys", "new", "paillier", *SHORT, "--out", "single")
    assert "expected a threshold key" in tacit_command.refused("keys", "refresh", "start", "single/private.key")
