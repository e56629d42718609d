from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting.profile import composed_mu, delta_at, epsilon_at, largest_mu, log_delta_at, std
from tacit.errors import ConfigError

EPSILONS = [1e-6, 1e-4, 1e-3, 0.01, 0.1, 0.5, 1.0, 3.0, 10.0, 40.0, 100.0, 300.0, 1e3]
DELTAS = [1e-100, 1e-60, 1e-30, 1e-15, 1e-10, 1e-7, 1e-6, 1e-5, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.6, 0.75, 0.9]
GRID = [(epsilon, delta) for epsilon in EPSILONS for delta in DELTAS]

epsilons = st.floats(-6.0, 3.0).map(lambda exponent: 10.0**exponent)
deltas = st.one_of(st.floats(-100.0, -1.0).map(lambda exponent: 10.0**exponent), st.floats(0.1, 0.9))
mus = st.floats(-6.0, 2.0).map(lambda exponent: 10.0**exponent)
factors = st.floats(1.001, 10.0)
unhurried = settings(deadline=None)


class Precise:
    """The definition, term by term, in 50 digits beyond the 100 that the terms can cancel."""

    def __init__(self) -> None:
        self.mp = pytest.importorskip("mpmath").mp.clone()
        self.mp.dps = 150

    def delta(self, epsilon: Any, mu: Any) -> Any:
        mp = self.mp
        epsilon, mu = mp.mpf(epsilon), mp.mpf(mu)
        u, t = (epsilon / mu - mu / 2) / mp.sqrt(2), (epsilon / mu + mu / 2) / mp.sqrt(2)
        return (mp.erfc(u) - mp.exp(epsilon) * mp.erfc(t)) / 2


@pytest.fixture(scope="module")
def precise() -> Precise:
    return Precise()


@pytest.mark.parametrize("epsilon", [0.0, *EPSILONS])
def test_delta_agrees_with_50_digits(precise: Precise, epsilon: float) -> None:
    for delta in DELTAS:
        for factor in (0.7, 1.0, 1.5):
            mu = factor * largest_mu(epsilon, delta)
            exact = precise.delta(epsilon, mu)
            if exact > 1e-300:
                assert abs(delta_at(epsilon, mu) / exact - 1) < 1e-11
            assert abs(log_delta_at(epsilon, mu) / precise.mp.log(exact) - 1) < 1e-12


@pytest.mark.parametrize("epsilon", [0.0, *EPSILONS])
def test_std_is_the_least_private_one_to_a_part_in_10_to_the_12_and_on_the_safe_side(
    precise: Precise, epsilon: float
) -> None:
    for delta in DELTAS:
        sigma = std(epsilon, delta)
        assert delta_at(epsilon, 1 / sigma) <= delta
        mu = 1 / precise.mp.mpf(sigma)
        assert precise.delta(epsilon, mu) <= delta < precise.delta(epsilon, mu * (1 + precise.mp.mpf("1e-12")))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_epsilon_is_the_smallest_and_on_the_safe_side(precise: Precise, epsilon: float) -> None:
    for delta in DELTAS:
        mu = 1.01 * largest_mu(epsilon, delta)
        found = epsilon_at(delta, mu)
        assert delta_at(found, mu) <= delta
        # Where delta hardly depends on epsilon, the last digit of delta moves epsilon by more than a part in 1e12.
        assert precise.delta(found, mu) <= delta < precise.delta(found * (1 - 1e-12) - 1e-13, mu)


def test_the_grid_is_within_the_asked_relative_error_by_direct_roots(precise: Precise) -> None:
    mp = precise.mp
    for epsilon, delta in GRID[::7]:
        mu = largest_mu(epsilon, delta)
        target = mp.log(mp.mpf(delta))
        root = mp.findroot(
            lambda x, epsilon=epsilon, target=target: mp.log(precise.delta(epsilon, mp.exp(x))) - target,
            (mp.log(0.99 * mu), mp.log(1.01 * mu)),
            solver="anderson",
            tol=1e-40,
        )
        assert abs(mu / mp.exp(root) - 1) < 1e-9


