from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tacit.errors import ConfigError
from tacit.federated.plan import Everyone, FixedSize, Name, Poisson, Sampler, Separated, ServerOptimizer
from tacit.vectors import Vector


def test_everyone_is_everyone() -> None:
    sampler = Everyone(population=4)
    assert sampler.cohort(1, np.random.default_rng(1)) == [0, 1, 2, 3]
    assert sampler.expected == 4.0


def test_every_set_of_a_fixed_size_is_equally_likely() -> None:
    sampler = FixedSize(population=6, size=3)
    generator = np.random.default_rng(5)
    sets = dict.fromkeys(itertools.combinations(range(6), 3), 0)
    for _ in range(4_000):
        sets[tuple(sampler.cohort(1, generator))] += 1  # type: ignore[index]
    assert stats.chisquare(list(sets.values())).pvalue > 0.01


def test_every_client_is_equally_likely_in_a_small_cohort_of_a_large_population() -> None:
    sampler = FixedSize(population=20_000, size=100)  # NumPy draws these in another way
    generator = np.random.default_rng(6)
    drawn = np.concatenate([sampler.cohort(1, generator) for _ in range(300)])
    tenths = np.histogram(drawn, bins=10, range=(0, 20_000))[0]
    assert stats.chisquare(tenths).pvalue > 0.01


@pytest.mark.parametrize("size", [1, 2, 9, 10])
def test_a_fixed_cohort_is_sorted_and_without_repeats(size: int) -> None:
    cohort = FixedSize(population=10, size=size).cohort(1, np.random.default_rng(2))
    assert len(cohort) == size
    assert cohort == sorted(set(cohort))
    assert all(type(client) is int for client in cohort)


def test_poisson_cohorts_have_the_binomials_mean_and_variance() -> None:
    sampler = Poisson(population=50, rate=0.2)
    generator = np.random.default_rng(3)
    cohorts = [sampler.cohort(1, generator) for _ in range(3_000)]
    sizes = np.array([len(cohort) for cohort in cohorts])
    assert sampler.expected == pytest.approx(10.0)
    assert sizes.mean() == pytest.approx(10.0, abs=4 * np.sqrt(8 / 3_000))
    assert sizes.var() == pytest.approx(8.0, rel=0.12)
    members = np.bincount(np.concatenate(cohorts), minlength=50)
    assert stats.chisquare(members).pvalue > 0.01


def test_poisson_clients_are_independent_of_each_other() -> None:
    generator = np.random.default_rng(4)
    sampler = Poisson(population=5, rate=0.5)
    both = sum({0, 1} <= set(sampler.cohort(1, generator)) for _ in range(4_000))
    assert both == pytest.approx(1_000, abs=4 * np.sqrt(4_000 * 0.25 * 0.75))


def test_poisson_at_rate_one_is_everyone_and_a_small_one_may_be_empty() -> None:
    generator = np.random.default_rng(4)
    assert Poisson(population=5, rate=1.0).cohort(1, generator) == [0, 1, 2, 3, 4]
    assert [] in [Poisson(population=5, rate=0.1).cohort(1, generator) for _ in range(50)]


@pytest.mark.parametrize("sampler", [FixedSize(population=10**9, size=50), Poisson(population=10**9, rate=50 / 10**9)])
def test_the_cost_does_not_grow_with_the_population(sampler: Sampler) -> None:
    cohort = sampler.cohort(1, np.random.default_rng(7))  # 8 GB, if the population were listed
    assert 20 < len(cohort) < 90
    assert max(cohort) > 10**8


def test_the_same_generator_gives_the_same_cohort() -> None:
    sampler = FixedSize(population=100, size=10)
    assert sampler.cohort(1, np.random.default_rng(1)) == sampler.cohort(1, np.random.default_rng(1))


@pytest.mark.parametrize("size", [0, 11, -1])
def test_a_size_that_can_not_be_is_refused(size: int) -> None:
    with pytest.raises(ConfigError, match=f"per_round={size}"):
        FixedSize(population=10, size=size)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, float("nan")])
def test_a_rate_that_can_not_be_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="sampling rate"):
        Poisson(population=10, rate=rate)


Floats = NDArray[np.float64]
LR, BETA, BETA2, TAU = 0.3, 0.8, 0.95, 0.01


