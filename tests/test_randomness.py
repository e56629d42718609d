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
