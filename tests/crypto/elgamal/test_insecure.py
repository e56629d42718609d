"""The textbook variant works, and everybody can see whether its message is a square."""

from __future__ import annotations

import gmpy2
import pytest

from tacit.crypto.elgamal import insecure
from tacit.crypto.elgamal.insecure import InsecureTextbookElGamal, leaked_symbol
from tacit.crypto.groups import Group, own
from tacit.errors import ConfigError
from tests.crypto.elgamal.conftest import Pair


def test_round_trip_and_product(group: Group) -> None:
    keys = InsecureTextbookElGamal.generate(group)
    p = keys.p
    for message in (1, 2, 12345, p - 1):
        assert keys.decrypt(keys.encrypt(message)) == message
    assert keys.decrypt(keys.multiply(keys.encrypt(p - 1), keys.encrypt(7))) == p - 7
    for message in (0, p, -1):
        with pytest.raises(ConfigError, match="from 1 to p - 1"):
            keys.encrypt(message)


def test_its_generator_generates_everything() -> None:
    keys = InsecureTextbookElGamal.generate(own(40127, insecure_key_size=True))
    assert len({pow(keys.g, e, keys.p) for e in range(keys.p - 1)}) == keys.p - 1


def test_the_symbol_of_every_message_leaks(group: Group) -> None:
    for _ in range(4):  # y is a square for half the keys
        keys = InsecureTextbookElGamal.generate(group)
        symbols = [int(gmpy2.jacobi(message, keys.p)) for message in range(1, 50)]
        assert set(symbols) == {1, -1}
        assert [leaked_symbol(keys.p, keys.y, keys.encrypt(message)) for message in range(1, 50)] == symbols


def test_the_same_attack_learns_nothing_of_the_safe_encoding(pair: Pair) -> None:
    public, _ = pair
    p = public.group.p
    ciphertext = public.encrypt_many(range(1, 50))
    pairs = zip(ciphertext.first, ciphertext.second, strict=True)
    leaked = {
        leaked_symbol(p, public.y, (int.from_bytes(first.tobytes(), "big"), int.from_bytes(second.tobytes(), "big")))
        for first, second in pairs
    }
    assert leaked == {1}


def test_every_public_class_says_that_it_is_insecure() -> None:
    classes = [
        name
        for name, value in vars(insecure).items()
        if isinstance(value, type) and value.__module__ == insecure.__name__
    ]
    assert classes
    assert all(name.startswith("Insecure") for name in classes)
    keys = InsecureTextbookElGamal.generate()
    assert f"{keys.x}" not in repr(keys)
