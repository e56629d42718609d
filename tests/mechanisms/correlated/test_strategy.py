from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from tacit.errors import ConfigError
from tacit.mechanisms.correlated.factorise import strategy_of, total_price
from tacit.mechanisms.correlated.strategy import Array, Banded, Correlation, Kind, Memory, Strategy, prices
from tacit.randomness import Randomness

CASES: list[tuple[Kind, int, int, int]] = [
    ("banded", 9, 3, 3),
    ("banded", 10, 4, 2),
    ("banded", 7, 3, 3),
    ("toeplitz", 9, 3, 3),
    ("toeplitz", 11, 2, 2),
    ("blt", 9, 3, 1),
    ("blt", 10, 4, 1),
    ("blt", 8, 1, 1),
]


def _made(kind: Kind, rounds: int, separation: int, bands: int) -> tuple[Correlation, Strategy]:
    correlation = Correlation(kind=kind, rounds=rounds, separation=separation, bands=bands, buffers=2)
    return correlation, strategy_of(correlation)


def _patterns(rounds: int, separation: int) -> Iterator[tuple[int, ...]]:
    """Yield every set of rounds in which a client may take part."""
    for count in range(1, -(-rounds // separation) + 1):
        for rounds_of in itertools.combinations(range(rounds), count):
            if all(later - earlier >= separation for earlier, later in itertools.pairwise(rounds_of)):
                yield rounds_of


def _largest(matrix: Array, pattern: tuple[int, ...]) -> float:
    """Return the largest squared norm of a client's part, over all unit vectors that it may send.

    The vectors may point anywhere, each in its own direction: that is at most the sum of all inner products'
    magnitudes, and equal to it where one choice of signs makes all of them positive.
    """
    part = matrix[:, pattern]
    return float(np.abs(part.T @ part).sum())


@pytest.mark.parametrize(("kind", "rounds", "separation", "bands"), CASES)
def test_no_pattern_of_participation_costs_more_than_is_charged(
    kind: Kind, rounds: int, separation: int, bands: int
) -> None:
    correlation, strategy = _made(kind, rounds, separation, bands)
    matrix, worst = strategy.matrix(), 0.0
    for pattern in _patterns(rounds, separation):
        charged = sum(strategy.price(number) for number in range(len(pattern)))
        cost = _largest(matrix, pattern)
        assert cost <= charged * (1 + 1e-9), pattern
        worst = max(worst, cost)
    assert total_price(correlation) == pytest.approx(
        sum(strategy.price(number) for number in range(correlation.participations))
    )
    if kind != "blt":
        assert worst == pytest.approx(total_price(correlation), rel=1e-6)  # exact, not only a bound


def test_a_blt_costs_exactly_what_the_client_of_the_first_round_does() -> None:
    correlation, strategy = _made("blt", 12, 3, 1)
    worst = max(_largest(strategy.matrix(), pattern) for pattern in _patterns(12, 3))
    assert worst == pytest.approx(_largest(strategy.matrix(), (0, 3, 6, 9)))
    assert worst <= total_price(correlation) <= worst * 1.05


@pytest.mark.parametrize(("kind", "rounds", "separation", "bands"), CASES)
def test_memory_that_is_lost_makes_no_pattern_dearer(kind: Kind, rounds: int, separation: int, bands: int) -> None:
    _, strategy = _made(kind, rounds, separation, bands)
    for lost in range(1, rounds):
        matrix = strategy.matrix()
        matrix[lost:, :lost] = 0.0
        for pattern in _patterns(rounds, separation):
            charged = sum(strategy.price(number) for number in range(len(pattern)))
            assert _largest(matrix, pattern) <= charged * (1 + 1e-9)


@pytest.mark.parametrize(("kind", "rounds", "separation", "bands"), CASES)
def test_a_try_that_was_released_before_a_crash_and_repeated_is_covered_by_its_second_charge(
    kind: Kind, rounds: int, separation: int, bands: int
) -> None:
    """It is one row more, about past rounds, which are forgotten then, and a vector of its own."""
    _, strategy = _made(kind, rounds, separation, bands)
    matrix = strategy.matrix()
    for again in range(rounds):
        grown = np.zeros((rounds + 1, rounds + 1))
        grown[:rounds, :rounds] = matrix
        grown[rounds, :again] = matrix[again, :again]
        grown[rounds, rounds] = matrix[again, again]
        kept = grown.copy()
        grown[again:rounds, :again] = 0.0
        for pattern in _patterns(rounds, separation):
            charged = sum(strategy.price(each) for each in range(len(pattern)))
            if again not in pattern:  # who was in earlier rounds is not charged for the repetition
                assert _largest(grown, pattern) <= charged * (1 + 1e-9), (again, pattern)
                continue
            charged += strategy.price(pattern.index(again))
            for matrix_of in (grown, kept):
                assert _largest(matrix_of, (*pattern, rounds)) <= charged * (1 + 1e-9), (again, pattern)


def test_a_repetition_with_the_same_memory_would_cost_more_than_clients_of_earlier_rounds_paid() -> None:
    """So a try is repeated only if nothing of it was released, or if what came before is forgotten."""
    _, strategy = _made("banded", 9, 3, 3)
    matrix = strategy.matrix()
    assert _largest(np.vstack([matrix, matrix[1]]), (0,)) > 1.05 * strategy.price(0)


@pytest.mark.parametrize(("kind", "rounds", "separation", "bands"), CASES)
def test_noise_solves_the_system_row_by_row(kind: Kind, rounds: int, separation: int, bands: int) -> None:
    _, strategy = _made(kind, rounds, separation, bands)
    draws = Randomness.of(seed=3).stream("draws").standard_normal((rounds, 5))
    made = _noise(strategy, draws)
    np.testing.assert_allclose(strategy.matrix() @ made, draws, atol=1e-12)
    np.testing.assert_allclose(made, np.linalg.solve(strategy.matrix(), draws), atol=1e-10)


def test_after_lost_memory_noise_is_that_of_a_matrix_without_the_past() -> None:
    for kind, bands in (("banded", 3), ("blt", 1)):
        _, strategy = _made(kind, 9, 3, bands)  # type: ignore[arg-type]
        draws = Randomness.of(seed=4).stream("draws").standard_normal((9, 3))
        matrix = strategy.matrix()
        matrix[4:, :4] = 0.0
        np.testing.assert_allclose(_noise(strategy, draws, lost=4), np.linalg.solve(matrix, draws), atol=1e-10)


def test_noise_has_the_covariance_that_is_charged_for() -> None:
    """The noise that is really made, over many runs: its covariance is the inverse of C^T C."""
    _, strategy = _made("banded", 6, 3, 3)
    many = 200_000
    made = _noise(strategy, Randomness.of(seed=5).stream("draws").standard_normal((6, many)))
    wanted = np.linalg.inv(strategy.matrix().T @ strategy.matrix())
    scale = np.sqrt(np.outer(np.diag(wanted), np.diag(wanted)))
    assert np.abs((made @ made.T / many - wanted) / scale).max() < 6 / np.sqrt(many)


def test_at_most_so_many_vectors_are_kept() -> None:
    for kind, bands, most in (("banded", 3, 2), ("toeplitz", 3, 2), ("blt", 1, 2)):
        _, strategy = _made(kind, 9, 3, bands)  # type: ignore[arg-type]
        memory: Memory = ()
        for place in range(9):
            _, memory = strategy.step(place, np.ones(4), memory)
            assert len(memory) <= most


def test_columns_that_are_too_long_are_refused() -> None:
    with pytest.raises(ConfigError, match="columns of norm 1"):
        Banded(rows=np.array([[1.0, 0.0], [1.0, 0.5]]))
    with pytest.raises(ConfigError, match="diagonal above 0"):
        Banded(rows=np.array([[0.0, 0.0], [0.5, 0.5]]))


def test_coefficients_that_rise_have_no_price() -> None:
    with pytest.raises(ConfigError, match="never rise"):
        prices(np.array([0.5, 0.6]), 1)


def test_more_bands_than_rounds_between_participations_are_refused() -> None:
    with pytest.raises(ConfigError, match="1 to 3 bands"):
        Correlation(kind="banded", rounds=9, separation=3, bands=4)


def _noise(strategy: Strategy, draws: Array, *, lost: int | None = None) -> Array:
    memory: Memory = ()
    made = []
    for place, fresh in enumerate(draws):
        memory = () if place == lost else memory
        noise, memory = strategy.step(place, fresh, memory)
        made.append(noise)
    return np.array(made)
