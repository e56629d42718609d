from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tacit.accounting.events import GaussianEvent
from tacit.errors import ConfigError, WireError
from tacit.grid import Grid
from tacit.mechanisms.correlated.factorise import strategy_of
from tacit.mechanisms.correlated.mechanism import CorrelatedMechanism
from tacit.mechanisms.correlated.strategy import Correlation, Kind
from tacit.mechanisms.gaussian import AdaptiveClip, GaussianMechanism
from tacit.mechanisms.mechanism import Work
from tacit.randomness import Randomness

ROUNDS, SIZE = 6, 40
GAUSSIAN = GaussianMechanism(clip_bound=0.5, noise_multiplier=2.0, expected_clients=4)
SEEDED = Randomness.of(seed=9)


def _mechanism(kind: Kind = "banded") -> CorrelatedMechanism:
    bands = 1 if kind == "blt" else 3
    correlation = Correlation(kind=kind, rounds=ROUNDS, separation=3, bands=bands, buffers=2)
    return CorrelatedMechanism(gaussian=GAUSSIAN, correlation=correlation)


def _released(mechanism: CorrelatedMechanism, randomness: Randomness, rounds: range) -> tuple[np.ndarray, ...]:
    """Release sums of nothing, so that what is released is the noise."""
    updates = []
    for number in rounds:
        release = mechanism.on_server(np.zeros(SIZE), randomness.within("server", number, 0), clients=0)
        updates.append(release.update)
        assert isinstance(release.mechanism, CorrelatedMechanism)
        mechanism = release.mechanism
    return tuple(updates)


@pytest.mark.parametrize("kind", ["banded", "toeplitz", "blt"])
def test_what_is_released_has_the_noise_of_the_inverse_matrix(kind: Kind) -> None:
    mechanism = _mechanism(kind)
    made = np.array(_released(mechanism, SEEDED, range(1, ROUNDS + 1)), np.float64)
    draws = np.array([SEEDED.within("server", number, 0).normal(SIZE, "updates") for number in range(1, ROUNDS + 1)])
    noise = np.linalg.solve(strategy_of(mechanism.correlation).matrix(), draws)
    std = GAUSSIAN.noise_multiplier * GAUSSIAN.clip_bound
    rounded = Grid.of(bound=0.5, size=SIZE).rounded(noise * std) / GAUSSIAN.expected_clients
    np.testing.assert_allclose(made, rounded, atol=1e-5)


def test_noise_comes_on_top_of_the_sum() -> None:
    total = np.linspace(-1.0, 1.0, SIZE)
    with_sum = _mechanism().on_server(total, SEEDED, clients=4).update
    without = _mechanism().on_server(np.zeros(SIZE), SEEDED, clients=4).update
    np.testing.assert_allclose(with_sum - without, total / 4, atol=1e-5)


@pytest.mark.parametrize("kind", ["banded", "toeplitz", "blt"])
def test_a_seeded_run_that_goes_on_has_the_same_noise(kind: Kind) -> None:
    whole = _released(_mechanism(kind), SEEDED, range(1, ROUNDS + 1))
    halfway = _mechanism(kind).with_state(_after(3, kind).public_state())
    own = [SEEDED.within("server", number, 0) for number in (1, 2, 3)]
    rest = _released(halfway.remembering(own, SIZE), SEEDED, range(4, ROUNDS + 1))
    assert all(np.array_equal(a, b) for a, b in zip(whole[3:], rest, strict=True))


def test_what_travels_and_what_is_kept_tells_nothing_of_past_noise() -> None:
    one, other = _after(3), _after(3, randomness=Randomness.of(seed=10))
    assert one.memory
    assert not np.array_equal(one.memory[0], other.memory[0])
    assert one.public_state() == other.public_state()
    assert one.with_state(one.public_state()).memory == ()
    assert "memory" not in repr(one)


def test_a_run_that_goes_on_without_its_memory_draws_anew_and_is_charged_the_same() -> None:
    lost = _mechanism().with_state(_after(3).public_state())
    assert lost.event == _after(3).event
    real = Randomness.of(seed=None)
    first, second = (lost.on_server(np.zeros(SIZE), real, clients=0).update for _ in range(2))
    assert not np.array_equal(first, second)


def test_each_participation_costs_one_release() -> None:
    assert _mechanism().event == _mechanism("toeplitz").event == GaussianEvent(noise_multiplier=2.0)
    blt = [replace(_mechanism("blt"), released=released).event for released in range(ROUNDS)]
    assert blt[0] == blt[2] != blt[3] == blt[5]  # the second participation overlaps with the first
    assert isinstance(blt[3], GaussianEvent)
    assert blt[3].noise_multiplier < 2.0


def test_more_rounds_than_planned_are_refused() -> None:
    done = replace(_mechanism(), released=ROUNDS)
    with pytest.raises(ConfigError, match="made for 6 rounds"):
        done.on_server(np.zeros(SIZE), SEEDED, clients=0)
    with pytest.raises(ConfigError, match="made for 6 rounds"):
        _ = done.event


def test_what_is_not_proved_beside_it_is_refused() -> None:
    correlation = _mechanism().correlation
    adaptive = replace(GAUSSIAN, adaptive=AdaptiveClip(bit_noise=2.0))
    for gaussian, words in ((adaptive, "adaptive"), (replace(GAUSSIAN, denoise="james-stein"), "denoise")):
        with pytest.raises(ConfigError, match=words):
            CorrelatedMechanism(gaussian=gaussian, correlation=correlation)


def test_clients_clip_and_the_server_clips_who_does_not() -> None:
    mechanism = _mechanism()
    work = Work(update=np.full(SIZE, 9.0, np.float32), examples=1, loss=0.0)
    assert np.linalg.norm(mechanism.on_client(work, SEEDED)) <= 0.5
    assert np.linalg.norm(mechanism.accepted(mechanism.public_state(), work.update)) <= 0.5 * (1 + 1e-6)
    with pytest.raises(WireError, match="12 bytes"):
        mechanism.with_state(b"123")


def test_without_noise_nothing_is_drawn_and_epsilon_is_infinite() -> None:
    none = replace(_mechanism(), gaussian=replace(GAUSSIAN, noise_multiplier=0.0))
    assert none.event == GaussianEvent(noise_multiplier=0.0)
    assert not none.on_server(np.zeros(SIZE), SEEDED, clients=0).update.any()


def _after(rounds: int, kind: Kind = "banded", randomness: Randomness = SEEDED) -> CorrelatedMechanism:
    mechanism = _mechanism(kind)
    for number in range(1, rounds + 1):
        release = mechanism.on_server(np.zeros(SIZE), randomness.within("server", number, 0), clients=0)
        assert isinstance(release.mechanism, CorrelatedMechanism)
        mechanism = release.mechanism
    return mechanism
