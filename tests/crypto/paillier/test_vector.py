from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.crypto import paillier
from tacit.crypto.paillier import CiphertextVector, Layout
from tacit.crypto.paillier import vector as module
from tacit.crypto.ring import from_integers, to_integers
from tacit.errors import CipherError, ConfigError
from tests.crypto.paillier.common import (
    OTHER_PRIVATE,
    OTHER_PUBLIC,
    PRIVATE,
    PUBLIC,
    P,
    Q,
    subgroup_pair,
    textbook_decrypt,
    textbook_encrypt,
)

LAYOUT = Layout(length=9, bound=1000, summands=6, key_bits=256)
NARROW = Layout(length=60, bound=3, summands=3, key_bits=256)  # 51 slots of 5 bits: two rows
FLOATS = Layout.floats(length=12, clip=2.0, key_bits=256, summands=4)
VECTORS = st.lists(st.integers(-1000, 1000), min_size=9, max_size=9).map(np.array)
HEADER = 98
WHERE = {"magic": 0, "version": 4, "key": 5, "summands": 37, "layout": 45, "digest": 82}


def encrypt(values: object, layout: Layout = LAYOUT) -> CiphertextVector:
    return PUBLIC.encrypt(values, layout, workers=1)  # type: ignore[no-any-return, call-overload]


def sealed(facts: bytes, body: bytes) -> bytes:
    """Return bytes with the digest that belongs to them, as a forger can."""
    return facts + module._digest(facts, body) + body


VECTOR = encrypt(np.arange(-4, 5) * 100)
BYTES = VECTOR.to_bytes()
FACTS, BODY = BYTES[: WHERE["digest"]], BYTES[HEADER:]


@given(st.lists(VECTORS, min_size=1, max_size=6))
@settings(max_examples=25)
def test_sums_of_integers_are_exact_in_any_order(vectors: list[np.ndarray[tuple[int], np.dtype[np.int64]]]) -> None:
    encrypted = [encrypt(vector) for vector in vectors]
    forwards, backwards = paillier.total(encrypted), paillier.total(encrypted[::-1])
    assert np.array_equal(forwards.rows, backwards.rows)
    one_by_one = encrypted[0]
    for vector in encrypted[1:]:
        one_by_one = one_by_one + vector
    assert np.array_equal(one_by_one.rows, forwards.rows)
    assert forwards.summands == one_by_one.summands == len(vectors)
    assert PRIVATE.decrypt(forwards).tolist() == sum(vectors).tolist()  # type: ignore[union-attr]


@given(st.lists(st.lists(st.floats(-3, 3), min_size=12, max_size=12), min_size=1, max_size=4))
@settings(max_examples=25)
def test_sums_of_floats_are_within_the_error(vectors: list[list[float]]) -> None:
    encrypted = [encrypt(vector, FLOATS) for vector in vectors]
    exact = np.clip(vectors, -2, 2).sum(axis=0)
    assert np.abs(PRIVATE.decrypt(paillier.total(encrypted)) - exact).max() <= FLOATS.error(len(vectors)) * (1 + 1e-9)
    assert [vector.clipped for vector in encrypted] == np.count_nonzero(np.abs(vectors) > 2, axis=1).tolist()


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_fullest_sum_does_not_reach_a_neighbour(sign: int) -> None:
    ends = encrypt(np.resize([3 * sign, -3 * sign], 60), NARROW)
    assert PRIVATE.decrypt(ends + ends + ends).tolist() == np.resize([9 * sign, -9 * sign], 60).tolist()


def test_the_textbook_reads_the_slots_and_writes_them() -> None:
    assert LAYOUT.slots * LAYOUT.slot_bits == 252
    (message,) = (textbook_decrypt(value) % PUBLIC.n for value in to_integers(VECTOR.rows))
    slots = [message >> (LAYOUT.slot_bits * place) & ((1 << LAYOUT.slot_bits) - 1) for place in range(LAYOUT.slots)]
    assert [slot - 1000 for slot in slots[:9]] == list(range(-400, 401, 100))
    assert set(slots[9:]) <= {0}
    written = sum((x + 1000) << (LAYOUT.slot_bits * place) for place, x in enumerate(range(9)))
    rows = from_integers([textbook_encrypt(written, 12345)], PUBLIC.ring.width)
    read = CiphertextVector(key=PUBLIC, layout=LAYOUT, summands=1, rows=rows)
    assert PRIVATE.decrypt(read).tolist() == list(range(9))


