from __future__ import annotations

import math

import pytest

from tacit.accounting import profile
from tacit.accounting.composition import advanced_total, exact_share, two_step_share
from tacit.errors import ConfigError
from tests.accounting.common import vectors


def test_the_exact_share_spends_the_budget_and_no_more() -> None:
    for epsilon, count in [(0.1, 10), (1.0, 1_000), (10.0, 5), (50.0, 1)]:
        share = exact_share(epsilon=epsilon, delta=1e-3, count=count)
        spent = advanced_total(epsilon=share.epsilon, count=count, slack=share.delta)
        assert epsilon * (1 - 1e-9) <= spent <= epsilon * (1 + 1e-14)


def test_two_steps_are_close_at_one_and_not_at_ten() -> None:
    def used(epsilon: float) -> float:
        share = two_step_share(epsilon=epsilon, delta=1e-3, count=100)
        return advanced_total(epsilon=share.epsilon, count=100, slack=share.delta) / epsilon

    assert 0.998 < used(1.0) < 1.0
    assert used(10.0) < 0.95


def test_advanced_composition_wastes_eleven_times_the_noise() -> None:
    share = two_step_share(epsilon=1.0, delta=1e-3, count=1_000)
    sigma = math.sqrt(2 * math.log(1.25 / share.delta)) / share.epsilon
    exact = math.sqrt(1_000) / profile.largest_mu(epsilon=1.0, delta=1e-3)
    assert sigma == pytest.approx(912.8, abs=0.05)
    assert exact == pytest.approx(81.42, abs=0.005)


def test_the_vectors() -> None:
    for row in vectors("advanced_composition"):
        asked = {"epsilon": row["eps"], "delta": row["delta"], "count": row["k"]}
        two, exact = two_step_share(**asked), exact_share(**asked)
        assert two.epsilon == pytest.approx(row["eps2"], rel=1e-12)
        assert two.delta == pytest.approx(row["delta_u"], rel=1e-12)
        assert exact.epsilon == pytest.approx(row["eps_u_exact"], rel=1e-9)
        spent = advanced_total(epsilon=two.epsilon, count=row["k"], slack=two.delta)
        assert spent == pytest.approx(row["spent"], rel=1e-9)
        mu = profile.largest_mu(epsilon=row["eps"], delta=row["delta"])
        assert math.sqrt(row["k"]) / mu == pytest.approx(row["sigma_gdp"], rel=1e-9)
        true = profile.epsilon_at(delta=row["delta"], mu=math.sqrt(row["k"]) / row["sigma_two_step"])
        assert true == pytest.approx(row["true_eps"], rel=1e-6)


@pytest.mark.parametrize(
    ("epsilon", "delta", "count", "words"),
    [(0.0, 1e-3, 1, "epsilon above 0"), (1.0, 1.0, 1, "between 0 and 1"), (1.0, 1e-3, 0, "count of 1")],
)
def test_bad_input(epsilon: float, delta: float, count: int, words: str) -> None:
    for share in (two_step_share, exact_share):
        with pytest.raises(ConfigError, match=words):
            share(epsilon=epsilon, delta=delta, count=count)
