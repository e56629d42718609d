from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.crypto import paillier
from tacit.crypto.paillier import Layout
from tacit.crypto.ring import to_integers
from tacit.crypto.threshold.combination import opened
from tests.crypto.threshold.common import OTHER, SMALL, at_zero, dealt, order_of, plain


def test_a_partial_decryption_is_the_power_that_python_computes() -> None:
    public, shares = dealt(5, 3)
    vector = public.key.encrypt(np.arange(60))
    n = public.key.n
    for share in shares:
        partial = share.partial(vector)
        assert to_integers(partial.rows) == [pow(c, 2 * 120 * share.secret, n) for c in to_integers(vector.rows)]
        assert (partial.index, partial.identity, partial.proof) == (share.index, public.identity, None)


@pytest.mark.parametrize(("count", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (5, 5), (6, 4)])
def test_every_selection_decrypts(count: int, needed: int) -> None:
    public, shares = dealt(count, needed)
    total = (public.key.encrypt(1 << 200) + public.key.encrypt(-(1 << 199))) * -1
    expected = plain(to_integers(total.row)[0], SMALL)
    assert expected == -(1 << 199) % public.key.n
    partials = [share.partial(total) for share in shares]
    for chosen in itertools.combinations(partials, needed):
        combined = public.combine(total, chosen[::-1])
        assert combined.value == -(1 << 199)
        assert combined.used == tuple(partial.index for partial in chosen)
        assert combined.wrong == ()


def test_fewer_shares_give_another_number() -> None:
    """What t - 1 holders can compute does not pass as a decryption, and is no message."""
    public, shares = dealt(5, 3)
    total = public.key.encrypt(1234)
    rows = {share.index: share.partial(total).rows for share in shares}
    for fewer in itertools.combinations(rows, 2):
        assert opened(public, total.row, {index: rows[index] for index in fewer}) is None
    order, n, x = order_of(SMALL), public.key.n, to_integers(total.row)[0]
    guess = pow(x, 4 * public.delta * at_zero({i: shares[i - 1].secret for i in (1, 2)}, order), n)
    assert pow(guess, n, n) != pow(x, 4 * public.delta, n)


def test_vectors_and_their_sums() -> None:
    public, shares = dealt(5, 3, OTHER)
    draws = np.random.default_rng(5)
    floats = [draws.uniform(-1, 1, 77) for _ in range(4)]
    vectors = [public.key.encrypt(values) for values in floats]
    total = paillier.total([*vectors, vectors[0] * 3]).rerandomised()
    result = public.combine(total, [shares[i].partial(total) for i in (4, 0, 2)])
    assert result.value.dtype == np.float64
    np.testing.assert_allclose(result.value, sum(floats) + 3 * floats[0], atol=total.layout.error(7))
    assert result.used == (1, 3, 5)


def test_integer_vectors_are_exact() -> None:
    public, shares = dealt(3, 2)
    layout = Layout(length=9, bound=1000, summands=5, key_bits=public.bits)
    numbers = np.array([-1000, 1000, 0, 1, -1, 999, -999, 500, 7])
    total = public.key.encrypt(numbers, layout) * 5
    result = public.combine(total, [share.partial(total, workers=2) for share in shares[:2]], workers=2)
    assert result.value.tolist() == (5 * numbers).tolist()


def test_a_ciphertext_with_any_noise_decrypts() -> None:
    """Noise outside the group of h, even of Jacobi symbol -1, is noise."""
    public, shares = dealt(5, 3)
    n = public.key.n
    for r in (2, 3, 5, n - 2, n - 1, 1):
        c = (1 + 99 * n) * pow(r, n, n * n) % (n * n)
        ciphertext = public.key.encrypt(0)
        row = np.frombuffer(c.to_bytes(ciphertext.row.shape[1], "big"), np.uint8).reshape(1, -1)
        forged = paillier.Ciphertext(key=public.key, row=row)
        assert public.combine(forged, [share.partial(forged, prove=True) for share in shares], verify=True).value == 99


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(-(1 << 120), 1 << 120), min_size=1, max_size=4),
    st.integers(-1000, 1000),
    st.integers(-1000, 1000),
    st.permutations(range(5)),
)
def test_the_homomorphism(numbers: list[int], constant: int, factor: int, holders: list[int]) -> None:
    public, shares = dealt(5, 3)
    total = public.key.encrypt(constant)
    for number in numbers:
        total = total + public.key.encrypt(number)
    total = (total * factor + 5).rerandomised()
    result = public.combine(total, [shares[holder].partial(total) for holder in holders[:3]])
    assert result.value == factor * (constant + sum(numbers)) + 5


@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(-(1 << 31), 1 << 31), min_size=1, max_size=40), st.integers(1, 4))
def test_vectors_round_trip(numbers: list[int], times: int) -> None:
    public, shares = dealt(4, 3)
    total = public.key.encrypt(np.array(numbers)) * times
    result = public.combine(total, [shares[holder].partial(total, prove=True) for holder in (3, 1, 0)])
    assert result.value.tolist() == [times * number for number in numbers]


def test_powers_with_the_share_or_the_nonce_are_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every power a holder takes has an exponent that timing must not tell."""
    public, shares = dealt(5, 3)
    kinds: list[tuple[int, bool]] = []
    plain_power = type(public.key.residues).power

    def watched(ring: Any, bases: Any, exponent: int, *, secret: bool, workers: int | None = None) -> Any:
        kinds.append((exponent, secret))
        return plain_power(ring, bases, exponent, secret=secret, workers=workers)

    monkeypatch.setattr(type(public.key.residues), "power", watched)
    shares[0].partial(public.key.encrypt(np.arange(30)), prove=True)
    assert kinds[0] == (2 * 120 * shares[0].secret, True)
    assert len(kinds) == 2
    assert all(secret for _, secret in kinds)
