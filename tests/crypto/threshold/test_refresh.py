"""Fresh shares: they open what the old ones did, and old and new ones together are worth nothing."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import pytest

from tacit.crypto import threshold
from tacit.crypto.threshold import KeyShare
from tacit.crypto.threshold.partial import response_bytes
from tacit.crypto.threshold.public import coefficients_below, lift
from tacit.crypto.threshold.refresh import Contribution, Signature, contribute, refreshed
from tacit.errors import CipherError, KeysError
from tests.crypto.threshold.common import SMALL, at_zero, dealt, fresh, order_of

PUBLIC, SHARES = dealt(5, 3)
N = PUBLIC.key.n


def _again(shares: tuple[KeyShare, ...], count: int = 3) -> tuple[KeyShare, ...]:
    given = [contribute(share) for share in shares[:count]]
    return tuple(refreshed(share, [parts[share.index - 1] for parts in given]) for share in shares)


NEW = _again(SHARES)


def test_fresh_shares_open_what_was_encrypted_before_and_prove_it() -> None:
    public = NEW[0].public
    c = PUBLIC.key.encrypt(1234) + PUBLIC.key.encrypt(-34)
    for chosen in itertools.combinations(NEW, 3):
        parts = [share.partial(c, prove=True) for share in chosen]
        assert public.combine(c, parts, verify=True).value == 1200
    assert {share.public for share in NEW} == {public}
    assert public.key == PUBLIC.key
    assert public.fingerprint != PUBLIC.fingerprint


def test_the_secret_is_the_same_and_everything_else_is_not() -> None:
    order = order_of(SMALL)
    for shares in (SHARES, NEW, _again(NEW)):
        points = {share.index: share.secret for share in shares[1:4]}
        assert at_zero(points, order) == pow(N, -1, order)
    assert not {share.secret % order for share in SHARES} & {share.secret % order for share in NEW}


def test_old_shares_are_worth_nothing_together_with_new_ones() -> None:
    order, c = order_of(SMALL), PUBLIC.key.encrypt(42)
    for mixed in itertools.product((SHARES, NEW), repeat=3):
        chosen = [shares[place] for place, shares in enumerate(mixed)]
        whole = len({id(shares) for shares in mixed}) == 1
        assert (at_zero({one.index: one.secret for one in chosen}, order) == pow(N, -1, order)) is whole
    parts = [SHARES[0].partial(c), NEW[1].partial(c), NEW[2].partial(c)]
    with pytest.raises(CipherError, match="Of another threshold key than"):
        NEW[0].public.combine(c, parts)
    relabelled = [replace(parts[0], identity=NEW[0].public.identity), *parts[1:]]
    with pytest.raises(CipherError):
        NEW[0].public.combine(c, relabelled)


def test_a_share_grows_once() -> None:
    shares = NEW
    for _ in range(3):
        shares = _again(shares, 5)
    assert all(share.secret.bit_length() < PUBLIC.bits + PUBLIC.spare_bits - 30 for share in shares)
    c = PUBLIC.key.encrypt(7)
    assert shares[0].public.combine(c, [share.partial(c, prove=True) for share in shares[:3]], verify=True).value == 7


# What it hides


def test_any_old_share_fits_what_a_thief_of_two_years_has() -> None:
    """The argument, played: for another secret there are old shares and an honest contribution with the same loot.

    The thief has holder 1 before and holder 3 after (2 of 3). Its loot is the same in a world with another constant,
    with whole numbers within their ranges.
    """
    order = order_of(SMALL)
    _, shares = fresh(3, 2)
    mine, theirs = contribute(shares[1]), contribute(shares[2])
    after = [refreshed(share, [mine[share.index - 1], theirs[share.index - 1]]) for share in shares]
    delta = math.factorial(3)
    slope = order // 5  # of the difference: another constant, and the same at 1
    moved = {i: (slope * (i - 1)) % order for i in (1, 2, 3)}
    e = {i: next(d for d in range(moved[i], order * delta, order) if d % delta == 0) for i in (1, 2, 3)}
    other = {i: shares[i - 1].secret + e[i] for i in e}
    assert (other[1], e[1]) == (shares[0].secret, 0)
    assert at_zero({1: other[1], 2: other[2]}, order) != at_zero({1: shares[0].secret, 2: shares[1].secret}, order)
    assert all(value < order * lift(3) * 2 for value in other.values())
    polynomial = Fraction(e[3], 3)  # P(X) = aX through (3, e_3): whole, since e_3 is divisible
    assert polynomial.denominator == 1
    honest = mine[0].value - int(polynomial)  # the coefficient of the honest contribution in that world
    assert abs(int(polynomial)) < coefficients_below(N, 3, 2) >> 127
    assert other[3] + 3 * honest + theirs[2].value == after[2].secret


def test_shares_that_a_dealer_did_not_lift_are_refused() -> None:
    """Their remainders would tell: a share that is even stays even at holder 2 of 2 in 3."""
    order = order_of(SMALL)
    bare = replace(SHARES[0], secret=SHARES[0].secret % order)
    with pytest.raises(KeysError, match="before shares could be made fresh"):
        refreshed(bare, [contribute(share)[0] for share in SHARES[:3]])


# Contributions that are wrong


def test_a_contribution_that_is_not_what_its_sender_committed_to_is_refused() -> None:
    right = contribute(SHARES[0])[1]
    order = order_of(SMALL)
    for value in (right.value + 1, right.value - 1, -right.value, 0):
        with pytest.raises(KeysError, match="not what its sender committed to"):
            replace(right, value=value)
    with pytest.raises(KeysError, match="not what its sender committed to"):
        replace(right, value=right.value + order * coefficients_below(N, 5, 3) * 10**6)  # too long, else right
    for commitments in ((right.commitments[0],), (*right.commitments, 1), (right.commitments[0], 0)):
        with pytest.raises(KeysError, match="commitment"):
            replace(right, commitments=commitments)
    with pytest.raises(KeysError, match="not what its sender"):
        replace(right, index=3)
    with pytest.raises(KeysError, match="from 1 to 5"):
        replace(right, index=6)


def test_nobody_contributes_in_anothers_name() -> None:
    """A holder alone could otherwise be all contributors, and know by what everybody's share moves."""
    right, other = contribute(SHARES[0])[0], contribute(SHARES[1])[0]
    signed = right.signature
    longest = 8 * response_bytes(PUBLIC.key.residues.width, PUBLIC.spare_bits)
    for changes in (
        {"sender": 2},
        {"signature": other.signature},
        {"signature": replace(signed, response=signed.response + 1)},
        {"signature": replace(signed, response=1 << longest)},
        {"signature": replace(signed, response=-signed.response)},
        {"signature": replace(signed, challenge=bytes(32))},
        {"signature": replace(signed, challenge=b"")},
        {"sender": 2, "signature": Signature.of(SHARES[0], replace(right).digest)},
        {"value": other.value, "commitments": other.commitments},
    ):
        with pytest.raises(KeysError, match="is not signed by holder"):
            replace(right, **changes)
    with pytest.raises(KeysError, match="from 1 to 5"):
        replace(right, sender=0)
    old = replace(right, public=PUBLIC)
    assert old.signature.holds(PUBLIC, 1, old.digest)
    assert not old.signature.holds(NEW[0].public, 1, old.digest)


