from __future__ import annotations

import gmpy2
import pytest

from tacit.crypto import paillier as tacit_paillier
from tacit.crypto.ring import from_integers
from tacit_labs.baselines.paillier import ARITHMETICS, GMPY2, PYTHON, TextbookPaillier


@pytest.fixture(scope="module", params=list(ARITHMETICS.values()), ids=list(ARITHMETICS))
def key(request: pytest.FixtureRequest) -> TextbookPaillier:
    return TextbookPaillier.generate(192, request.param)


@pytest.mark.parametrize(("a", "b"), [(0, 1), (7, 5), (2021, 4), (2**60, 2**59 - 1), (2**191 - 1, 2**191 - 1)])
def test_the_five_operations_are_those_of_integers_modulo_n(key: TextbookPaillier, a: int, b: int) -> None:
    left, right = key.enc(a), key.enc(b)
    assert key.dec(left) == a % key.n
    assert key.dec(key.enc_add(left, right)) == (a + b) % key.n
    assert key.dec(key.enc_add_const(left, b)) == (a + b) % key.n
    assert key.dec(key.enc_mul_const(left, b)) == a * b % key.n


def test_a_number_has_many_ciphertexts(key: TextbookPaillier) -> None:
    made = {key.enc(12) for _ in range(20)}
    assert len(made) == 20
    assert {key.dec(one) for one in made} == {12}


def test_the_two_versions_differ_in_their_integers_only() -> None:
    assert isinstance(TextbookPaillier.generate(128, GMPY2).enc(5), gmpy2.mpz)
    assert isinstance(TextbookPaillier.generate(128, PYTHON).enc(5), int)
    slow = TextbookPaillier.generate(128, PYTHON)
    numbers = {name: gmpy2.mpz(getattr(slow, name)) for name in ("n", "g", "square", "order", "scale")}
    fast = TextbookPaillier(**numbers, power=gmpy2.powmod)
    assert fast.dec(slow.enc(77)) == slow.dec(fast.enc(77)) == 77


def test_tacit_opens_what_the_textbook_encrypted_with_the_generator_that_tacit_takes() -> None:
    public, private = tacit_paillier.generate(bits=256, insecure_key_size=True)
    n = public.n
    book = TextbookPaillier(n=n, g=n + 1, square=n * n, order=0, scale=0, power=pow)  # only Tacit knows p and q
    text = book.enc_add_const(book.enc_mul_const(book.enc(4), 10), 2)
    row = from_integers([text], public.ring.width)
    assert private.decrypt(tacit_paillier.Ciphertext(key=public, row=row)) == 42
