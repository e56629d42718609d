from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.training import batches

BITS, DERIVED = [3092583630, 1454014316, 2652027879], [4163131626877599316]
_LAST = (1 << 32) - 1
KEYS = torch.from_numpy(batches.derive_keys(np.arange(64), 5))


def test_bits_are_uniform_over_indices() -> None:
    for key in (0, 1, 2**61 + 12345):
        drawn = batches.random_bits(torch.tensor(key), torch.arange(64_000))
        assert 0 <= int(drawn.min()) <= int(drawn.max()) < 2**32
        assert stats.chisquare(np.bincount(drawn.numpy() >> 26, minlength=64)).pvalue > 0.001
        assert stats.chisquare(np.bincount(drawn.numpy() & 63, minlength=64)).pvalue > 0.001


def test_bits_are_uniform_over_keys() -> None:
    keys = torch.from_numpy(batches.derive_keys(np.arange(64_000), 1))
    drawn = batches.random_bits(keys, torch.tensor(7)).numpy()
    assert stats.chisquare(np.bincount(drawn >> 26, minlength=64)).pvalue > 0.001


def test_neighbours_are_independent() -> None:
    drawn = batches.random_bits(torch.tensor(99), torch.arange(64_001)).numpy() >> 29
    pairs = np.bincount(8 * drawn[:-1] + drawn[1:], minlength=64)
    assert stats.chisquare(pairs).pvalue > 0.001


def test_both_halves_of_a_key_matter() -> None:
    index = torch.arange(16)
    drawn = {
        tuple(batches.random_bits(torch.tensor(key), index).tolist()) for key in (3, 4, 3 + (1 << 32), 3 + (1 << 61))
    }
    assert len(drawn) == 4


def test_the_numbers_never_change() -> None:
    """A resumed run, and a run on another machine, must draw the same."""
    assert batches.random_bits(torch.tensor(12345678901234), torch.arange(3)).tolist() == BITS
    assert batches.derive_keys(np.array([7]), 1, 2).tolist() == DERIVED


def test_derived_keys_have_62_bits_and_differ() -> None:
    derived = batches.derive_keys(np.arange(100), np.arange(50)[:, None], 3)
    assert derived.shape == (50, 100)
    assert derived.min() >= 0
    assert derived.max() < 2**62
    assert derived.max() > 2**61
    assert len(np.unique(derived)) == 5_000
    assert batches.derive_keys(np.array([1]), 0, 1).tolist() != batches.derive_keys(np.array([1]), 1, 0).tolist()


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 0.9])
def test_dropout_keeps_its_share(probability: float) -> None:
    kept = batches.keep_mask(torch.tensor(77), torch.arange(40_000), probability).sum().item()
    spread = np.sqrt(40_000 * probability * (1 - probability))
    assert abs(kept - 40_000 * (1 - probability)) <= 4 * spread


@pytest.mark.parametrize("probability", [0.0, 1e-9, 0.3, 0.5, 0.7, 1.0 - 1e-9, 1.0 - 1e-12])
def test_dropout_is_by_the_bits(probability: float) -> None:
    index = torch.cat(
        [torch.arange(3_000), torch.arange((1 << 31) - 500, (1 << 31) + 500), torch.tensor([_LAST, _LAST + 7])]
    )
    for key in (0, 5, _LAST, 1 << 31, (1 << 62) - 1, 12345678901234):
        bits = batches.random_bits(torch.tensor(key), index)
        assert torch.equal(batches.keep_mask(torch.tensor(key), index, probability), bits >= round(probability * 2**32))


def test_an_order_is_a_permutation_with_the_padding_last() -> None:
    sizes = torch.tensor([10, 3, 1, 7])
    orders = batches.shuffled_positions(KEYS[:4], sizes, 10)
    for line, size in zip(orders.tolist(), sizes.tolist(), strict=True):
        assert sorted(line[:size]) == list(range(size))
        assert sorted(line[size:]) == list(range(size, 10))


def test_an_order_does_not_depend_on_the_padding_or_the_others() -> None:
    alone = batches.shuffled_positions(KEYS[1:2], torch.tensor([6]), 6)
    beside = batches.shuffled_positions(KEYS[:3], torch.tensor([9, 6, 2]), 9)
    assert alone[0].tolist() == beside[1, :6].tolist()


def test_an_order_is_that_of_the_bits_on_every_device() -> None:
    sizes, places = torch.tensor([40, 3]), torch.arange(40)
    drawn = torch.where(places < sizes[:, None], batches.random_bits(KEYS[:2, None], places[None]), 1 << 33)
    assert torch.equal(batches.shuffled_positions(KEYS[:2], sizes, 40), drawn.argsort(dim=1, stable=True))


def test_every_order_is_equally_likely() -> None:
    keys = torch.from_numpy(batches.derive_keys(np.arange(6_000), 2))
    orders = batches.shuffled_positions(keys, torch.full((6_000,), 3), 3)
    codes = (orders * torch.tensor([9, 3, 1])).sum(1).numpy()
    counts = np.unique(codes, return_counts=True)[1]
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 0.001