def _fedavg(model: Floats, updates: list[Vector]) -> Floats:
    for update in updates:
        model = model + LR * update
    return model


def _fedavgm(model: Floats, updates: list[Vector]) -> Floats:
    velocity = np.zeros_like(model)
    for update in updates:
        velocity = BETA * velocity + update
        model = model + LR * velocity
    return model


def _adaptive(model: Floats, updates: list[Vector], *, yogi: bool) -> Floats:
    """Algorithm 2 of Reddi et al. 2021, coordinate by coordinate."""
    model = model.copy()
    for i in range(len(model)):
        m, v = 0.0, TAU**2
        for update in updates:
            d = float(update[i])
            m = BETA * m + (1 - BETA) * d
            if yogi:
                v = v - (1 - BETA2) * d * d * (1 if v > d * d else -1 if v < d * d else 0)
            else:
                v = BETA2 * v + (1 - BETA2) * d * d
            model[i] += LR * m / (v**0.5 + TAU)
    return model


def _reference(name: Name, model: Floats, updates: list[Vector]) -> Floats:
    match name:
        case "fedavg":
            return _fedavg(model, updates)
        case "fedavgm":
            return _fedavgm(model, updates)
        case _:
            return _adaptive(model, updates, yogi=name == "fedyogi")


@pytest.mark.parametrize("name", ["fedavg", "fedavgm", "fedadam", "fedyogi"])
def test_steps_follow_the_papers(name: Name) -> None:
    generator = np.random.default_rng(2)
    model = generator.normal(size=8).astype(np.float32)
    updates = [(0.1 * generator.normal(size=8)).astype(np.float32) for _ in range(5)]
    optimizer = ServerOptimizer(name=name, lr=LR, momentum=BETA, beta2=BETA2, tau=TAU)
    moved, state = model, optimizer.start(8)
    for update in updates:
        moved, state = optimizer.step(moved, update, state)
        assert moved.dtype == np.float32
        assert all(vector.dtype == np.float32 for vector in state.values())
    np.testing.assert_allclose(moved, _reference(name, model.astype(np.float64), updates), rtol=1e-4, atol=1e-6)
    others: list[Name] = ["fedavg", "fedavgm", "fedadam", "fedyogi"]
    for other in others:  # the references tell the optimisers apart
        if other != name:
            assert not np.allclose(moved, _reference(other, model.astype(np.float64), updates), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["fedavg", "fedavgm", "fedadam", "fedyogi"])
def test_a_step_is_pure(name: Name) -> None:
    optimizer = ServerOptimizer(name=name)
    model, update, state = np.ones(3, np.float32), np.full(3, 0.5, np.float32), optimizer.start(3)
    before = {key: vector.copy() for key, vector in state.items()}
    first, _ = optimizer.step(model, update, state)
    second, _ = optimizer.step(model, update, state)
    assert first.tobytes() == second.tobytes()
    assert (model.tolist(), update.tolist()) == ([1.0] * 3, [0.5] * 3)
    assert all((state[key] == vector).all() for key, vector in before.items())


def test_fedavg_at_rate_one_is_the_mean_of_the_clients_models() -> None:
    model, update = np.array([1.0, 2.0], np.float32), np.array([0.25, -0.5], np.float32)
    assert ServerOptimizer().step(model, update, {})[0].tolist() == [1.25, 1.5]


@pytest.mark.parametrize(("population", "separation"), [(10, 5), (11, 4), (3, 3), (4, 1)])
def test_a_schedule_keeps_every_clients_rounds_apart_and_leaves_out_nobody(population: int, separation: int) -> None:
    schedule = Separated(population=population, separation=separation)
    rounds: dict[int, list[int]] = {client: [] for client in range(population)}
    for number in range(1, 3 * separation + 1):
        for client in schedule.cohort(number, np.random.default_rng(number)):
            rounds[client].append(number)
    assert all(len(own) == 3 and np.diff(own).tolist() == [separation] * 2 for own in rounds.values())
    assert schedule.expected == population / separation


def test_a_schedule_with_empty_rounds_is_refused() -> None:
    with pytest.raises(ConfigError, match="rounds that nobody is in"):
        Separated(population=3, separation=4)
