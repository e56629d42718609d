from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import ConfigError
from tacit.mechanisms.randomized_response import RandomizedResponse
from tacit.randomness import Randomness


def test_known_probabilities() -> None:
    assert RandomizedResponse(epsilon=math.log(3)).keep == pytest.approx(0.75, rel=1e-15)
    assert RandomizedResponse(epsilon=5.0).keep == pytest.approx(0.9933071490757153, rel=1e-15)


@given(epsilon=st.floats(1e-6, 700.0))
def test_the_likelihood_ratio_is_e_to_the_epsilon(epsilon: float) -> None:
    response = RandomizedResponse(epsilon=epsilon)
    assert math.log(response.keep) - math.log(response.flip) == pytest.approx(epsilon, rel=1e-9)


@given(keep=st.floats(0.501, 0.999999))
def test_a_wanted_probability_gives_its_epsilon(keep: float) -> None:
    assert RandomizedResponse.keeping(keep).keep == pytest.approx(keep, rel=1e-12)


def test_bits_are_kept_as_often_as_promised_and_counted_without_bias() -> None:
    response = RandomizedResponse(epsilon=1.0)
    bits = np.arange(200_000) % 4 == 0
    reported = response.perturb(bits, Randomness.of(seed=5).secret("response"))
    spread = math.sqrt(response.keep * response.flip / bits.size)
    assert float((reported == bits).mean()) == pytest.approx(response.keep, abs=4 * spread)
    found = response.count(int(reported.sum()), reports=bits.size)
    assert found == pytest.approx(50_000, abs=4 * spread * bits.size / math.tanh(0.5))


@given(reports=st.integers(1, 1000), epsilon=st.floats(0.01, 50.0), share=st.floats(0.0, 1.0))
def test_the_count_inverts_the_expected_report(reports: int, epsilon: float, share: float) -> None:
    response = RandomizedResponse(epsilon=epsilon)
    true = share * reports
    expected = true * response.keep + (reports - true) * response.flip
    assert response.count(expected, reports=reports) == pytest.approx(true, rel=1e-9, abs=1e-9 * reports)


def test_it_is_the_formula_of_the_magnitude_estimate() -> None:
    response, ones, reports = RandomizedResponse(epsilon=2.0), 37, 90
    p = response.keep
    assert response.count(ones, reports=reports) == pytest.approx((ones - reports + reports * p) / (2 * p - 1))


def test_even_an_enormous_epsilon_flips_where_the_draw_is_zero() -> None:
    class Zero:
        def random(self, shape: tuple[int, ...]) -> np.ndarray:
            return np.zeros(shape)

    bits = np.array([True, False])
    response = RandomizedResponse(epsilon=5000.0)
    assert response.perturb(bits, Zero()).tolist() == [False, True]  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_bad_epsilon_is_refused(bad: float) -> None:
    with pytest.raises(ConfigError, match="epsilon > 0"):
        RandomizedResponse(epsilon=bad)


@pytest.mark.parametrize("bad", [0.5, 0.2, 1.0, math.nan])
def test_a_bad_probability_is_refused(bad: float) -> None:
    with pytest.raises(ConfigError, match="1/2 < keep < 1"):
        RandomizedResponse.keeping(bad)


@pytest.mark.parametrize(("ones", "reports"), [(-1, 10), (11, 10), (0, 0)])
def test_an_impossible_count_is_refused(ones: int, reports: int) -> None:
    with pytest.raises(ConfigError, match="reports="):
        RandomizedResponse(epsilon=1.0).count(ones, reports=reports)


def test_numbers_that_are_no_bits_are_refused() -> None:
    with pytest.raises(ConfigError, match="booleans"):
        RandomizedResponse(epsilon=1.0).perturb(np.array([0, 1, 2]), Randomness.of(seed=1).secret("x"))
