from __future__ import annotations

import itertools

import pytest

from tacit.crypto import threshold
from tacit.crypto.threshold.public import lift
from tacit.errors import ConfigError
from tests.crypto.threshold.common import OTHER, SMALL, TINY, at_zero, bits_of, dealt, fresh, order_of


@pytest.mark.parametrize(("count", "needed"), [(1, 1), (2, 2), (3, 2), (4, 4), (5, 3), (7, 4)])
def test_every_selection_of_shares_holds_the_root_exponent(count: int, needed: int) -> None:
    public, shares = dealt(count, needed)
    n, order = SMALL[0] * SMALL[1], order_of(SMALL)
    assert (public.key.n, public.shares, public.threshold) == (n, count, needed)
    assert [share.index for share in shares] == list(range(1, count + 1))
    for chosen in itertools.combinations(shares, needed):
        constant = at_zero({share.index: share.secret for share in chosen}, order)
        assert constant * n % order == 1
    for fewer in itertools.combinations(shares, needed - 1):
        constant = at_zero({share.index: share.secret for share in fewer}, order)
        assert constant * n % order != 1


def test_verification_keys_are_the_shares_in_the_exponent_of_a_generator() -> None:
    public, shares = dealt(5, 3)
    n, v = public.key.n, public.verifier
    for share in shares:
        assert public.verifiers[share.index - 1] == pow(v, share.secret, n)
    order = order_of(SMALL)
    assert pow(v, order, n) == 1
    assert all(pow(v, order // ((prime - 1) // 2), n) != 1 for prime in SMALL)


def test_the_noise_of_the_key_is_an_nth_residue_of_full_order() -> None:
    public, _ = dealt(5, 3)
    n, h, order = public.key.n, public.key.h, order_of(SMALL)
    assert pow(h, 2 * order, n * n) == 1
    assert pow(h, order, n * n) != 1
    assert (public.key.kind, public.key.exponents) == ("standard", "half")


def test_shares_are_uniform_modulo_the_order_and_lifted_by_a_random_multiple_of_it() -> None:
    """Chi-square with 15 degrees of freedom of the upper four bits; the limit is exceeded once in 10^9."""
    order, draws = order_of(TINY), 320
    counts = [[0] * 16 for _ in range(3)]
    for _ in range(draws):
        _, shares = fresh(2, 2, TINY)
        for place, share in enumerate(shares):
            multiple, rest = divmod(share.secret, order)
            assert 0 <= multiple < lift(2)
            counts[place][rest * 16 // order] += 1
        counts[2][multiple * 16 // lift(2)] += 1
    for count in counts:
        assert sum((c - draws / 16) ** 2 / (draws / 16) for c in count) < 74


def test_one_share_of_two_fits_every_secret() -> None:
    """Whatever the constant were, one polynomial passes through it and the share: the share tells nothing."""
    order = order_of(SMALL)
    _, shares = dealt(3, 2)
    for guess in (0, 1, order - 1, order // 3):
        slope = (shares[0].secret - guess) % order
        assert at_zero({1: shares[0].secret, 2: (guess + 2 * slope) % order}, order) == guess


def test_new_primes_are_found_and_progress_is_told() -> None:
    seen: list[tuple[int, float]] = []
    public, shares = threshold.generate(
        shares=3,
        threshold=2,
        bits=192,
        insecure_key_size=True,
        workers=1,
        progress=lambda tested, mean: seen.append((tested, mean)),
    )
    assert public.bits == 192
    assert len(seen) >= 2
    total = public.key.encrypt(5)
    assert public.combine(total, [share.partial(total) for share in shares[1:]]).value == 5
    again, _ = threshold.generate(shares=3, threshold=2, bits=192, insecure_key_size=True)
    assert again.key.n != public.key.n


def test_fresh_polynomials_and_bases_for_the_same_primes() -> None:
    (one, first), (two, second) = fresh(3, 2), fresh(3, 2)
    assert one.identity != two.identity
    assert one.key.h != two.key.h
    assert one.verifier != two.verifier
    assert all(a.secret != b.secret for a, b in zip(first, second, strict=True))


def test_the_most_holders() -> None:
    public, shares = fresh(100, 51)
    total = public.key.encrypt(-77)
    assert public.combine(total, [share.partial(total) for share in shares[-51:]]).value == -77


@pytest.mark.parametrize(
    ("count", "needed"), [(0, 0), (3, 0), (3, 4), (101, 3), (-1, 1), (2.0, 1), (3, 1.5), (True, True), ("3", 1)]
)
def test_absurd_counts_are_refused(count: int, needed: int) -> None:
    with pytest.raises(ConfigError, match="1 <= threshold <= shares <= 100"):
        fresh(count, needed)


@pytest.mark.parametrize(("count", "needed"), [(2, 1), (3, 1), (4, 2), (5, 2), (100, 50)])
def test_a_key_that_two_groups_without_a_common_holder_open_is_refused(count: int, needed: int) -> None:
    """Played: before, holders 1 and 2 of a 2-of-4 key opened one sum of a round, and holders 3 and 4 another."""
    with pytest.raises(ConfigError, match=f"Expected more than half: at least {count // 2 + 1} of {count}"):
        fresh(count, needed)


@pytest.mark.parametrize(
    ("primes", "problem"),
    [
        ((SMALL[0], SMALL[0] + 2), "second of the primes is no safe prime"),
        ((15, SMALL[1]), "first of the primes is no safe prime"),
        ((2**127 - 1, SMALL[1]), "first of the primes is no safe prime"),  # a prime, not a safe one
        ((5, 7), "first of the primes is no safe prime"),
        ((SMALL[0], SMALL[0]), "equal or too close"),
        ((SMALL[0], OTHER[0]), "product of 384 bits, expected 256"),
    ],
)
def test_primes_that_make_no_key_are_refused(primes: tuple[int, int], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        threshold.generate(bits=256, insecure_key_size=True, primes=primes)
    assert not any(str(prime) in str(caught.value) or f"{prime:x}" in str(caught.value) for prime in SMALL)


def test_short_keys_have_to_be_asked_for() -> None:
    with pytest.raises(ConfigError, match="not secure"):
        threshold.generate(bits=bits_of(SMALL), primes=SMALL)
    with pytest.raises(ConfigError, match="even key length"):
        threshold.generate(bits=257, insecure_key_size=True)