def test_a_multiple_is_the_sum_with_itself() -> None:
    for tripled in (VECTOR * 3, 3 * VECTOR, VECTOR + VECTOR + VECTOR):
        assert tripled.summands == 3
        assert PRIVATE.decrypt(tripled).tolist() == (np.arange(-4, 5) * 300).tolist()
    with pytest.raises(TypeError):
        VECTOR * 1.5  # type: ignore[operator]
    for wrong in (0, -1):
        with pytest.raises(CipherError, match="at least 1"):
            VECTOR * wrong


def test_more_summands_than_the_layout_has_room_for_are_refused() -> None:
    assert PRIVATE.decrypt(VECTOR * 6).tolist() == (np.arange(-4, 5) * 600).tolist()
    refusal = "would have 7 summands, and the layout has room for 6"
    with pytest.raises(CipherError, match=refusal):
        VECTOR * 7
    with pytest.raises(CipherError, match=refusal):
        paillier.total([VECTOR] * 7)
    four, three = VECTOR * 4, VECTOR * 3
    with pytest.raises(CipherError, match=refusal):
        four + three


def test_a_sum_of_nothing_is_refused() -> None:
    with pytest.raises(CipherError, match="at least one"):
        paillier.total([])


def test_vectors_of_other_keys_and_layouts_do_not_add() -> None:
    other = OTHER_PUBLIC.encrypt(np.arange(9), LAYOUT)
    with pytest.raises(CipherError, match="Vector 1 is of another key"):
        paillier.total([VECTOR, other])
    for change in ({"summands": 5}, {"bound": 999}, {"length": 8}, {"step": 1.0}):
        layout = replace(LAYOUT, **change)
        with pytest.raises(CipherError, match="Vector 2 has"):
            paillier.total([VECTOR, VECTOR, encrypt(np.zeros(layout.length, np.int64), layout)])
    with pytest.raises(CipherError, match="Use the key it was made with"):
        OTHER_PRIVATE.decrypt(VECTOR)


def test_whole_numbers_beyond_the_clip_are_refused_unless_they_may_be_clipped() -> None:
    values = np.array([0] * 8 + [1001])
    with pytest.raises(ConfigError, match="1 of 9 numbers are beyond the clip of 1000"):
        PUBLIC.encrypt(values, LAYOUT)
    assert PUBLIC.encrypt(values, LAYOUT, beyond="clip").clipped == 1
    with pytest.raises(ConfigError, match="1 of 2 numbers are beyond the clip"):
        PUBLIC.encrypt(np.array([0, 2**31 + 1]))


def test_floats_beyond_the_clip_are_clipped_unless_they_are_to_be_refused() -> None:
    values = np.array([0.0, 1.5])
    assert PUBLIC.encrypt(values).clipped == 1
    with pytest.raises(ConfigError, match="1 of 2 numbers are beyond the clip of 1"):
        PUBLIC.encrypt(values, beyond="refuse")


def test_a_rerandomised_sum_differs_in_every_row_and_decrypts_alike() -> None:
    vector = encrypt(np.resize([1, -2, 3], 60), NARROW)
    sums = [vector + vector, vector + vector]
    assert np.array_equal(sums[0].rows, sums[1].rows)  # which is why it is needed
    again = [sums[0].rerandomised() for _ in range(5)]
    for place in range(2):
        assert len({vector.rows[place].tobytes() for vector in [sums[0], *again]}) == 6
    for sum_again in again:
        assert np.array_equal(PRIVATE.decrypt(sum_again), PRIVATE.decrypt(sums[0]))
        assert sum_again.summands == 2