def test_too_few_the_same_twice_and_others_contributions_are_refused() -> None:
    given = [contribute(share)[0] for share in SHARES[:3]]
    again = contribute(SHARES[1])[0]  # another of a holder that has contributed: it may be all liars' own
    for wrong in (given[:2], [given[0], given[0], given[1]], [given[0], given[1], again], [*given, again], []):
        with pytest.raises(KeysError, match="at least 3 different holders"):
            refreshed(SHARES[0], wrong)
    with pytest.raises(KeysError, match="to share 2 of a key, expected share 1"):
        refreshed(SHARES[0], [*given[:2], contribute(SHARES[2])[1]])
    with pytest.raises(KeysError, match="expected share 1 of this one"):
        refreshed(NEW[0], given)
    plain = given[0].to_dict()
    assert Contribution.from_dict(plain, PUBLIC) == given[0]
    with pytest.raises(KeysError, match="made fresh meanwhile"):
        Contribution.from_dict(plain, NEW[0].public)
    for changed in ({"value": 7}, {"commitments": 5}, {"index": "1"}, {"sender": True}, {"signature": "no"}):
        with pytest.raises(KeysError):
            Contribution.from_dict({**plain, **changed}, PUBLIC)
    for broken in ({}, {**plain, "signature": ["zz", "1"]}):
        with pytest.raises(KeysError):
            Contribution.from_dict(broken, PUBLIC)


def test_holders_that_took_different_contributions_see_it_in_the_fingerprint() -> None:
    given = [contribute(share) for share in SHARES[:4]]
    one = refreshed(SHARES[0], [parts[0] for parts in given[:3]])
    two = refreshed(SHARES[1], [parts[1] for parts in given[1:]])
    assert one.public.fingerprint != two.public.fingerprint


def test_nothing_secret_is_shown() -> None:
    part = contribute(SHARES[0])[0]
    assert str(part.value) not in repr(part)
    assert f"{part.value:x}" not in repr(part)


def test_one_share_of_one_can_not_be_made_fresh() -> None:
    _, (share,) = threshold.generate(shares=1, threshold=1, bits=256, insecure_key_size=True, primes=SMALL)
    with pytest.raises(KeysError, match="nothing can be made fresh"):
        refreshed(share, [])