def test_extremes_neither_overflow_nor_lose_their_meaning(precise: Precise) -> None:
    assert delta_at(1e3, 1e-300) == 0.0
    assert log_delta_at(1e3, 1e-300) == -math.inf
    assert delta_at(0.0, 1e6) == 1.0
    for epsilon, mu in [(2.0, 1e-3), (0.1, 1e-6), (1e3, 0.3), (1e-6, 1e-12), (1.0, 1e-12), (70.0, 1.0)]:
        exact = precise.mp.log(precise.delta(epsilon, mu))
        assert abs(log_delta_at(epsilon, mu) / exact - 1) < 1e-13
    assert log_delta_at(0.25, 1e-109) < -1e217
    assert epsilon_at(1e-5, 1e60) == pytest.approx(5e119, rel=1e-12)
    assert epsilon_at(1e-5, 1.00001e7) == pytest.approx(epsilon_at(1e-5, 0.99999e7), rel=5e-5)
    for delta in (1e-300, 1 - 1e-9):
        assert delta_at(1.0, largest_mu(1.0, delta)) == pytest.approx(delta, rel=1e-9)


def test_loading_it_costs_no_numerical_package() -> None:
    code = "import sys, tacit.mechanisms.calibration; print(sorted({'numpy', 'scipy', 'torch'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_known_profile_values() -> None:
    assert delta_at(1.0, 1.0) == pytest.approx(0.12693673750664383, rel=1e-13)
    assert delta_at(1e3, 1 / 0.03) == pytest.approx(5.27949771671332e-41, rel=1e-11)
    assert log_delta_at(2.0, 1 / 20) == pytest.approx(-810.2946127412475, rel=1e-14)
    assert epsilon_at(1e-5, 1 / 0.5) == pytest.approx(9.997256146434301, rel=1e-12)
    assert epsilon_at(1e-3, 1 / 0.05) == pytest.approx(260.8753317531011, rel=1e-12)
    assert epsilon_at(0.5, 0.1) == 0.0


def test_at_epsilon_zero_the_closed_form_holds() -> None:
    for delta in DELTAS:
        assert math.erf(1 / (2 * math.sqrt(2) * std(0.0, delta))) == pytest.approx(delta, rel=1e-12)
    assert epsilon_at(math.erf(0.25 / math.sqrt(2)) * (1 + 1e-12), 0.5) == 0.0


def test_profile_vectors(vectors: dict[str, Any]) -> None:
    for row in vectors["delta_profile"]:
        mu = row["sens"] / row["sigma"]
        assert delta_at(row["eps"], mu) == pytest.approx(row["delta"], rel=1e-11)
        assert log_delta_at(row["eps"], mu) == pytest.approx(row["log_delta"], rel=1e-12)
    for row in vectors["eps_profile"]:
        assert epsilon_at(row["delta"], 1 / row["sigma"]) == pytest.approx(row["eps"], rel=1e-12)
    for row in vectors["nbafl"]["true"]:
        mu = row["eps"] / row["c"]
        assert delta_at(row["eps"], mu) == pytest.approx(row["true_delta"], rel=1e-11)
        assert epsilon_at(row["delta_nominal"], mu) == pytest.approx(row["true_eps_at_nominal"], rel=1e-11)
        assert epsilon_at(1e-5, mu) == pytest.approx(row["true_eps_at_1e5"], rel=1e-11)


def test_the_true_epsilons_behind_the_labs_table(vectors: dict[str, Any]) -> None:
    for row in vectors["seed_table"]:
        multiplier, clip = row["sigma"], row["C"]
        for name, mu in [
            ("exact_sigmaC", 1 / multiplier),
            ("exact_std_sigma_abs", clip / multiplier),
            ("exact_replace", 2 / multiplier),
            ("exact_std_is_var", 1 / (multiplier * multiplier * clip)),
            ("six_rounds_sigmaC", math.sqrt(6) / multiplier),
            ("six_rounds_std_sigma_abs", math.sqrt(6) * clip / multiplier),
        ]:
            assert epsilon_at(1e-3, mu) == pytest.approx(row[name], rel=1e-11), name