def test_ciphertexts_of_one_vector_differ_and_look_uniform() -> None:
    vectors = [encrypt(np.zeros(60, np.int64), NARROW) for _ in range(300)]
    rows = np.concatenate([vector.rows for vector in vectors])
    assert len({row.tobytes() for row in rows}) == 600
    counts = np.bincount(rows[:, 8:].reshape(-1), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-9


def test_a_vector_travels() -> None:
    for vector in (VECTOR, VECTOR * 5, encrypt(np.ones(60, np.int64), NARROW), encrypt(np.ones(12), FLOATS)):
        data = vector.to_bytes()
        assert len(data) == vector.nbytes == HEADER + vector.layout.rows * 64
        for given_data in (data, memoryview(data)):
            read = CiphertextVector.from_bytes(given_data, PUBLIC)
            assert (read.layout, read.summands, read.key) == (vector.layout, vector.summands, PUBLIC)
            assert np.array_equal(read.rows, vector.rows)
            assert np.array_equal(PRIVATE.decrypt(read), PRIVATE.decrypt(vector))


def test_the_bytes_are_fixed() -> None:
    assert BYTES[:5] == b"TCTC\x01"
    assert BYTES[5:37] == PUBLIC.identity
    assert struct.unpack(">Q", BYTES[37:45]) == (1,)
    assert BYTES[45:82] == LAYOUT.to_bytes()
    assert VECTOR.rows.tobytes() == BODY


@pytest.mark.parametrize("length", [*range(len(BYTES)), len(BYTES) + 1, len(BYTES) + 64])
def test_every_truncation_and_more_bytes_are_refused(length: int) -> None:
    with pytest.raises(CipherError):
        CiphertextVector.from_bytes((BYTES + bytes(64))[:length], PUBLIC)


def test_every_flipped_bit_is_refused() -> None:
    for bit in range(8 * len(BYTES)):
        flipped = bytearray(BYTES)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CipherError):
            CiphertextVector.from_bytes(bytes(flipped), PUBLIC)


def test_every_flipped_bit_of_a_forged_header_is_refused_or_does_not_add() -> None:
    for bit in range(8 * len(FACTS)):
        flipped = bytearray(FACTS)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            read = CiphertextVector.from_bytes(sealed(bytes(flipped), BODY), PUBLIC)
        except CipherError:
            continue
        assert read.layout != LAYOUT or read.summands != 1
        if read.layout != LAYOUT:
            with pytest.raises(CipherError, match="Vector 1 has"):
                VECTOR + read


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_a_cipher_error(data: bytes) -> None:
    with pytest.raises(CipherError):
        CiphertextVector.from_bytes(data, PUBLIC)


@given(st.binary(max_size=200), st.binary(min_size=45, max_size=45), st.booleans())
def test_arbitrary_bytes_behind_a_good_start_are_a_cipher_error_or_a_vector(
    body: bytes, facts: bytes, exact: bool
) -> None:
    start = BYTES[:37] + (BYTES[37:82] if exact else facts)
    try:
        read = CiphertextVector.from_bytes(sealed(start, body), PUBLIC)
        PRIVATE.decrypt(read)
    except CipherError:
        return
    assert read.to_bytes() == sealed(start, body)


@pytest.mark.parametrize("summands", [0, 7, 1 << 63])
def test_a_forged_count_beyond_the_layout_is_refused(summands: int) -> None:
    facts = FACTS[:37] + struct.pack(">Q", summands) + FACTS[45:]
    with pytest.raises(CipherError, match=f"claims {summands} summands, expected 1 to 6"):
        CiphertextVector.from_bytes(sealed(facts, BODY), PUBLIC)


def test_a_vector_of_another_key_is_named() -> None:
    with pytest.raises(CipherError, match="is encrypted with key"):
        CiphertextVector.from_bytes(BYTES, OTHER_PUBLIC)


def test_a_layout_for_other_keys_is_refused() -> None:
    facts = FACTS[:45] + replace(LAYOUT, key_bits=512).to_bytes()
    with pytest.raises(CipherError, match="for keys of 512 bits"):
        CiphertextVector.from_bytes(sealed(facts, BODY), PUBLIC)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, "is 0"),
        (PUBLIC.square, "not below n\\^2"),
        (PUBLIC.square + 1, "not below n\\^2"),
        ((1 << 512) - 1, "not below n\\^2"),
        (P, "divisor in common"),
        (Q * 12345, "divisor in common"),
        (PUBLIC.n, "divisor in common"),
    ],
)
def test_what_no_encryption_gives_is_refused(value: int, message: str) -> None:
    body = value.to_bytes(64, "big")
    with pytest.raises(CipherError, match=message):
        CiphertextVector.from_bytes(sealed(FACTS, body), PUBLIC)


def test_the_largest_and_smallest_ciphertexts_pass() -> None:
    for value in (1, 2, PUBLIC.square - 1):
        CiphertextVector.from_bytes(sealed(FACTS, value.to_bytes(64, "big")), PUBLIC)


