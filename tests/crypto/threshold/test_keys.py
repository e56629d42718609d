from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.crypto import paillier
from tacit.crypto.threshold import KeyShare, ThresholdPublic
from tacit.errors import KeysError
from tests.crypto.threshold.common import OTHER, SMALL, dealt, order_of

PUBLIC, SHARES = dealt(5, 3)
N = PUBLIC.key.n


def test_plain_values_come_back() -> None:
    text = json.dumps([PUBLIC.to_dict(), *(share.to_dict() for share in SHARES)])
    public, *shares = json.loads(text)
    assert ThresholdPublic.from_dict(public) == PUBLIC
    assert tuple(KeyShare.from_dict(share) for share in shares) == SHARES
    assert public["verifiers"] == [f"{value:x}" for value in PUBLIC.verifiers]
    assert set(shares[0]) == {"public", "index", "secret"}


def test_nothing_secret_is_shown() -> None:
    for share in SHARES:
        shown = repr(share) + str(share)
        assert str(share.secret) not in shown
        assert f"{share.secret:x}" not in shown
    public = json.dumps(PUBLIC.to_dict())
    hidden = [*SMALL, order_of(SMALL), *(share.secret for share in SHARES)]
    assert not any(f"{value:x}" in public or str(value) in public for value in hidden)
    with pytest.raises(FrozenInstanceError):
        SHARES[0].secret = 1  # type: ignore[misc]


def test_properties_that_people_ask_for() -> None:
    assert (PUBLIC.bits, PUBLIC.insecure, PUBLIC.delta) == (256, True, 120)
    assert PUBLIC.fingerprint == PUBLIC.identity.hex(":")
    assert "fewer than 3 collude" in PUBLIC.assumption
    assert PUBLIC.key.assumption in PUBLIC.assumption


def unchecked(**changes: Any) -> ThresholdPublic:
    """Return the key with other fields, as no constructor would allow."""
    public = object.__new__(ThresholdPublic)
    fields = {name: getattr(PUBLIC, name) for name in ("key", "shares", "threshold", "verifier", "verifiers")}
    for name, value in (fields | changes).items():
        object.__setattr__(public, name, value)
    return public


