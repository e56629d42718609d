from __future__ import annotations

import numpy as np
import pytest

from tacit.errors import ConfigError
from tacit.randomness import Randomness


def _first(generator: np.random.Generator) -> list[int]:
    return [int(n) for n in generator.integers(0, 2**62, size=4)]


def test_a_stream_does_not_depend_on_what_was_drawn_before() -> None:
    one, other = Randomness.of(seed=3), Randomness.of(seed=3)
    other.stream("weights").normal(size=1000)
    other.secret("cohort", 1).normal(size=10)
    assert _first(one.stream("split")) == _first(other.stream("split"))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (("a",), ("b",)),
        (("a", 1), ("a", 2)),
        (("a", 1, 23), ("a", 12, 3)),
        (("a", 1), ("a", "1")),
        (("ab",), ("a", "b")),
    ],
)
def test_streams_of_different_purposes_differ(a: tuple[str | int, ...], b: tuple[str | int, ...]) -> None:
    randomness = Randomness.of(seed=3)
    assert _first(randomness.stream(*a)) != _first(randomness.stream(*b))
    assert randomness.number(*a) != randomness.number(*b)
    assert randomness.within(*a) != randomness.within(*b)


def test_seeds_differ_and_repeat() -> None:
    assert Randomness.of(seed=3) == Randomness.of(seed=3)
    assert Randomness.of(seed=3).key != Randomness.of(seed=30).key
    assert Randomness.of(seed=0).simulation


def test_secrets_repeat_with_a_seed_and_never_without() -> None:
    seeded, real = Randomness.of(seed=3), Randomness.of(seed=None)
    assert _first(seeded.secret("cohort", 1)) == _first(seeded.secret("cohort", 1))
    assert _first(seeded.secret("cohort", 1)) != _first(seeded.stream("cohort", 1))
    assert _first(real.secret("cohort", 1)) != _first(real.secret("cohort", 1))
    assert _first(real.stream("split")) == _first(real.stream("split"))


def test_a_secret_can_not_be_had_from_the_key_of_a_real_run() -> None:
    real = Randomness.of(seed=None)
    copy = Randomness(key=real.key, simulation=True)
    assert _first(real.secret("noise")) != _first(copy.secret("noise"))


def test_the_part_of_a_run_has_its_own_streams() -> None:
    randomness = Randomness.of(seed=3)
    part = randomness.within("client", 1, 2)
    assert part == randomness.within("client", 1, 2)
    assert part.simulation
    assert _first(part.stream("noise")) != _first(randomness.stream("noise"))
    assert not Randomness.of(seed=None).within("client").simulation


def test_numbers_have_63_bits() -> None:
    randomness = Randomness.of(seed=3)
    numbers = [randomness.number("n", i) for i in range(200)]
    assert all(0 <= n < 2**63 for n in numbers)
    assert max(numbers) > 2**62
    assert len(set(numbers)) == 200


def test_systems_randomness_differs_between_runs() -> None:
    assert Randomness.of(seed=None).key != Randomness.of(seed=None).key


def test_bad_keys_are_refused() -> None:
    with pytest.raises(ConfigError, match="seed=-1"):
        Randomness.of(seed=-1)
    with pytest.raises(ConfigError, match="16 bytes, got 3"):
        Randomness(key=b"abc", simulation=True)


@pytest.mark.parametrize("seed", [1, None])
def test_uniform_numbers_are_odd_multiples_of_a_power_of_two(seed: int | None) -> None:
    randomness = Randomness.of(seed=seed)
    numbers = randomness.uniform(40_000, "uniform")
    odd = numbers * 2.0**53
    assert (odd % 2.0 == 1.0).all()  # exact, and neither 0 nor 1
    assert numbers.min() > 0.0
    assert numbers.max() < 1.0
    counts = np.histogram(numbers, 20, (0.0, 1.0))[0]
    assert ((counts - 2000) ** 2).sum() / 2000 < 60.0  # chi-square with 19 degrees of freedom: one in 200,000
    assert (randomness.uniform(3, "a").tolist() == randomness.uniform(3, "a").tolist()) is (seed is not None)
    assert randomness.uniform(3, "a").tolist() != randomness.uniform(3, "b").tolist()
    assert randomness.uniform(0, "a").tolist() == []


@pytest.mark.parametrize("root", [Randomness.of(seed=4), Randomness.of(seed=None)], ids=["seeded", "system"])
@pytest.mark.parametrize("below", [1, 2, 7, 1_000, 2**61])
def test_integers_are_uniform(root: Randomness, below: int) -> None:
    drawn = root.integers(below, 20_000, "cards")
    assert drawn.dtype == np.int64
    assert len(drawn) == 20_000
    assert 0 <= drawn.min() <= drawn.max() < below
    assert abs(drawn.mean() / below - 0.5) < 0.02 + 0.5 * (below == 1) + 0.5 / below


def test_uniform_numbers_in_blocks_are_the_same_numbers() -> None:
    count = (1 << 20) + 5
    root = Randomness.of(seed=3)
    bits = root.stream("secret", "noise").integers(2**64, size=count, dtype=np.uint64)
    whole = ((bits >> np.uint64(11)) | np.uint64(1)).astype(np.float64) * 2.0**-53
    assert np.array_equal(root.uniform(count, "noise"), whole)
    assert [len(part) for part in root.uniforms(count, "noise")] == [1 << 20, 5]
    real = Randomness.of(seed=None)
    assert len(np.unique(np.concatenate(list(real.uniforms(count, "noise"))))) > count - 10


def test_integers_repeat_in_a_simulation_only() -> None:
    seeded, system = Randomness.of(seed=4), Randomness.of(seed=None)
    assert seeded.integers(100, 20, "a").tolist() == seeded.integers(100, 20, "a").tolist()
    assert seeded.integers(100, 20, "a").tolist() != seeded.integers(100, 20, "b").tolist()
    assert system.integers(100, 20, "a").tolist() != system.integers(100, 20, "a").tolist()
    for below in (0, -1, 2**62):
        with pytest.raises(ConfigError, match="below"):
            seeded.integers(below, 1)


@pytest.mark.parametrize("simulation", [True, False])
def test_chances(simulation: bool) -> None:
    root = Randomness.of(seed=4 if simulation else None)
    assert [root.chance(p, n) for p in (0.0, 1.0) for n in range(20)] == [False] * 20 + [True] * 20
    hits = sum(root.chance(0.3, number) for number in range(4_000))
    assert 1_050 < hits < 1_350
    assert not any(root.chance(1e-50, number) for number in range(100))
    for bad in (-0.1, 1.1, float("nan")):
        with pytest.raises(ConfigError, match="probability"):
            root.chance(bad)


def test_a_chance_that_is_tiny_is_not_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """1e-43 is far below what a uniform double can be, and a coin of 192 bits still has a side for it."""
    monkeypatch.setattr("tacit.randomness.secrets.randbits", lambda bits: int(1e-43 * 2**bits))
    assert Randomness.of(seed=None).chance(1.1e-43)
    assert not Randomness.of(seed=None).chance(0.9e-43)