def test_a_bad_row_is_found_among_good_ones() -> None:
    good = encrypt(np.ones(60, np.int64), NARROW)
    for place in range(2):
        rows = good.rows.copy()
        rows[place] = from_integers([P], 64)[0]
        bad = replace(good, rows=rows)
        with pytest.raises(CipherError, match="divisor in common"):
            CiphertextVector.from_bytes(bad.to_bytes(), PUBLIC)
        unseen = CiphertextVector.from_bytes(bad.to_bytes(), PUBLIC, units=False)
        with pytest.raises(CipherError, match="divisor in common"):
            paillier.total([good, unseen, good], check_units=True)
        with pytest.raises(CipherError, match="not made by this public key"):
            PRIVATE.decrypt(paillier.total([good, unseen]))  # whoever forgot to look finds it here


def test_a_slot_that_no_honest_sum_has_is_refused() -> None:
    forged = encrypt(np.full(9, 1000))
    overfull = replace(forged, rows=PUBLIC.ring.multiply(forged.rows, forged.rows))  # two summands that claim to be one
    with pytest.raises(CipherError, match="number 0 is 4000, expected slots of at most 2000"):
        PRIVATE.decrypt(overfull)


def test_random_plaintext_is_refused() -> None:
    rows = from_integers([textbook_encrypt(PUBLIC.n - 1, 77)], 64)
    with pytest.raises(CipherError, match="can't be one"):
        PRIVATE.decrypt(CiphertextVector(key=PUBLIC, layout=LAYOUT, summands=1, rows=rows))


def test_foreign_noise_in_a_vector_of_a_subgroup_key_is_detected() -> None:
    public, private = subgroup_pair()
    values = np.linspace(-1, 1, 100)
    vector = public.encrypt(values)
    assert np.abs(private.decrypt(vector) - values).max() < 1e-6
    rows = vector.rows.copy()
    foreign = to_integers(rows[2:3])[0] * pow(3, public.n, public.square) % public.square
    rows[2] = from_integers([foreign], public.ring.width)[0]
    with pytest.raises(CipherError, match="Ciphertext 2 was not made by this public key"):
        private.decrypt(replace(vector, rows=rows))


def test_eight_bytes_a_float_at_2048_bits() -> None:
    layout = Layout.floats(length=21840, clip=1.0, key_bits=2048)
    assert (HEADER + layout.rows * 512) / 21840 < 8


def test_a_vector_of_many_blocks_is_the_same_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.crypto.ring.BLOCK", 3)
    layout = replace(LAYOUT, length=20 * LAYOUT.slots + 1)
    values = np.random.default_rng(4).integers(-1000, 1001, layout.length)
    vectors = [PUBLIC.encrypt(values, layout), PRIVATE.encrypt(values, layout)]
    total = paillier.total(vectors)
    assert np.array_equal(PRIVATE.decrypt(total), 2 * values)
    blind = total.rerandomised()
    assert not (blind.rows == total.rows).all(axis=1).any()
    assert np.array_equal(PRIVATE.decrypt(blind), 2 * values)
    assert np.array_equal(layout.sums(layout.packed(2 * values, 2), 2), 2 * values)


def test_what_is_wrong_in_a_later_block_is_named_by_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.crypto.ring.BLOCK", 3)
    layout = replace(LAYOUT, length=20 * LAYOUT.slots + 1)
    values = np.zeros(layout.length, np.int64)
    place = 13 * layout.slots + 2
    values[[0, place]] = layout.bound + 1
    with pytest.raises(ConfigError, match=f"2 of {layout.length} numbers are beyond"):
        layout.encode(values, beyond="refuse")
    rows, outside = layout.encode(values)
    assert outside == 2
    assert layout.sums(rows, 1)[[0, 1, place]].tolist() == [layout.bound, 0, layout.bound]
    with pytest.raises(CipherError, match=f"number {place} is {3 * layout.bound + 2}"):
        layout.sums(layout.packed(np.where(np.arange(len(values)) == place, 2 * layout.bound + 2, 0), 1), 1)
    floats = replace(layout, step=0.5)
    bad = np.zeros(layout.length)
    bad[place] = np.inf
    with pytest.raises(ConfigError, match=f"Number {place} of the vector is inf"):
        floats.encode(bad)
