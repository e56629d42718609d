from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tacit.crypto import ring
from tacit.progress import telling

NUMBERS = st.lists(st.integers(0, 2**80 - 1), max_size=12)


@given(NUMBERS, st.integers(10, 20))
def test_integers_round_trip_in_big_endian_rows(numbers: list[int], width: int) -> None:
    made = ring.from_integers(numbers, width)
    assert made.shape == (len(numbers), width)
    assert made.tobytes() == b"".join(number.to_bytes(width, "big") for number in numbers)
    assert ring.to_integers(made) == numbers


@given(NUMBERS, st.integers(10, 20))
def test_widened_rows_are_the_same_numbers(numbers: list[int], width: int) -> None:
    wide = ring.widened(ring.from_integers(numbers, 10), width)
    assert wide.shape == (len(numbers), width)
    assert ring.to_integers(wide) == numbers


def test_a_number_that_does_not_fit_is_no_row() -> None:
    with pytest.raises(OverflowError):
        ring.from_integers([256], 1)


@pytest.mark.parametrize(("modulus", "width"), [(255, 1), (256, 2), (2**64 - 1, 8), (2**64, 9)])
def test_the_width_is_that_of_the_modulus(modulus: int, width: int) -> None:
    assert ring.width_of(modulus) == width


@given(NUMBERS, st.integers(1, 2**81))
def test_not_below_finds_exactly_the_numbers_that_are_too_large(numbers: list[int], bound: int) -> None:
    found = ring.not_below(ring.from_integers(numbers, 10), bound).tolist()
    assert found == [place for place, number in enumerate(numbers) if number >= bound]


@given(st.integers(1, 2**80 - 2))
def test_not_below_at_the_bound_itself(bound: int) -> None:
    assert ring.not_below(ring.from_integers([bound - 1, bound, bound + 1], 10), bound).tolist() == [1, 2]


@given(st.lists(st.integers(0, 3), max_size=12))
def test_zeros_are_found(numbers: list[int]) -> None:
    assert ring.zeros(ring.from_integers(numbers, 3)).tolist() == [i for i, n in enumerate(numbers) if n == 0]


@pytest.mark.parametrize("bound", [2, 3, 6, 7, 8, 255, 256, 257, 1000])
def test_random_numbers_are_uniform_below_the_bound(bound: int) -> None:
    drawn = ring.to_integers(ring.random_below(bound, 40 * bound))
    counts = np.bincount(drawn, minlength=bound)
    assert len(counts) == bound  # none is at or above the bound
    assert stats.chisquare(counts).pvalue > 1e-9


@given(st.integers(2, 2**300))
def test_random_numbers_are_below_any_bound_and_as_wide_as_the_largest(bound: int) -> None:
    drawn = ring.random_below(bound, 5)
    assert drawn.shape == (5, ring.width_of(bound - 1))
    assert max(ring.to_integers(drawn)) < bound


def test_every_bit_of_a_random_number_is_a_fair_coin() -> None:
    bits = np.unpackbits(ring.random_below(1 << 250, 4000), axis=1)[:, 6:]
    assert bits.shape[1] == 250
    deviations = (bits.mean(axis=0) - 0.5) * 2 * np.sqrt(4000)
    assert np.abs(deviations).max() < 8  # once in 10^12 runs by chance


@pytest.mark.parametrize("count", [0, 1, 4, 5, 8, 9])
def test_blocks_cover_every_row_once(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "BLOCK", 4)
    whole = ring.from_integers(range(count), 2)
    asked: list[slice] = []

    def compute(part: slice) -> ring.Rows:
        asked.append(part)
        return whole[part]

    heard: list[tuple[str, float]] = []
    with telling(lambda what, share: heard.append((what, share))):
        assert np.array_equal(ring.in_blocks(count, compute, "counting"), whole)
        assert np.array_equal(ring.in_blocks(count, lambda part: whole[part]), whole)
    blocks = -(-count // 4)
    assert heard == [("counting", min(4 * (n + 1) / count, 1.0)) for n in range(blocks) if blocks > 1]
    assert all(part.stop - part.start <= 4 for part in asked)
