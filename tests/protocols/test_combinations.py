from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import ConfigError, WireError
from tacit.protocols.reports import check_indices, code_bits, rank, sets, unrank


@pytest.mark.parametrize("dimensions", range(1, 9))
def test_every_number_is_one_set_and_every_set_one_number(dimensions: int) -> None:
    for chosen in range(1, dimensions + 1):
        count = math.comb(dimensions, chosen)
        found = [tuple(unrank(n, dimensions=dimensions, chosen=chosen).tolist()) for n in range(count)]
        assert set(found) == set(itertools.combinations(range(dimensions), chosen))
        back = [rank(np.array(one), dimensions=dimensions, chosen=chosen) for one in found]
        assert back == list(range(count))


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 10**8), st.integers(1, 200), st.randoms(use_true_random=False))
def test_a_set_comes_back_in_ascending_order(dimensions: int, chosen: int, random: object) -> None:
    generator = np.random.default_rng(getattr(random, "randrange")(2**32))  # noqa: B009
    chosen = min(chosen, dimensions)
    drawn = generator.choice(dimensions, chosen, replace=False) if dimensions < 10**5 else None
    indices = np.unique(generator.integers(dimensions, size=chosen)) if drawn is None else np.sort(drawn)
    number = rank(indices, dimensions=dimensions, chosen=len(indices))
    assert 0 <= number < sets(dimensions, len(indices))
    assert unrank(number, dimensions=dimensions, chosen=len(indices)).tolist() == indices.tolist()


@pytest.mark.parametrize("dimensions", [10, 1_000, 10**6, 10**8])
@pytest.mark.parametrize("chosen", [1, 2, 9])
def test_the_first_and_the_last_set(dimensions: int, chosen: int) -> None:
    first, last = np.arange(chosen), np.arange(dimensions - chosen, dimensions)
    assert rank(first, dimensions=dimensions, chosen=chosen) == 0
    assert rank(last, dimensions=dimensions, chosen=chosen) == sets(dimensions, chosen) - 1
    assert unrank(0, dimensions=dimensions, chosen=chosen).tolist() == first.tolist()
    assert unrank(sets(dimensions, chosen) - 1, dimensions=dimensions, chosen=chosen).tolist() == last.tolist()


@pytest.mark.parametrize("place", [2, 3, 4, 7, 40])
def test_the_borders_between_two_sets(place: int) -> None:
    """The logarithm of a number does not tell C(c, i) - 1 from C(c, i); whole numbers do."""
    for largest in (50, 99_999, 10**6, 12_345_678, 99_999_998):
        for number in range(math.comb(largest, place) - 2, math.comb(largest, place) + 3):
            indices = unrank(number, dimensions=10**8, chosen=place)
            assert rank(indices, dimensions=10**8, chosen=place) == number
            assert bool(indices[-1] >= largest) is (number >= math.comb(largest, place))


@pytest.mark.parametrize(
    ("dimensions", "chosen", "bits"), [(66_404, 176, 1756), (800_000, 180, 2436), (21_840, 14, 166), (21_840, 1, 15)]
)
def test_a_code_is_as_short_as_can_be(dimensions: int, chosen: int, bits: int) -> None:
    assert code_bits(dimensions, chosen) == bits
    assert 2 ** (bits - 1) < math.comb(dimensions, chosen) <= 2**bits


@pytest.mark.parametrize(
    ("indices", "words"),
    [
        ([0, 4, 4], "Coordinate 4 is there twice"),
        ([4, 0, 7], "Coordinate 4 comes before 0: expected ascending order"),
        ([0, 4, 8], "Coordinate 8 is out of range: expected 0 to 7"),
        ([-1, 4, 7], "Coordinate -1 is out of range"),
        ([0, 4], "Expected 3 coordinates, got 2"),
        ([0, 1, 4, 7], "Expected 3 coordinates, got 4"),
        ([[0, 1, 2]], "Expected one row of whole numbers"),
        ([0.0, 1.0, 2.0], "Expected one row of whole numbers"),
    ],
)
def test_what_is_no_set_is_refused(indices: list[int], words: str) -> None:
    for use in (check_indices, rank):
        with pytest.raises(WireError, match=words):
            use(np.array(indices), dimensions=8, chosen=3)


@pytest.mark.parametrize("number", [-1, 56, 10**30])
def test_a_number_without_a_set_is_refused(number: int) -> None:
    with pytest.raises(WireError, match="There are 56 sets of 3 coordinates out of 8"):
        unrank(number, dimensions=8, chosen=3)


@pytest.mark.parametrize("chosen", [0, 9])
def test_sets_of_impossible_size(chosen: int) -> None:
    with pytest.raises(ConfigError, match=f"got {chosen}"):
        sets(8, chosen)
