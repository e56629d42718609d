from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.crypto.paillier.vector import pack_slots, spilled, unpack_slots
from tacit.crypto.ring import from_integers, to_integers


@st.composite
def slots(draw: st.DrawFn) -> tuple[NDArray[np.uint64], int]:
    """Draw rows of numbers and the bits of a slot: every width of a slot up to a word, extremes included."""
    bits, count, length = draw(st.integers(1, 64)), draw(st.integers(1, 4)), draw(st.integers(1, 40))
    largest = (1 << bits) - 1
    number = st.one_of(st.just(0), st.just(largest), st.integers(0, largest))
    numbers = draw(st.lists(number, min_size=count * length, max_size=count * length))
    return np.array(numbers, np.uint64).reshape(count, length), bits


def in_python(numbers: NDArray[np.uint64], bits: int) -> list[int]:
    return [sum(int(number) << (bits * place) for place, number in enumerate(row)) for row in numbers]


@given(slots(), st.integers(0, 9))
def test_packing_is_the_sum_of_shifted_slots(case: tuple[NDArray[np.uint64], int], spare: int) -> None:
    numbers, bits = case
    width = (numbers.shape[1] * bits + 7) // 8 + spare
    packed = pack_slots(numbers, bits, width)
    assert packed.shape == (len(numbers), width)
    assert to_integers(packed) == in_python(numbers, bits)


@given(slots(), st.integers(0, 9))
def test_unpacking_gives_the_slots_back(case: tuple[NDArray[np.uint64], int], spare: int) -> None:
    numbers, bits = case
    width = (numbers.shape[1] * bits + 7) // 8 + spare
    rows = from_integers(in_python(numbers, bits), width)
    assert np.array_equal(unpack_slots(rows, bits, numbers.shape[1]), numbers)
    assert not len(spilled(rows, bits, numbers.shape[1]))


@pytest.mark.parametrize("bits", range(1, 65))
def test_every_slot_stands_alone_wherever_it_lies_in_its_words(bits: int) -> None:
    count = 2 * 64 // bits + 3
    alone = np.diag(np.full(count, (1 << bits) - 1, np.uint64))
    rows = pack_slots(alone, bits, (count * bits + 7) // 8)
    assert to_integers(rows) == [((1 << bits) - 1) << (bits * place) for place in range(count)]
    assert np.array_equal(unpack_slots(rows, bits, count), alone)


@given(st.integers(1, 64), st.integers(1, 20), st.integers(0, 30))
def test_a_bit_above_the_slots_is_seen_wherever_it_is(bits: int, count: int, extra: int) -> None:
    width = (bits * count + 7) // 8 + 3
    place = min(bits * count + extra, 8 * width - 1)
    full = (1 << (bits * count)) - 1
    rows = from_integers([0, full, 1 << place, full | 1 << place], width)
    assert spilled(rows, bits, count).tolist() == [2, 3]


def test_slots_that_fill_every_bit_leave_none_to_spill_into() -> None:
    rows = from_integers([2**24 - 1], 3)
    assert spilled(rows, 8, 3).tolist() == []
    assert spilled(rows, 9, 3).tolist() == []  # narrower than its slots: the missing bits are zero
    assert unpack_slots(rows, 9, 3).tolist() == [[511, 511, 63]]
