"""Keys: authentic, of a safe size, checked when read, and silent about their secret."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import gmpy2
import pytest

from tacit.crypto import elgamal
from tacit.crypto.elgamal import PrivateKey, PublicKey, exponent_bits
from tacit.crypto.groups import NAMES, FixedBase, Group, named, own
from tacit.crypto.ring import Ring, from_integers, to_integers
from tacit.errors import ConfigError, KeysError
from tests.crypto.elgamal.conftest import Pair


def test_default_is_safe() -> None:
    public, private = elgamal.generate()
    assert public.group == named("ffdhe3072")
    assert not public.insecure
    assert public.exponents == "short"
    assert "RFC 7919" in public.assumption
    assert private.x.bit_length() <= 288
    assert pow(2, private.x, public.group.p) == public.y
    assert public.kind == private.kind == elgamal.KIND == "elgamal"


def test_short_exponents_are_at_least_what_rfc_7919_and_twice_the_security_level_ask() -> None:
    least = {2048: max(225, 2 * 112), 3072: max(275, 2 * 128), 4096: max(325, 2 * 152), 6144: 375, 8192: 400}
    for name in NAMES:
        group = named(name)
        assert exponent_bits(group, "full") == group.bits - 1
        assert exponent_bits(group, "short") >= least.get(group.bits, 225)
        assert exponent_bits(group, "short") % 8 == 0


def test_exponents_fit_small_groups(group: Group) -> None:
    assert exponent_bits(group, "short") == 255
    public, private = elgamal.generate(own(40127, insecure_key_size=True), insecure_key_size=True)
    assert private.decrypt(public.encrypt(20063)) == 20063


def test_small_groups_need_a_word(group: Group) -> None:
    for small in ("modp1536", group):
        with pytest.raises(ConfigError, match="insecure_key_size"):
            elgamal.generate(small)
        assert elgamal.generate(small, insecure_key_size=True)[0].insecure


def test_unknown_exponents() -> None:
    with pytest.raises(ConfigError, match="Expected one of short, full"):
        elgamal.generate("ffdhe2048", exponents="tiny")  # type: ignore[arg-type]


def test_keys_that_somebody_could_read_are_refused(real: Pair) -> None:
    public, _ = real
    group = public.group
    no_square = next(y for y in range(2, group.p) if gmpy2.jacobi(y, group.p) == -1)
    for y in (0, 1, group.g, group.p - 1, group.p, group.p + 4, -public.y, group.p - public.y, no_square):
        with pytest.raises(KeysError, match="trivial or not in its group"):
            PublicKey(group=group, y=y)
    with pytest.raises(KeysError, match="Unknown exponents"):
        PublicKey(group=group, y=public.y, exponents="none")  # type: ignore[arg-type]


def test_groups_that_were_changed_are_refused(real: Pair) -> None:
    group = real[0].group
    for changed in (
        dataclasses.replace(group, g=4),
        dataclasses.replace(group, p=named("modp2048").p),
        dataclasses.replace(group, p=group.p + 2, name="own-123456789abc"),
        Group(name="own-123456789abc", p=40127, g=4),
    ):
        with pytest.raises(KeysError):
            PublicKey(group=changed, y=16)


def test_private_key_must_belong(pair: Pair) -> None:
    public, private = pair
    for x in (0, -1, public.group.q, public.group.q + private.x):
        with pytest.raises(KeysError, match="between 0 and q"):
            PrivateKey(public=public, x=x)
    with pytest.raises(KeysError, match="does not belong"):
        PrivateKey(public=public, x=private.x + 1)


def test_nothing_printed_shows_the_secret(pair: Pair) -> None:
    _, private = pair
    for text in (repr(private), str(private)):
        assert str(private.x) not in text
        assert f"{private.x:x}" not in text
    content = private.to_dict() | {"x": f"{private.x:x}g"}
    with pytest.raises(KeysError) as caught:
        PrivateKey.from_dict(content)
    assert f"{private.x:x}" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_fingerprint_covers_everything(pair: Pair) -> None:
    public, _ = pair
    others = [
        PublicKey(group=public.group, y=public.y, exponents="full"),
        PublicKey(group=public.group, y=pow(public.y, 2, public.group.p)),
        PublicKey(group=own(public.group.p, g=16, insecure_key_size=True), y=public.y),
    ]
    assert len({public.fingerprint, *(other.fingerprint for other in others)}) == 4
    assert len(public.fingerprint) == 95
    assert PublicKey(group=public.group, y=public.y).fingerprint == public.fingerprint


def test_dictionaries_round_trip_as_json(pair: Pair, real: Pair) -> None:
    for public, private in (pair, real):
        assert PublicKey.from_dict(json.loads(json.dumps(public.to_dict()))) == public
        again = PrivateKey.from_dict(json.loads(json.dumps(private.to_dict())))
        assert again == private
        assert again.decrypt(public.encrypt(9)) == 9


@pytest.mark.parametrize("field", ["group", "y", "exponents", "public", "x"])
@pytest.mark.parametrize("value", [None, "", "no number", 5, {}, "1"])
def test_damaged_dictionaries(pair: Pair, field: str, value: Any) -> None:
    public, private = pair
    if field in ("public", "x"):
        with pytest.raises(KeysError):
            PrivateKey.from_dict(private.to_dict() | {field: value})
    else:
        with pytest.raises(KeysError):
            PublicKey.from_dict(public.to_dict() | {field: value})
    with pytest.raises(KeysError):
        PrivateKey.from_dict({})


class Witness:
    """A ring that remembers which powers it was asked for."""

    def __init__(self, ring: Ring) -> None:
        self.ring, self.asked = ring, list[tuple[int, bool]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ring, name)

    def power(self, bases: Any, exponent: int, *, secret: bool, workers: int | None = None) -> Any:
        self.asked.append((exponent, secret))
        return self.ring.power(bases, exponent, secret=secret, workers=workers)


def test_secret_exponents_take_constant_time(group: Group) -> None:
    public, private = elgamal.generate(group, insecure_key_size=True)
    witness = Witness(public.ring)
    public.__dict__["ring"] = witness
    assert private.decrypt_many(public.encrypt_many([1, 2])) == [1, 2]
    assert witness.asked == [(private.x, True)]
    assert private.decrypt(public.encrypt(3) ** 2) == 9
    assert witness.asked[1:] == [(2, True), (2, True), (private.x, True)]
    base = FixedBase(ring=witness, base=group.g, bits=64)
    assert to_integers(base.powers(from_integers([5, 0], 8))) == [group.g**5, 1]
    assert witness.asked[4:] == [(5, True), (0, True)]
