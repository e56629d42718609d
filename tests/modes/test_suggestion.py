from __future__ import annotations

import pytest

from tacit.errors import ConfigError
from tacit.modes.suggestion import composed, suggest


@pytest.mark.parametrize(("epsilon", "participations", "shuffled"), [(8.0, 20, None), (2.0, 100, None), (2.0, 50, 500)])
def test_a_suggestion_keeps_its_budget_and_uses_it(epsilon: float, participations: int, shuffled: int | None) -> None:
    found = suggest(dimensions=21_840, epsilon=epsilon, delta=1e-5, participations=participations, shuffled=shuffled)
    again = composed(found.sign_eps, 0.0, participations=participations, delta=1e-5, shuffled=shuffled)
    assert again.epsilon == found.epsilon
    assert 0.95 * epsilon < found.epsilon <= epsilon
    assert 0 < found.sign_k <= 0.25
    assert found.output_dimensions >= 1
    assert f"signds.sign_k={found.sign_k:g}" in found.words()
    assert "signds.step=fixed" in found.words()  # whose report has no bit to pay for


def test_a_shuffler_buys_more_than_it_costs_in_trust() -> None:
    alone = suggest(dimensions=21_840, epsilon=2.0, delta=1e-5, participations=50)
    mixed = suggest(dimensions=21_840, epsilon=2.0, delta=1e-5, participations=50, shuffled=500)
    assert mixed.sign_eps > 3 * alone.sign_eps


def test_the_largest_report_there_is() -> None:
    found = suggest(dimensions=21_840, epsilon=1e6, delta=1e-5, participations=1)
    assert 99.0 < found.sign_eps <= 100.0


@pytest.mark.parametrize(("epsilon", "participations"), [(0.0, 1), (-1.0, 1), (1e-9, 10), (1.0, 0)])
def test_mistakes(epsilon: float, participations: int) -> None:
    with pytest.raises(ConfigError):
        suggest(dimensions=1_000, epsilon=epsilon, delta=1e-5, participations=participations)
