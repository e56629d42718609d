"""What holders and combiners learn beyond the sums they open: nothing that they could not have made up themselves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from fractions import Fraction

import gmpy2
import numpy as np
import pytest

from tacit.crypto import paillier
from tacit.crypto.ring import from_integers, to_integers
from tacit.crypto.threshold import KeyShare, ThresholdPublic
from tacit.crypto.threshold.combination import weights
from tests.crypto.threshold.common import SMALL, dealt, fresh, order_of

RANDOM = np.random.default_rng(2000)


def with_noise(public: ThresholdPublic, message: int, r: int) -> paillier.Ciphertext:
    """Return a ciphertext whose noise its maker knows."""
    n = public.key.n
    number = (1 + message * n) * pow(r, n, n * n) % (n * n)
    return paillier.Ciphertext(key=public.key, row=from_integers([number], public.key.ring.width))


def part(share: KeyShare, ciphertext: paillier.Ciphertext) -> int:
    return to_integers(share.partial(ciphertext).rows)[0]


def lagrange(at: int, points: Iterable[int], delta: int) -> dict[int, int]:
    """Return the whole numbers with which delta * f(at) is the sum of the values at the points."""
    places = list(points)
    exact = {
        i: delta * math.prod((Fraction(at - j, i - j) for j in places if j != i), start=Fraction(1)) for i in places
    }
    assert all(weight.denominator == 1 for weight in exact.values())
    return {i: int(weight) for i, weight in exact.items()}


def test_a_holder_and_one_honest_part_yield_no_cube_root() -> None:
    """2 of 3. With shares 6 f(i) the part of holder 1 was r^8 x^(2/3 of share 3), and that has the root in it."""
    found = 0
    for _ in range(12):
        public, shares = fresh(3, 2)
        n, r = public.key.n, 2 + int(RANDOM.integers(1 << 62))
        x = pow(r, n, n)
        third = part(shares[0], with_noise(public, 0, r)) * pow(r, -8, n) % n
        divisor, a, b = gmpy2.gcdext(shares[2].secret, 3)
        if divisor != 1:
            continue
        squared = int(gmpy2.powmod(third, a, n) * gmpy2.powmod(x, 2 * b, n) % n)  # x^(2/3), if the attack works
        root = x * pow(squared, -1, n) % n
        found += pow(root, 3, n) == x
    assert found == 0


@pytest.mark.parametrize(("count", "needed"), [(1, 1), (3, 2), (4, 3), (5, 3), (7, 4)])
def test_honest_parts_are_what_the_corrupted_can_compute_from_the_noise(count: int, needed: int) -> None:
    """Shoup's simulation, number by number: nobody who has r and t - 1 shares learns anything from the other parts."""
    public, shares = dealt(count, needed)
    n, r = public.key.n, 3 + int(RANDOM.integers(1 << 62))
    ciphertext = with_noise(public, 77, r)
    x = to_integers(ciphertext.row)[0] % n
    for corrupted in itertools.combinations(shares, needed - 1):
        known = {share.index: share.secret for share in corrupted}
        for honest in (share for share in shares if share.index not in known):
            factors = lagrange(honest.index, (0, *known), public.delta)
            simulated = pow(r, 2 * factors[0], n)
            for index, secret in known.items():
                simulated = simulated * pow(x, 2 * factors[index] * secret, n) % n
            assert part(honest, ciphertext) == simulated


@pytest.mark.parametrize(("count", "needed"), [(3, 2), (5, 3)])
def test_verification_keys_are_what_the_corrupted_can_compute_from_a_root_of_v(count: int, needed: int) -> None:
    """A simulator picks the square z and publishes v = z^(delta n), which is as random as z is."""
    public, shares = dealt(count, needed)
    n, order = public.key.n, order_of(SMALL)
    z = pow(public.verifier, pow(public.delta * n, -1, order), n)
    assert pow(z, public.delta * n, n) == public.verifier
    for corrupted in itertools.combinations(shares, needed - 1):
        known = {share.index: share.secret for share in corrupted}
        for honest in (share for share in shares if share.index not in known):
            factors = lagrange(honest.index, (0, *known), public.delta)
            simulated = pow(z, factors[0], n)
            for index, secret in known.items():
                simulated = simulated * pow(z, n * factors[index] * secret, n) % n
            assert public.verifiers[honest.index - 1] == simulated


def test_whoever_combines_learns_the_noise() -> None:
    """Which is why the secrecy of the parts of a sum is argued with its noise known."""
    public, shares = dealt(5, 3)
    n, r = public.key.n, 5 + int(RANDOM.integers(1 << 62))
    ciphertext = with_noise(public, 5, r)
    common, factors = weights([1, 3, 5])
    w = math.prod(pow(part(shares[i - 1], ciphertext), 2 * factor, n) for i, factor in factors.items()) % n
    _, a, b = gmpy2.gcdext(4 * common * public.delta, n)
    x = to_integers(ciphertext.row)[0] % n
    assert gmpy2.powmod(w, a, n) * gmpy2.powmod(x, b, n) % n == r