def test_rounds_compose_to_the_noise_of_one_divided_by_their_root() -> None:
    assert composed_mu([0.1] * 100) == pytest.approx(1.0, rel=1e-15)
    assert epsilon_at(1e-5, composed_mu([0.1] * 100)) == pytest.approx(4.377178096, rel=1e-9)
    assert std(1.0, 1e-5, math.sqrt(100)) == pytest.approx(37.30631634815941, rel=1e-12)


def test_composition_is_exact_against_the_integral_over_both_releases() -> None:
    first, second, epsilon = 0.8, 1.1, 0.7
    axis, step = np.linspace(-9.0, 10.0, 3001, retstep=True)
    density = np.exp(-0.5 * axis**2) / math.sqrt(2 * math.pi)
    shifted = [np.exp(-0.5 * (axis - mu) ** 2) / math.sqrt(2 * math.pi) for mu in (first, second)]
    excess = np.outer(*shifted) - math.exp(epsilon) * np.outer(density, density)
    integral = float(np.maximum(excess, 0.0).sum()) * step * step
    assert delta_at(epsilon, composed_mu([first, second])) == pytest.approx(integral, rel=1e-5)


@unhurried
@given(epsilon=epsilons, mu=mus, factor=factors)
def test_delta_falls_with_epsilon_and_grows_with_mu(epsilon: float, mu: float, factor: float) -> None:
    here = log_delta_at(epsilon, mu)
    assert log_delta_at(epsilon * factor, mu) <= here <= log_delta_at(epsilon, mu * factor) <= 0.0


@unhurried
@given(epsilon=epsilons, delta=deltas, factor=factors)
def test_std_falls_with_epsilon_and_delta_and_is_linear_in_the_sensitivity(
    epsilon: float, delta: float, factor: float
) -> None:
    here = std(epsilon, delta)
    assert std(epsilon * factor, delta) <= here <= std(epsilon, delta / factor)
    assert std(epsilon, delta, factor) == pytest.approx(factor * here, rel=1e-14)


@unhurried
@given(epsilon=epsilons, delta=deltas)
def test_calibrated_noise_is_private_and_its_epsilon_is_the_asked_one(epsilon: float, delta: float) -> None:
    mu = largest_mu(epsilon, delta)
    assert delta_at(epsilon, mu) <= delta
    assert epsilon_at(delta, mu) == pytest.approx(epsilon, rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 1.5, math.nan, math.inf])
def test_a_bad_delta_is_refused(delta: float) -> None:
    with pytest.raises(ConfigError, match="0 < delta < 1"):
        std(1.0, delta)
    with pytest.raises(ConfigError, match="0 < delta < 1"):
        epsilon_at(delta, 1.0)


@pytest.mark.parametrize("epsilon", [-1e-9, -math.inf, math.nan, math.inf])
def test_a_bad_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="finite epsilon >= 0"):
        std(epsilon, 0.1)
    with pytest.raises(ConfigError, match="finite epsilon >= 0"):
        delta_at(epsilon, 1.0)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_bad_sensitivity_or_mu_is_refused(bad: float) -> None:
    with pytest.raises(ConfigError, match="sensitivity > 0"):
        std(1.0, 1e-5, bad)
    with pytest.raises(ConfigError, match="mu > 0"):
        delta_at(1.0, bad)
    with pytest.raises(ConfigError, match="mu > 0"):
        epsilon_at(0.1, bad)
    with pytest.raises(ConfigError, match="mu > 0"):
        composed_mu([1.0, bad])
    with pytest.raises(ConfigError, match="at least one"):
        composed_mu([])


@pytest.mark.parametrize("epsilon", [1e6, 1e12, 1e38, 1e300])
def test_an_epsilon_beyond_all_reason_has_a_mu_that_is_private(epsilon: float) -> None:
    mu = largest_mu(epsilon, 1e-5)
    assert 0.0 < mu <= math.sqrt(2.0 * epsilon)
    assert delta_at(epsilon, mu) <= 1e-5
