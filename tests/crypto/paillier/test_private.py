from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import gmpy2
import numpy as np
import pytest
from scipy import stats

from tacit.crypto.paillier import PrivateKey, PublicKey
from tacit.crypto.ring import Rows, from_integers, to_integers
from tacit.errors import KeysError
from tests.crypto.paillier.common import (
    FEW_PRIVATE,
    FEW_PUBLIC,
    OTHER_P,
    OTHER_PUBLIC,
    OTHER_Q,
    PRIVATE,
    PUBLIC,
    P,
    Q,
    pair,
    subgroup_pair,
    textbook_decrypt,
    textbook_encrypt,
)

GROUP = {pow(FEW_PUBLIC.h, s, FEW_PUBLIC.square) for s in range(30)}


@pytest.mark.parametrize("take", [FEW_PRIVATE.take, FEW_PUBLIC.take], ids=["key holder", "public key"])
def test_noise_is_uniform_in_the_group_that_h_generates(take: Callable[[int], Rows]) -> None:
    assert len(GROUP) == 30
    counts = Counter(to_integers(take(6000)))
    assert counts.keys() == GROUP  # and nothing outside, as independent parities would give
    assert stats.chisquare(list(counts.values())).pvalue > 1e-9


def test_the_key_holders_noise_has_the_law_of_the_public_noise() -> None:
    both = [Counter(to_integers(key.take(6000))) for key in (FEW_PRIVATE, FEW_PUBLIC)]
    table = [[counts[value] for value in sorted(GROUP)] for counts in both]
    assert stats.chi2_contingency(table).pvalue > 1e-9


def test_both_kinds_of_noise_have_the_same_character_modulo_both_primes() -> None:
    for key in (PRIVATE, PUBLIC):
        characters = [(gmpy2.jacobi(value, P), gmpy2.jacobi(value, Q)) for value in to_integers(key.take(400))]
        assert all(left == right for left, right in characters)
        assert 100 < sum(left == 1 for left, _ in characters) < 300


def test_the_key_holders_noise_encrypts_zero_modulo_the_textbook() -> None:
    values = to_integers(PRIVATE.take(50))
    assert {textbook_decrypt(value) for value in values} == {0}
    assert len(set(values)) == 50


def test_rows_open_as_the_textbook_says() -> None:
    messages = [0, 1, 2, PUBLIC.n - 1, PUBLIC.n // 2, 12345678901234567890]
    rows = from_integers([textbook_encrypt(m, r) for r, m in enumerate(messages, 2)], PUBLIC.ring.width)
    for workers in (1, 2, None):
        assert to_integers(PRIVATE.open(rows, workers=workers)) == messages


@pytest.mark.parametrize("index", [0, 1])
def test_subgroup_noise_has_the_stated_order(index: int) -> None:
    public, private = subgroup_pair()
    noise = to_integers((public, private)[index].take(5))
    order = math.lcm(private.order_p, private.order_q)
    assert order.bit_length() <= 4 * 80 + 1
    assert all(pow(value, order, public.square) == 1 for value in noise)
    assert private.order_p % 4 == private.order_q % 4 == 2


def damaged(**changes: int) -> dict[str, int]:
    return {"p": P, "q": Q, "order_p": P - 1, "order_q": Q - 1, **changes}


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (damaged(p=P + 2), "not the prime factors"),
        (damaged(p=P * Q, q=1), "not the prime factors"),
        (damaged(p=OTHER_P, q=OTHER_Q), "not the prime factors"),
        (damaged(order_p=0), "orders do not divide"),
        (damaged(order_p=-2), "orders do not divide"),
        (damaged(order_p=P), "orders do not divide"),
        (damaged(order_p=1), "orders do not divide"),
        (damaged(order_q=(Q - 1) // 2), "orders do not divide"),  # odd
        (damaged(order_p=2, order_q=2), "h has another order"),
    ],
)
def test_a_damaged_private_key_is_refused(numbers: dict[str, int], message: str) -> None:
    with pytest.raises(KeysError, match=message):
        PrivateKey(public=PUBLIC, **numbers)


def test_a_private_key_of_another_public_key_is_refused() -> None:
    with pytest.raises(KeysError, match="not the prime factors"):
        PrivateKey(public=OTHER_PUBLIC, p=P, q=Q, order_p=P - 1, order_q=Q - 1)


def test_orders_with_more_than_two_in_common_are_refused() -> None:
    p, q = (
        next(x for x in range(start, start + 10**6) if x % 12 == 7 and gmpy2.is_prime(x)) for start in (2**33, 2**34)
    )
    with pytest.raises(KeysError, match="another divisor in common"):
        pair(p, q)


def test_equal_primes_can_not_even_be_written_as_a_key() -> None:
    with pytest.raises(KeysError, match="two different odd primes"):
        pair(P, P)


def test_primes_that_are_close_together_are_refused() -> None:
    primes: list[int] = []
    candidate = (3 << 510) + 3
    while len(primes) < 2 or math.gcd(primes[0] - 1, primes[-1] - 1) != 2:
        candidate += 4
        if gmpy2.is_prime(candidate):
            primes.append(candidate)
    with pytest.raises(KeysError, match="too close together"):
        pair(primes[0], primes[-1])


def test_the_secrets_are_not_in_the_representation() -> None:
    for secret in (P, Q, P - 1, Q - 1):
        assert str(secret) not in repr(PRIVATE)


def test_fixed_noise_gives_the_textbooks_ciphertext() -> None:
    class Fixed:
        def take(self, count: int, *, workers: int | None = None, aside: bool = False) -> Rows:
            return from_integers([pow(3, PUBLIC.n, PUBLIC.square)] * count, PUBLIC.ring.width)

    for key in (PUBLIC, PRIVATE):
        assert to_integers(key.encrypt(-42, noise=Fixed()).row) == [textbook_encrypt(-42 % PUBLIC.n, 3)]
        vector = key.encrypt(np.array([1, -1, 5]), noise=Fixed())
        slot = vector.layout.slot_bits
        packed = sum((x + (1 << 31)) << (slot * place) for place, x in enumerate([1, -1, 5]))
        assert to_integers(vector.rows) == [textbook_encrypt(packed, 3)]


def test_the_public_key_alone_holds_no_secret() -> None:
    assert set(PublicKey.__dataclass_fields__) == {"n", "h", "kind", "exponents"}
