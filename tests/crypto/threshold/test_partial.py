from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.crypto.ring import from_integers
from tacit.crypto.threshold import PartialDecryption
from tacit.errors import CipherError
from tests.crypto.threshold.common import SMALL, dealt, fresh

PUBLIC, SHARES = dealt(5, 3)
VECTOR = PUBLIC.key.encrypt(np.arange(30))
ROWS = len(VECTOR.rows)
PARTIAL = SHARES[3].partial(VECTOR, prove=True)
BYTES = PARTIAL.to_bytes()
BARE = SHARES[3].partial(VECTOR).to_bytes()
HEADER = 4 + 1 + 1 + 32 + 32 + 2 + 4


@pytest.mark.parametrize("wrap", [bytes, memoryview, bytearray])
def test_it_comes_back_as_it_went(wrap: type) -> None:
    for data in (BYTES, BARE):
        back = PartialDecryption.from_bytes(wrap(data), PUBLIC)
        assert (back.index, back.identity, back.ciphertext) == (4, PUBLIC.identity, PARTIAL.ciphertext)
        assert np.array_equal(back.rows, PARTIAL.rows)
        assert back.proof == (PARTIAL.proof if data is BYTES else None)
        assert back.to_bytes() == data
    partials = [PartialDecryption.from_bytes(share.partial(VECTOR, prove=True).to_bytes(), PUBLIC) for share in SHARES]
    assert PUBLIC.combine(VECTOR, partials, verify=True).value.tolist() == list(range(30))


def test_the_header_is_as_written_down() -> None:
    header = b"TCTS" + b"\3\1" + PUBLIC.identity + PARTIAL.ciphertext + (4).to_bytes(2, "big") + ROWS.to_bytes(4, "big")
    assert BYTES[:HEADER] == header
    assert len(BARE) == HEADER + ROWS * 32
    assert len(BYTES) == len(BARE) + 32 + 32 + 65 + PUBLIC.spare_bits // 8


@pytest.mark.parametrize("data", [BYTES, BARE], ids=["proved", "bare"])
def test_every_other_length_is_refused(data: bytes) -> None:
    for length in range(len(data)):
        with pytest.raises(CipherError, match=r"Expected (at least )?\d+ bytes"):
            PartialDecryption.from_bytes(data[:length], PUBLIC)
    for more in (1, 32, 10**5):
        with pytest.raises(CipherError, match="cut off or damaged"):
            PartialDecryption.from_bytes(data + bytes(more), PUBLIC)


def patched(place: int, new: bytes, data: bytes = BARE) -> bytes:
    return data[:place] + new + data[place + len(new) :]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (patched(0, b"TCTC"), "Expected a partial decryption, which starts with"),
        (
            patched(4, b"\1"),
            "Expected version 3 of partial decryptions, got 1: it was made by another version of Tacit",
        ),
        (patched(5, b"\2"), "Expected 0 or 1 for whether a partial decryption has a proof, got 2"),
        (patched(5, b"\1"), "and a proof"),
        (patched(6, bytes(32)), "Share 4 is of the threshold key 00:00"),
        (patched(70, b"\0\0"), "There is no share 0: this key has shares 1 to 5"),
        (patched(70, b"\0\6"), "There is no share 6"),
        (patched(70, b"\xff\xff"), "There is no share 65535"),
        (patched(72, b"\xff\xff\xff\xff"), f"Expected {HEADER + 32 * (2**32 - 1)} bytes"),
        (patched(72, bytes(4))[:HEADER], "empty, cut off or damaged"),
        (patched(HEADER + 64, bytes(32)), f"Number 2 of {ROWS} of share 4 is 0"),
        (patched(HEADER + 32, b"\xff" * 32), f"Number 1 of {ROWS} of share 4 is not below n"),
        (patched(HEADER, PUBLIC.key.n.to_bytes(32, "big")), f"Number 0 of {ROWS} of share 4 is not below n"),
        (patched(HEADER, from_integers([SMALL[0] * 3], 32).tobytes()), "has a divisor in common with n"),
    ],
    ids=lambda value: value if isinstance(value, str) else "data",  # the bytes differ from run to run
)
def test_damage_is_named(data: bytes, problem: str) -> None:
    with pytest.raises(CipherError, match=problem):
        PartialDecryption.from_bytes(data, PUBLIC)


@settings(deadline=None, max_examples=150)
@given(st.binary(max_size=400))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(CipherError):
        PartialDecryption.from_bytes(data, PUBLIC)
    with pytest.raises(CipherError):
        PartialDecryption.from_bytes(BYTES[:HEADER] + data[: len(BYTES) - HEADER - 1], PUBLIC)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, len(BYTES) * 8 - 1))
def test_no_flipped_bit_goes_unnoticed(bit: int) -> None:
    """The parser refuses it, or the combination names share 4 with its proof and goes on without it."""
    data = bytearray(BYTES)
    data[bit // 8] ^= 1 << bit % 8
    try:
        partial = PartialDecryption.from_bytes(bytes(data), PUBLIC)
    except CipherError:
        return
    others = [SHARES[index].partial(VECTOR, prove=True) for index in (0, 1, 2)]
    try:
        result = PUBLIC.combine(VECTOR, [*others, partial], verify=True)
    except CipherError as error:
        assert "another ciphertext" in str(error) or "more than once" in str(error)  # noqa: PT017
        return
    assert result.wrong == (partial.index,)
    assert result.value.tolist() == list(range(30))


def test_another_dealing_of_the_same_primes_is_another_key() -> None:
    other, _ = fresh(5, 3)
    with pytest.raises(CipherError, match="is of the threshold key"):
        PartialDecryption.from_bytes(BYTES, other)
