from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tacit.cli.keys import fingerprint
from tacit.config.sections import Paillier
from tacit.crypto import elgamal, groups, keyfile, sealing
from tacit.crypto.primes import safe_prime
from tacit.errors import KeysError
from tacit.parties.key_holder import number_of
from tacit.parties.operator import pin_of
from tacit.protocols.paillier.binding import check_key
from tests.protocols.test_conformance import key_pair, key_shares

AUTHORITY = Paillier(insecure_key_size=True)
THRESHOLD = Paillier(keys="threshold", insecure_key_size=True)


def _printed(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what ``tacit keys fingerprint`` prints."""
    fingerprint(path)
    return capsys.readouterr().out.strip()


def test_what_the_command_prints_of_an_authoritys_key_is_a_pin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    public, private = key_pair()
    keyfile.save(tmp_path / "public.key", public)
    keyfile.save(tmp_path / "private.key", private)
    printed = _printed(tmp_path / "public.key", capsys)
    assert _printed(tmp_path / "private.key", capsys) == printed
    (tmp_path / "pin").write_text(f"# from the authority\n\n{printed}\n")
    pins = [pin_of({"tacit-pin": str(pin)}, AUTHORITY) for pin in (printed, tmp_path / "pin", tmp_path / "public.key")]
    assert pins == [public.identity] * 3
    check_key(pins[0], public, insecure_key_size=True)


def test_a_threshold_key_is_pinned_by_its_file_whose_fingerprint_all_parties_can_print(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shares = key_shares()
    public = shares[0].public
    keyfile.save(tmp_path / "public.key", public)
    keyfile.save(tmp_path / "share-1.key", shares[0])
    printed = _printed(tmp_path / "public.key", capsys)
    assert _printed(tmp_path / "share-1.key", capsys) == printed == public.fingerprint
    pin = pin_of({"tacit-pin": str(tmp_path / "public.key")}, THRESHOLD)
    check_key(pin, public.key, insecure_key_size=True)
    with pytest.raises(KeysError, match="expected the public key file"):
        pin_of({"tacit-pin": printed}, THRESHOLD)


def test_a_sealed_key_is_refused_as_nobody_could_unseal_it(tmp_path: Path) -> None:
    cost = sealing.Cost(n=2**4, r=8, p=1)
    keyfile.save(tmp_path / "private.key", key_pair()[1], passphrase="correct horse battery", cost=cost)
    with pytest.raises(KeysError, match="nobody is at a node to give it"):
        number_of(tmp_path / "private.key", AUTHORITY)


@pytest.mark.parametrize(
    ("pin", "what"),
    [
        ("", "No key is pinned at this node"),
        ("nowhere.key", "No such file"),
        ("two", "expected a public key file, or one fingerprint"),
        ("empty", "got 'nothing'"),
        ("short", "got 'ab:cd'"),
        ("binary", "it is no text"),
        ("elgamal.key", "ElGamal"),
        ("damaged.key", "damaged.key"),
    ],
)
def test_what_is_no_pin_is_refused(tmp_path: Path, pin: str, what: str) -> None:
    print_of = key_pair()[0].fingerprint
    (tmp_path / "two").write_text(f"{print_of}\n{print_of}\n")
    (tmp_path / "empty").write_text("# nothing\n")
    (tmp_path / "short").write_text("ab:cd")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "damaged.key").write_text('{"kind": ')
    group = groups.own(safe_prime(256), insecure_key_size=True)
    keyfile.save(tmp_path / "elgamal.key", elgamal.generate(group, insecure_key_size=True)[0])
    node: dict[str, Any] = {"tacit-pin": str(tmp_path / pin) if pin else ""}
    with pytest.raises(KeysError, match=what):
        pin_of(node, AUTHORITY)
