from __future__ import annotations

import math

import mpmath
import pytest

from tacit.accounting import profile
from tests.accounting.common import vectors


def _exact_log_delta(epsilon: float, mu: float) -> float:
    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return float(mpmath.log(mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)))


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.1, 1.0, 3.0, 30.0])
@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 1e-6, 1e-3, 0.5, 2.0, 20.0])
def test_the_profile_agrees_with_sixty_digits(epsilon: float, mu: float) -> None:
    if epsilon / mu > 60.0:
        return  # below every delta a float holds
    assert profile.log_delta_at(epsilon=epsilon, mu=mu) == pytest.approx(_exact_log_delta(epsilon, mu), rel=1e-9)


@pytest.mark.parametrize("delta", [1e-100, 1e-12, 1e-5, 0.3])
@pytest.mark.parametrize("mu", [1e-3, 0.2, 1.0, 10.0, 100.0])
def test_epsilon_is_the_smallest_that_holds(mu: float, delta: float) -> None:
    epsilon = profile.epsilon_at(delta=delta, mu=mu)
    assert profile.delta_at(epsilon=epsilon, mu=mu) <= delta
    if epsilon > 0.0:
        assert profile.log_delta_at(epsilon=epsilon * (1 - 1e-9), mu=mu) > math.log(delta)


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-6, 1e-5), (0.5, 1e-100), (1.0, 1e-5), (10.0, 1e-3), (1e3, 0.5)])
def test_noise_and_epsilon_are_inverse(epsilon: float, delta: float) -> None:
    mu = profile.largest_mu(epsilon=epsilon, delta=delta)
    assert profile.log_delta_at(epsilon=epsilon, mu=mu) <= math.log(delta)
    assert profile.epsilon_at(delta=delta, mu=mu) == pytest.approx(epsilon, rel=1e-9)
    assert profile.epsilon_at(delta=delta, mu=mu * (1 + 1e-6)) > epsilon


@pytest.mark.parametrize(
    ("epsilon", "sigma"), [(0.5, 7.031826676), (1.0, 3.730631635), (2.0, 1.993812446), (10.0, 0.4998886197)]
)
def test_known_sigmas(epsilon: float, sigma: float) -> None:
    assert 1.0 / profile.largest_mu(epsilon=epsilon, delta=1e-5) == pytest.approx(sigma, rel=1e-9)


def test_the_ends() -> None:
    assert profile.epsilon_at(delta=1e-5, mu=1e200) == math.inf
    assert profile.epsilon_at(delta=0.9, mu=0.1) == 0.0
    assert profile.delta_at(epsilon=1.0, mu=1e200) == 1.0


def test_the_vectors() -> None:
    for row in vectors("accounting"):
        if row["q"] == 1.0:
            mu = math.sqrt(row["T"]) / row["sigma"]
            assert profile.epsilon_at(delta=row["delta"], mu=mu) == pytest.approx(row["exact"], rel=1e-12)
