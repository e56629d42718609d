from __future__ import annotations

import math

import gmpy2
import pytest

from tacit.crypto import paillier
from tacit.crypto.paillier.public import Exponents, Kind
from tacit.errors import ConfigError
from tests.crypto.paillier.common import subgroup_pair, textbook_decrypt


@pytest.mark.parametrize("bits", [64, 66, 128, 256, 510, 512])
def test_a_new_key_has_the_length_that_was_asked_for_and_works(bits: int) -> None:
    public, private = paillier.generate(bits=bits, insecure_key_size=True)
    assert public.bits == public.n.bit_length() == bits
    assert private.p * private.q == public.n
    assert private.p.bit_length() == private.q.bit_length() == bits // 2
    assert gmpy2.is_prime(private.p)
    assert gmpy2.is_prime(private.q)
    assert private.decrypt(public.encrypt(-17) + 20) == 3
    value = int.from_bytes(public.encrypt(99).row.tobytes(), "big")
    assert textbook_decrypt(value, p=private.p, q=private.q) == 99


def test_the_primes_and_h_are_those_of_damgard_jurik_and_nielsen() -> None:
    public, private = paillier.generate(bits=256, insecure_key_size=True)
    p, q, n = private.p, private.q, public.n
    assert p % 4 == q % 4 == 3
    assert math.gcd(p - 1, q - 1) == 2
    assert math.gcd(n, (p - 1) * (q - 1)) == 1
    assert textbook_decrypt(public.h, p=p, q=q) == 0  # an n-th residue
    assert gmpy2.jacobi(public.h, p) == gmpy2.jacobi(public.h, q) == -1  # minus a square


def test_the_noise_of_a_subgroup_key_has_a_small_secret_order() -> None:
    public, private = subgroup_pair()
    for prime, order in ((private.p, private.order_p), (private.q, private.order_q)):
        assert order % 2 == 0
        assert gmpy2.is_prime(order // 2)
        assert (order // 2).bit_length() == 160  # twice 80 bits of security
        assert (prime - 1) % order == 0
        assert pow(public.h, order, prime**2) == 1
        assert pow(public.h, 2, prime**2) != 1
        assert pow(public.h, order // 2, prime**2) != 1
    assert textbook_decrypt(public.h, p=private.p, q=private.q) == 0


def test_short_exponents_are_marked_in_the_key() -> None:
    public, private = paillier.generate(bits=1024, exponents="short", insecure_key_size=True)
    assert public.exponents == "short"
    assert public.table.bits == 192
    assert "stronger than usual" in public.assumption
    assert private.decrypt(public.encrypt(5)) == 5


@pytest.mark.parametrize("bits", [512, 1024, 2046])
def test_a_small_key_needs_to_be_asked_for_by_name(bits: int) -> None:
    with pytest.raises(ConfigError, match="--insecure-key-size"):
        paillier.generate(bits=bits)


@pytest.mark.parametrize("bits", [0, -2, 32, 62, 257, 2049, 16386])
def test_lengths_that_make_no_key_are_refused(bits: int) -> None:
    with pytest.raises(ConfigError, match="Expected an even key length"):
        paillier.generate(bits=bits, insecure_key_size=True)


@pytest.mark.parametrize(
    ("kind", "exponents", "bits"), [("subgroup", "half", 512), ("standard", "short", 512), ("subgroup", "short", 1024)]
)
def test_kinds_without_parameters_are_refused(kind: Kind, exponents: Exponents, bits: int) -> None:
    with pytest.raises(ConfigError):
        paillier.generate(bits=bits, kind=kind, exponents=exponents, insecure_key_size=True)


def test_no_two_keys_are_alike() -> None:
    made = [paillier.generate(bits=64, insecure_key_size=True)[0] for _ in range(20)]
    assert len({key.n for key in made}) == len({key.h for key in made}) == 20
