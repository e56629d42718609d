from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from tacit.errors import ConfigError
from tacit.federated.sampling import Everyone, FixedSize, Poisson, Sampler


def test_everyone_is_everyone() -> None:
    sampler = Everyone(population=4)
    assert sampler.cohort(np.random.default_rng(1)) == [0, 1, 2, 3]
    assert sampler.expected == 4.0


def test_every_set_of_a_fixed_size_is_equally_likely() -> None:
    sampler = FixedSize(population=6, size=3)
    generator = np.random.default_rng(5)
    sets = dict.fromkeys(itertools.combinations(range(6), 3), 0)
    for _ in range(4_000):
        sets[tuple(sampler.cohort(generator))] += 1  # type: ignore[index]
    assert stats.chisquare(list(sets.values())).pvalue > 0.01


def test_every_client_is_equally_likely_in_a_small_cohort_of_a_large_population() -> None:
    sampler = FixedSize(population=20_000, size=100)  # NumPy draws these in another way
    generator = np.random.default_rng(6)
    drawn = np.concatenate([sampler.cohort(generator) for _ in range(300)])
    tenths = np.histogram(drawn, bins=10, range=(0, 20_000))[0]
    assert stats.chisquare(tenths).pvalue > 0.01


@pytest.mark.parametrize("size", [1, 2, 9, 10])
def test_a_fixed_cohort_is_sorted_and_without_repeats(size: int) -> None:
    cohort = FixedSize(population=10, size=size).cohort(np.random.default_rng(2))
    assert len(cohort) == size
    assert cohort == sorted(set(cohort))
    assert all(type(client) is int for client in cohort)


def test_poisson_cohorts_have_the_binomials_mean_and_variance() -> None:
    sampler = Poisson(population=50, rate=0.2)
    generator = np.random.default_rng(3)
    cohorts = [sampler.cohort(generator) for _ in range(3_000)]
    sizes = np.array([len(cohort) for cohort in cohorts])
    assert sampler.expected == pytest.approx(10.0)
    assert sizes.mean() == pytest.approx(10.0, abs=4 * np.sqrt(8 / 3_000))
    assert sizes.var() == pytest.approx(8.0, rel=0.12)
    members = np.bincount(np.concatenate(cohorts), minlength=50)
    assert stats.chisquare(members).pvalue > 0.01


def test_poisson_clients_are_independent_of_each_other() -> None:
    generator = np.random.default_rng(4)
    sampler = Poisson(population=5, rate=0.5)
    both = sum({0, 1} <= set(sampler.cohort(generator)) for _ in range(4_000))
    assert both == pytest.approx(1_000, abs=4 * np.sqrt(4_000 * 0.25 * 0.75))


def test_poisson_at_rate_one_is_everyone_and_a_small_one_may_be_empty() -> None:
    generator = np.random.default_rng(4)
    assert Poisson(population=5, rate=1.0).cohort(generator) == [0, 1, 2, 3, 4]
    assert [] in [Poisson(population=5, rate=0.1).cohort(generator) for _ in range(50)]


@pytest.mark.parametrize("sampler", [FixedSize(population=10**9, size=50), Poisson(population=10**9, rate=50 / 10**9)])
def test_the_cost_does_not_grow_with_the_population(sampler: Sampler) -> None:
    cohort = sampler.cohort(np.random.default_rng(7))  # 8 GB, if the population were listed
    assert 20 < len(cohort) < 90
    assert max(cohort) > 10**8


def test_the_same_generator_gives_the_same_cohort() -> None:
    sampler = FixedSize(population=100, size=10)
    assert sampler.cohort(np.random.default_rng(1)) == sampler.cohort(np.random.default_rng(1))


@pytest.mark.parametrize("size", [0, 11, -1])
def test_a_size_that_can_not_be_is_refused(size: int) -> None:
    with pytest.raises(ConfigError, match=f"per_round={size}"):
        FixedSize(population=10, size=size)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, float("nan")])
def test_a_rate_that_can_not_be_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="sampling rate"):
        Poisson(population=10, rate=rate)
