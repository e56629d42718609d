"""Encrypted numbers: known answers, round trips, products, and randomness that is fresh and the system's."""

from __future__ import annotations

from typing import Any

import gmpy2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.crypto import elgamal
from tacit.crypto.elgamal.encoding import decode, encode, longest_message
from tacit.crypto.groups import Group, own
from tacit.crypto.ring import from_integers, to_integers
from tacit.errors import CipherError, ConfigError
from tests.crypto.elgamal.conftest import Pair

quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _up_to_sign(number: int, p: int) -> int:
    return min(number % p, -number % p)


def _legendre(number: int, p: int) -> int:
    power = pow(number, (p - 1) // 2, p)
    return power - p if power == p - 1 else power


@pytest.mark.parametrize("count", [1, 5, 200])  # single powers, and the table
@pytest.mark.parametrize("exponents", ["short", "full"])
def test_known_answers(count: int, exponents: elgamal.Exponents, monkeypatch: pytest.MonkeyPatch) -> None:
    public, private = elgamal.generate("ffdhe2048", exponents=exponents)
    p, q, g, y = public.group.p, public.group.q, public.group.g, public.y
    drawn: list[bytes] = []

    def fake(size: int) -> bytes:  # an exponent's first bit is 0, so that it is below q
        rows = np.random.default_rng(len(drawn)).integers(0, 256, size, np.uint8).reshape(count, -1)
        rows[:, 0] &= 0x7F
        drawn.append(rows.tobytes())
        return drawn[-1]

    monkeypatch.setattr("tacit.crypto.elgamal.keys.system_bytes", fake)
    monkeypatch.setattr("tacit.crypto.ring.system_bytes", fake)
    messages = [1, 2, 3, q - 1, q][:count] * max(1, count // 5)
    ciphertext = public.encrypt_many(messages, workers=1)
    (raw,) = drawn
    rows = np.frombuffer(raw, np.uint8).reshape(count, -1).copy()
    assert rows.shape[1] == (32 if exponents == "short" else 256)
    if exponents == "full":
        rows[:, 0] >>= 1  # q has a bit less than its bytes
    randomness = to_integers(rows)
    assert to_integers(ciphertext.first)[:5] == [pow(g, r, p) for r in randomness[:5]]
    squares = [m if _legendre(m, p) == 1 else p - m for m in messages[:5]]
    assert to_integers(ciphertext.second)[:5] == [
        m * pow(y, r, p) % p for m, r in zip(squares, randomness[:5], strict=True)
    ]
    assert private.decrypt_many(ciphertext) == messages


@quick
@given(st.data())
def test_round_trip_and_product(pair: Pair, data: st.DataObject) -> None:
    public, private = pair
    p, q = public.group.p, public.group.q
    numbers = st.one_of(st.integers(1, 5), st.integers(1, q), st.integers(q - 5, q))
    left, right = (data.draw(st.lists(numbers, min_size=3, max_size=3)) for _ in range(2))
    a, b = public.encrypt_many(left), public.encrypt_many(right)
    assert private.decrypt_many(a) == left
    expected = [_up_to_sign(x * y, p) for x, y in zip(left, right, strict=True)]
    assert private.decrypt_many(a * b) == expected
    assert private.decrypt_many(b * a) == expected
    assert private.decrypt_many((a * b).rerandomised()) == expected
    assert private.decrypt_many(elgamal.product([a, b, a])) == [
        _up_to_sign(x * x * y, p) for x, y in zip(left, right, strict=True)
    ]


@quick
@given(st.data())
def test_powers(pair: Pair, data: st.DataObject) -> None:
    public, private = pair
    p, q = public.group.p, public.group.q
    number = data.draw(st.integers(1, q))
    exponent = data.draw(st.one_of(st.integers(-5, 5), st.integers(1 - q, q - 1)))
    assert private.decrypt(public.encrypt(number) ** exponent) == _up_to_sign(pow(number, exponent, p), p)


def test_exact_product_of_integers(real: Pair) -> None:
    public, private = real
    assert private.decrypt(elgamal.product([public.encrypt(n) for n in range(1, 101)])) == int(gmpy2.fac(100))


def test_encoding_is_one_to_one_into_the_squares() -> None:
    group = own(40127, insecure_key_size=True)
    squares = {x * x % group.p for x in range(1, group.p)}
    encoded = to_integers(encode(range(1, group.q + 1), group))
    assert set(encoded) == squares
    assert len(encoded) == group.q
    assert decode(from_integers(encoded, 2), group) == list(range(1, group.q + 1))


def test_messages_outside_are_refused(pair: Pair) -> None:
    public, _ = pair
    q = public.group.q
    for message in (0, -1, q + 1, 1 << 4000):
        with pytest.raises(ConfigError, match="from 1 to q"):
            public.encrypt(message)
    others: list[Any] = [1.0, "1", None, float("nan")]
    for other in others:
        with pytest.raises(ConfigError, match="expected an integer"):
            public.encrypt(other)
    with pytest.raises(ConfigError, match="Message 2 is 0"):
        public.encrypt_many([1, 2, 0])


def test_vectors_of_any_kind(pair: Pair) -> None:
    public, private = pair
    assert private.decrypt_many(public.encrypt_many(np.arange(1, 300))) == list(range(1, 300))
    empty = public.encrypt_many([])
    assert len(empty) == 0
    assert private.decrypt_many(empty * empty) == []
    assert private.decrypt_many(public.parse(empty.to_bytes()).rerandomised()) == []
    with pytest.raises(ConfigError, match="Use decrypt_many"):
        private.decrypt(public.encrypt_many([1, 2]))
    with pytest.raises(ConfigError, match="at least one"):
        elgamal.product([])


@quick
@given(st.binary(max_size=31))
def test_bytes(pair: Pair, message: bytes) -> None:
    public, private = pair
    longest = longest_message(public.group)
    assert longest == 31
    assert private.decrypt_bytes(public.encrypt_bytes(message)) == message


def test_bytes_boundaries(pair: Pair, real: Pair) -> None:
    public, private = pair
    for message in (b"", b"\0", b"\0" * 31, b"\xff" * 31, b"\1\0"):
        assert private.decrypt_bytes(public.encrypt_bytes(message)) == message
    with pytest.raises(ConfigError, match="32 bytes, expected at most 31"):
        public.encrypt_bytes(b"x" * 32)
    with pytest.raises(CipherError, match="does not hold bytes"):
        private.decrypt_bytes(public.encrypt(2))
    assert longest_message(real[0].group) == 255


def test_different_keys_and_lengths_do_not_mix(pair: Pair, group: Group) -> None:
    public, private = pair
    stranger, _ = elgamal.generate(group, insecure_key_size=True)
    with pytest.raises(CipherError, match="of keys"):
        public.encrypt(1) * stranger.encrypt(1)
    with pytest.raises(CipherError, match="Use the key it was made with"):
        private.decrypt(stranger.encrypt(1))
    with pytest.raises(CipherError, match="expected equally many"):
        public.encrypt(1) * public.encrypt_many([1, 2])
    with pytest.raises(CipherError, match="numbers and counts differ"):
        private.decrypt(public.encrypt_counts(1))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        public.encrypt(1) * 2  # type: ignore[operator]
    with pytest.raises(CipherError, match="shapes"):
        elgamal.Ciphertext(key=public, first=np.zeros((1, 3), np.uint8), second=np.zeros((1, 3), np.uint8))
    with pytest.raises(ConfigError, match="below q"):
        public.encrypt(1) ** public.group.q


def test_ciphertexts_of_one_message_differ_in_both_halves(real: Pair) -> None:
    public, _ = real
    for ciphertext in (public.encrypt_many([7] * 300), public.encrypt_counts([7] * 300)):
        assert len({row.tobytes() for row in ciphertext.first}) == 300
        assert len({row.tobytes() for row in ciphertext.second}) == 300
        again = ciphertext.rerandomised()
        assert not (again.first == ciphertext.first).all(axis=1).any()
        assert not (again.second == ciphertext.second).all(axis=1).any()


def _uniformity(numbers: list[int], group: Group) -> float:
    """Return the p-value of numbers being uniform in the group, in 50 classes by size."""
    squares = np.array(sorted({x * x % group.p for x in range(1, group.p)}))
    place = np.searchsorted(squares, numbers)
    assert (squares[place] == numbers).all()
    found = np.bincount(place * 50 // len(squares), minlength=50)
    expected = np.bincount(np.arange(len(squares)) * 50 // len(squares)) * len(numbers) / len(squares)
    return float(stats.chisquare(found, expected).pvalue)


def test_ciphertexts_of_one_message_look_uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    group = own(40127, insecure_key_size=True)
    public, _ = elgamal.generate(group, exponents="full", insecure_key_size=True)

    def values(ciphertext: elgamal.Ciphertext) -> list[list[int]]:
        return [to_integers(half) for half in (ciphertext.first, ciphertext.second)]

    halves = values(public.encrypt_many([5] * 20000))
    halves += values(public.encrypt_many([5] * 20000).rerandomised())
    assert min(_uniformity(half, group) for half in halves) > 1e-9
    # and the test would see exponents that miss a tenth of the range
    monkeypatch.setattr(
        "tacit.crypto.elgamal.keys.random_below",
        lambda bound, count: from_integers(np.random.default_rng(1).integers(0, bound // 10, count).tolist(), 2),
    )
    assert max(_uniformity(half, group) for half in values(public.encrypt_many([5] * 20000))) < 1e-9


def test_encoded_messages_leak_no_symbol(real: Pair) -> None:
    public, _ = real
    p = public.group.p
    messages = list(range(1, 20))
    assert {_legendre(m, p) for m in messages} == {1, -1}
    ciphertext = public.encrypt_many(messages)
    for half in (ciphertext.first, ciphertext.second):
        assert {int(gmpy2.jacobi(number, p)) for number in to_integers(half)} == {1}
    assert gmpy2.jacobi(public.y, p) == 1
