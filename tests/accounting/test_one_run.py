"""Bounds from canaries: they hold as often as they say, and see what is there."""

from __future__ import annotations

import math
from statistics import median

import numpy as np
import pytest

from tacit.accounting import profile
from tacit.accounting.events import GaussianEvent, SampledEvent
from tacit.accounting.evidence import Claimed
from tacit.accounting.ledger import Ledger
from tacit.accounting.one_run import epsilon_of, guessed, held_against, least_mu, too_many_right
from tacit.errors import ConfigError

DELTA = 1e-5


def claimed(epsilon: float) -> Claimed:
    event = GaussianEvent(noise_multiplier=1.0 / profile.largest_mu(epsilon, DELTA))
    return Claimed(ledger=Ledger().charged(event, round_number=1), delta=DELTA)


def seen(epsilon: float, canaries: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    inside = generator.random(canaries) < 0.5
    return generator.normal(size=canaries) + profile.largest_mu(epsilon, DELTA) * inside, inside


@pytest.mark.parametrize(("epsilon", "canaries", "share"), [(1.0, 1000, 0.5), (3.0, 1000, 0.75), (8.0, 100, 0.6)])
def test_the_bound_exceeds_the_truth_as_seldom_as_it_says_and_comes_close(
    epsilon: float, canaries: int, share: float
) -> None:
    found = []
    for seed in range(400):
        scores, inside = seen(epsilon, canaries, seed)
        found.append(epsilon_of(least_mu(scores[inside], scores[~inside]), DELTA))
    assert 3 <= sum(bound > epsilon for bound in found) <= 22  # 12 are expected: one that never errs is not the best
    assert median(found) > share * epsilon


def test_a_false_claim_is_refuted_and_a_true_one_is_not() -> None:
    scores, inside = seen(8.0, 1000, 1)
    assert not held_against(claimed(8.0), scores, inside, normal=True).refuted
    assert held_against(claimed(4.0), scores, inside, normal=True).refuted
    assert held_against(claimed(2.0), scores, inside, normal=False).refuted
    assert not held_against(claimed(8.0), scores, inside, normal=False).refuted


def test_bounds_with_fewer_assumptions_are_smaller() -> None:
    scores, inside = seen(8.0, 1000, 2)
    found = held_against(claimed(8.0), scores, inside, final=scores, normal=True)
    assert found.final is not None
    assert 1.0 < found.any_shape < found.final < found.bound < 8.0
    assert (found.canaries, found.inside) == (1000, int(inside.sum()))


def test_scores_that_tell_nothing_show_nothing() -> None:
    generator = np.random.default_rng(1)
    inside = generator.random(200) < 0.5
    assert held_against(claimed(1.0), -inside.astype(np.float64), inside, normal=True).bound == 0.0
    assert least_mu(np.zeros(50), np.zeros(50)) == 0.0
    assert least_mu(np.ones(50), np.zeros(50)) == math.inf


def test_guesses_may_hang_together_and_the_bound_holds() -> None:
    """Answers of epsilon 1 by randomised response, in blocks of twenty whose coins are one: many are right at once."""
    exceeded = 0
    for seed in range(100):
        generator = np.random.default_rng(seed)
        inside = generator.random(200) < 0.5
        told = generator.random(200) < math.e / (1.0 + math.e)
        scores = np.where(told, inside, ~inside) + 1e-3 * np.repeat(generator.normal(size=10), 20)
        exceeded += guessed(scores, inside, claimed(1.0)) > 1.0
    assert exceeded <= 5


def test_right_guesses_refute_by_how_many_they_are() -> None:
    def fair(share: float) -> float:
        return share

    assert too_many_right(fair, 100, 100, 100)
    assert not too_many_right(fair, 50, 100, 100)
    assert not too_many_right(fair, 0, 100, 100)
    least = next(right for right in range(101) if too_many_right(fair, right, 100, 100))
    assert 59 <= least <= 66  # of fair coins 59 or more come once in 20 times


def test_one_that_is_drawn_for_rounds_is_counted_by_a_mark() -> None:
    event = SampledEvent(event=GaussianEvent(noise_multiplier=0.5), rate=0.5)
    sampled = Claimed(ledger=Ledger().charged(event, round_number=1), delta=DELTA)
    generator = np.random.default_rng(1)
    inside = generator.random(1000) < 0.5
    scores = generator.normal(size=1000) * 0.5 + (inside & (generator.random(1000) < 0.5))
    found = held_against(sampled, scores, inside, normal=False)
    assert 0.0 < found.bound <= found.epsilon
    assert not found.refuted
    assert found.bound > 0.9 * found.any_shape  # which is of less confidence


def test_too_few_canaries_are_refused() -> None:
    with pytest.raises(ConfigError, match="more canaries"):
        held_against(claimed(1.0), np.zeros(30), np.arange(30) < 5, normal=True)
    with pytest.raises(ConfigError, match="finite"):
        least_mu(np.full(20, math.nan), np.zeros(20))