def test_the_identity_covers_everything() -> None:
    swapped = (PUBLIC.verifiers[1], PUBLIC.verifiers[0], *PUBLIC.verifiers[2:])
    others = [
        unchecked(),
        unchecked(shares=6),
        unchecked(threshold=2),
        unchecked(verifier=4),
        unchecked(verifiers=swapped),
        unchecked(verifiers=PUBLIC.verifiers[:4]),
        unchecked(key=dealt(5, 3, OTHER)[0].key),
        unchecked(key=replace(PUBLIC.key, h=pow(PUBLIC.key.h, 3, N * N))),
    ]
    assert others[0].identity == PUBLIC.identity
    assert len({public.identity for public in others}) == len(others)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"threshold": 0}, "1 <= threshold <= shares <= 100, got threshold=0 of shares=5"),
        ({"threshold": 6}, "threshold=6 of shares=5"),
        ({"threshold": True}, "threshold=True"),
        ({"shares": 101}, "shares=101"),
        ({"shares": 5.0}, "shares=5.0"),
        ({"shares": 4}, "Expected 4 verification keys, one per share, got 5"),
        ({"verifiers": PUBLIC.verifiers[:4]}, "Expected 5 verification keys, one per share, got 4"),
        ({"verifiers": (*PUBLIC.verifiers[:4], 0)}, "v_5 is no square modulo n"),
        ({"verifiers": (*PUBLIC.verifiers[:4], -PUBLIC.verifiers[4])}, "v_5 is no square modulo n"),
        ({"verifiers": (*PUBLIC.verifiers[:4], PUBLIC.verifiers[4] + N)}, "v_5 is no square modulo n"),
        ({"verifiers": (SMALL[0] ** 2 % N, *PUBLIC.verifiers[1:])}, "v_1 is no square modulo n"),
        ({"verifier": 0}, "v is no square modulo n"),
        ({"verifier": N}, "v is no square modulo n"),
        ({"verifier": 1}, "generates a smaller group"),
        ({"verifier": N - 1}, "generates a smaller group"),
        ({"verifier": pow(PUBLIC.verifier, (SMALL[0] - 1) // 2, N)}, "generates a smaller group"),
        ({"verifier": 4}, "not of shares that decrypt"),
        ({"verifier": PUBLIC.verifier**2 % N}, "not of shares that decrypt"),
        ({"verifiers": tuple(v * v % N for v in PUBLIC.verifiers)}, "not of shares that decrypt"),
        ({"verifiers": (*PUBLIC.verifiers[:4], 4)}, "verification keys 2 to 5 contradict each other"),
        ({"verifiers": (4, *PUBLIC.verifiers[1:])}, "verification keys 1 to 4 contradict each other"),
        ({"verifiers": PUBLIC.verifiers[::-1]}, "not of shares that decrypt"),
        ({"threshold": 2}, "With 2 of 5 shares two groups"),
        ({"threshold": 1}, "With 1 of 5 shares two groups of holders.*Expected more than half: at least 3 of 5"),
    ],
)
def test_keys_that_can_not_be_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(KeysError, match=problem):
        replace(PUBLIC, **changes)


def test_a_key_of_the_first_form_is_refused_in_plain_words() -> None:
    """Its shares were products with the factorial, from which a holder learns roots: see test_secrecy.py."""
    old = PUBLIC.to_dict() | {"verifiers": [f"{pow(v, PUBLIC.delta, N):x}" for v in PUBLIC.verifiers]}
    with pytest.raises(KeysError, match="not of shares that decrypt"):
        ThresholdPublic.from_dict(old)
    del old["form"]
    with pytest.raises(KeysError, match=r"has form 1, expected 2\. Shares of form 1 let.*Make new keys"):
        ThresholdPublic.from_dict(old)
    with pytest.raises(KeysError, match=r"has form 1, expected 2"):
        KeyShare.from_dict(SHARES[0].to_dict() | {"public": old})


def test_keys_of_other_primes_are_refused() -> None:
    common, _ = paillier.generate(bits=256, insecure_key_size=True)
    with pytest.raises(KeysError, match=r"no square|contradict|not of shares"):
        replace(PUBLIC, key=common)
    subgroup, _ = paillier.generate(bits=1024, kind="subgroup", insecure_key_size=True)
    with pytest.raises(KeysError, match="got a subgroup one"):
        replace(PUBLIC, key=subgroup)


@pytest.mark.parametrize("index", [0, 6, -1, True, "1", 1.0, None])
def test_numbers_of_no_share_are_refused(index: Any) -> None:
    with pytest.raises(KeysError, match="number of a share from 1 to 5"):
        replace(SHARES[0], index=index)


def test_secrets_of_another_share_or_key_are_refused_and_not_shown() -> None:
    other = dealt(5, 4)[1][0].secret
    for secret in (0, -SHARES[0].secret, SHARES[1].secret, SHARES[0].secret + 1, other, N + SHARES[0].secret):
        with pytest.raises(KeysError, match="secret of share 1 does not belong to its public key") as caught:
            replace(SHARES[0], secret=secret)
        assert str(secret) not in str(caught.value) or secret == 0


def test_plain_values_that_are_not_a_key_are_refused() -> None:
    good = PUBLIC.to_dict()
    values: list[Any] = [None, [], {}, "xyz", -1, 10**9, ["zz"] * 5, [None] * 5, "0x"]
    for name in good:
        for bad in values:
            with pytest.raises(KeysError):
                ThresholdPublic.from_dict({**good, name: bad})
        with pytest.raises(KeysError):
            ThresholdPublic.from_dict({key: value for key, value in good.items() if key != name})
    for bad in (*values, "key"):
        with pytest.raises(KeysError):
            ThresholdPublic.from_dict(bad)


def test_plain_values_that_are_not_a_share_are_refused_without_showing_them() -> None:
    good = SHARES[0].to_dict()
    values: list[Any] = [None, [], {}, "hidden!", -1, 10**9]
    for name in good:
        for bad in values:
            with pytest.raises(KeysError) as caught:
                KeyShare.from_dict({**good, name: bad})
            assert name != "secret" or str(bad) not in str(caught.value)
            assert good["secret"] not in str(caught.value)
        with pytest.raises(KeysError):
            KeyShare.from_dict({key: value for key, value in good.items() if key != name})


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 255), st.integers(0, 6))
def test_no_flipped_bit_goes_unnoticed(bit: int, place: int) -> None:
    """In n, v or a v_i."""
    plain = PUBLIC.to_dict()
    if place == 0:
        plain["key"]["n"] = f"{N ^ 1 << bit:x}"
    elif place == 1:
        plain["verifier"] = f"{PUBLIC.verifier ^ 1 << bit:x}"
    else:
        plain["verifiers"][place - 2] = f"{PUBLIC.verifiers[place - 2] ^ 1 << bit:x}"
    with pytest.raises(KeysError):
        ThresholdPublic.from_dict(plain)
